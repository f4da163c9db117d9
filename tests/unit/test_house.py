"""Rules of the house that a reader of the code may rely on."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rmq"
#: Only rmq/runtime touches these: everything else is given a World.
WORLDLY = {"time", "random", "uuid", "secrets", "threading", "socket"}
THREADS = {"run_in_executor", "to_thread"}
DOORS = ("namesrv", "broker", "client", "protocol")
#: A line that may touch the world: parsing all of the package takes longer than a hundred other tests.
TOUCHING = re.compile(
    rf"^[ \t]*(?:import|from)\b.*\b(?:{'|'.join(sorted(WORLDLY))})\b|{'|'.join(sorted(THREADS))}", re.MULTILINE
)
#: A line that may import through a door: its name, and no package before it.
THROUGH = re.compile(rf"^[ \t]*(?:import|from)\b.*(?<![\w.])(?:{'|'.join(DOORS)})\b", re.MULTILINE)


def modules() -> Iterator[Path]:
    yield from sorted(PACKAGE.rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


def test_only_the_runtime_touches_the_world() -> None:
    wrong = []
    for path in modules():
        if path.is_relative_to(PACKAGE / "runtime"):
            continue
        text = path.read_text(encoding="utf-8")
        if not TOUCHING.search(text):
            continue
        tree = parsed(text)
        where = path.relative_to(ROOT)
        wrong += [
            f"{where}:{line} imports {name}" for line, name in imported(tree) if name.partition(".")[0] in WORLDLY
        ]
        for node in ast.walk(tree):
            # A simulated loop has to define run_in_executor, to refuse it: defining is no call.
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            if isinstance(node, (ast.Attribute, ast.Name)) and name in THREADS:
                wrong.append(f"{where}:{node.lineno} calls {name}")
    assert not wrong, "\n".join(wrong)


def test_nothing_is_imported_through_a_door() -> None:
    """The links at the top of the repository are for readers; code says ``rmq.broker``, never ``broker``."""
    wrong = []
    for path in [*modules(), *sorted((ROOT / "tests").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        if not THROUGH.search(text):
            continue
        wrong += [
            f"{path.relative_to(ROOT)}:{line} imports {name}"
            for line, name in imported(parsed(text))
            if name.partition(".")[0] in DOORS
        ]
    assert not wrong, "\n".join(wrong)
    through = [name for name in sys.modules if name.partition(".")[0] in DOORS]
    assert not through, through


def test_the_doors_lead_into_the_house() -> None:
    for door in DOORS:
        link = ROOT / door
        assert link.is_symlink()
        assert link.resolve() == PACKAGE / door


@pytest.mark.parametrize("name", ["rmq", "rmq.aio", "rmq.client"])
def test_the_sdk_never_loads_the_broker(name: str) -> None:
    program = (
        f"import {name}, sys\n"
        "print([m for m in sys.modules if m.startswith(('rmq.broker', 'rmq.namesrv', 'rmq.cli.', 'rmq.testing'))])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (run.returncode, run.stdout.strip()) == (0, "[]"), run.stderr


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
    assert [str(path) for path in modules() if path.stem in drawers] == []
