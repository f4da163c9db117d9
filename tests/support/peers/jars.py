"""Apache's jars, resolved with Maven from a generated pom. Which version has what: peers.md section 1."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from .cache import cached, content_key
from .tools import ToolMissing, require

ARTIFACTS = {
    "4.5.2": ("client",),
    "4.9.4": ("namesrv", "broker", "client", "tools"),
    "4.9.8": ("client", "tools"),
    "5.3.3": ("namesrv", "broker", "client", "tools"),
}

# Java 17 hides what RocketMQ's mapped files reach for.
JAVA_OPENS = (
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rmq.interop</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>org.apache.rocketmq</groupId>"
    "<artifactId>rocketmq-{artifact}</artifactId><version>{version}</version></dependency>"
)


def pom(version: str) -> str:
    """The pom that names the artifacts of one version."""
    return dependencies(version, *ARTIFACTS[version])


def dependencies(version: str, *artifacts: str) -> str:
    """A pom that names these artifacts."""
    lines = (_DEPENDENCY.format(artifact=artifact, version=version) for artifact in artifacts)
    return _POM.format(dependencies="".join(lines))


#: How Maven, Go and npm say that it was the network, which may be better a little later.
_NETWORK = re.compile(
    r"could not transfer|timed? ?out|connection (reset|refused|closed)|remote host|unexpected EOF|TLS handshake|"
    r"temporary failure|no such host|unknown host|UnknownHost|ECONN|ETIMEDOUT|EAI_AGAIN|ENOTFOUND|\b(429|50[0234])\b",
    re.IGNORECASE,
)
#: Seconds until the next try of a download, and what one may take.
_PAUSES = (2.0, 10.0, 30.0)
_DOWNLOAD = 300.0


def run_tool(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a build tool, again when it was the network that failed.

    Errors: ToolMissing with its last lines when it fails for good (most often: no registry reached).
    """
    tool = f"`{' '.join(command[:3])} ...`"
    for pause in (*_PAUSES, None):
        try:
            done = subprocess.run(
                command, cwd=cwd, env=env, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_DOWNLOAD
            )
        except subprocess.TimeoutExpired:
            why = f"{tool} timed out after {_DOWNLOAD:.0f} s"
        else:
            if done.returncode == 0:
                return done.stdout
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            why = f"{tool} failed with exit code {done.returncode}:\n{tail}"
        if pause is None or not _NETWORK.search(why):
            break
        print(f"{why}\ntrying again in {pause:.0f} s")
        time.sleep(pause)
    raise ToolMissing(why)


def resolve_jars(version: str) -> Path:
    """The folder with all jars of one Apache version, from the cache or from Maven Central."""
    return resolve_pom(f"{version}/jars", pom(version))


def resolve_pom(name: str, text: str) -> Path:
    """The folder with all jars of a pom, from the cache or from Maven Central. `name` begins the cache's."""
    require("java")

    def build(folder: Path) -> None:
        require("mvn")
        (folder / "pom.xml").write_text(text)
        goal = ["dependency:copy-dependencies", "-DoutputDirectory=lib", "-DincludeScope=runtime"]
        run_tool(["mvn", "-q", "-B", *goal], folder)

    return cached(f"{name}-{content_key(text)}", build) / "lib"


def java_classpath(version: str, *extra: Path) -> str:
    """A class path: `extra` folders, then every jar of the version."""
    return ":".join([*(str(path) for path in extra), f"{resolve_jars(version)}/*"])
