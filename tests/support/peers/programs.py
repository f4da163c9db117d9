"""Our client programs (tests/interop/programs), compiled into the cache by the hash of their sources.

Each program speaks the same JSON lines on standard input and output (tests/interop/programs/README.md), so a test
does not see which language it talks to.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .cache import cached, content_key
from .jars import java_classpath, pom, resolve_jars, run_tool
from .tools import require

PROGRAMS = Path(__file__).resolve().parents[2] / "interop" / "programs"

# Source folders by what a version offers: `lite` needs DefaultLitePullConsumer (4.6), `admin` the tools' jars, `timed`
# the transaction producer of 4.9.
_JAVA_SOURCES = {
    "4.5.2": ("core",),
    "4.9.4": ("core", "lite", "admin", "timed"),
    "4.9.8": ("core", "lite", "admin", "timed"),
    "5.3.3": ("core", "lite", "admin", "timed"),
}


def java_program(version: str) -> str:
    """The class path of the Java program, compiled against one version's client."""
    folders = [PROGRAMS / "java" / name for name in _JAVA_SOURCES[version]]

    def build(folder: Path) -> None:
        require("javac")
        sources = [str(file) for source in folders for file in sorted(source.rglob("*.java"))]
        run_tool(
            ["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(folder), "-cp", java_classpath(version), *sources],
            folder,
        )

    require("java")
    resolve_jars(version)
    key = content_key(pom(version), *folders)
    return java_classpath(version, cached(f"{version}/program-{key}", build))


def go_program() -> Path:
    """The Go program's binary; the client module comes through the module cache."""
    source = PROGRAMS / "go"

    def build(folder: Path) -> None:
        require("go")
        work = folder / "source"
        shutil.copytree(source, work)
        run_tool(["go", "build", "-o", str(folder / "peer"), "."], work, dict(os.environ) | {"GOFLAGS": "-mod=mod"})
        shutil.rmtree(work)

    return cached(f"go/program-{content_key(source)}", build) / "peer"


def node_program() -> Path:
    """The Node program's main file, beside its installed packages."""
    source = PROGRAMS / "node"
    require("node")

    def build(folder: Path) -> None:
        require("npm")
        for file in source.iterdir():
            shutil.copy(file, folder / file.name)
        run_tool(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], folder)

    return cached(f"node/program-{content_key(source)}", build) / "peer.js"


def python_program() -> Path:
    """Our SDK's program."""
    return PROGRAMS / "python" / "peer.py"
