"""The suite itself: what hangs is ended, and its report for JUnit says what tests counted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from tests.conftest import GROUPS, LONGEST, pytest_collection_modifyitems, pytest_xdist_make_scheduler, unit

_ROOT = Path(__file__).parents[3]

_SPINS = """
import asyncio

async def spin():
    while True:
        pass

async def test_that_hangs():
    spinning = asyncio.ensure_future(spin())
    await asyncio.Event().wait()
"""
_COUNTS = """
def test_that_counts(say):
    say("42 of them")
"""


def _pytest(test: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of the suite's settings and fixtures with a test of its own."""
    return subprocess.run(
        [
            sys.executable, "-m", "pytest", str(test), f"--rootdir={_ROOT}",
            f"--config-file={_ROOT / 'pyproject.toml'}", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "0",
            *options,
        ],
        cwd=_ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_task_that_spins_is_ended(tmp_path: Path) -> None:
    test = tmp_path / "test_spins.py"
    test.write_text(_SPINS)
    run = _pytest(test, "--timeout=1")
    assert run.returncode
    assert "Timeout" in run.stdout
    assert "in spin" in run.stdout, "where it spun is told"


def test_what_tests_counted_is_in_the_report_for_junit(tmp_path: Path) -> None:
    test, report = tmp_path / "test_counts.py", tmp_path / "report.xml"
    test.write_text(_COUNTS)
    run = _pytest(test, f"--junitxml={report}")
    assert run.returncode == 0, run.stdout
    assert '<property name="said" value="42 of them" />' in report.read_text()
    assert "42 of them" in run.stdout


class _Process:
    """A process of pytest-xdist: notes what it is to run."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_what_shares_a_spark_session_or_a_java_cluster_runs_in_one_process() -> None:
    """Not by xdist's marks, which pytest 9.2 made say nothing: each test went where there was room."""
    files = (("spark/test_a", "x@y"), ("spark/test_b", "::"), ("interop/test_matrix", "java"), ("perf/test_load", ""))
    names = [f"tests/{path}.py::test_{number}[{more}]" for path, more in files for number in range(4)]
    given = {"dist": "loadgroup", "tx": ["popen", "popen"]}
    config: Any = SimpleNamespace(
        getoption=given.get, getvalue=given.get, option=SimpleNamespace(loadscopereorder=False)
    )
    scheduler: Any = pytest_xdist_make_scheduler(config, None)
    processes = [_Process(), _Process()]
    for each in processes:
        scheduler.add_node(each)
        scheduler.add_node_collection(each, names)
    scheduler.schedule()
    assert [each.given for each in processes] == [list(range(8)), list(range(8, 12))]
    for number in (8, 9, 10):
        scheduler.mark_test_complete(processes[1], number)
    assert processes[1].given == list(range(8, 16)), "the one that is free first takes the next"


def test_the_longest_begin_first() -> None:
    """Each name is that of a file, and what begins last is short."""
    tests = Path(__file__).parents[2]
    begins = [begin for group in GROUPS.values() for begin in group]
    assert [name for name in (*begins, *LONGEST) if not list(tests.glob(f"{name}*"))] == []
    items: list[Any] = [
        Mock(path=tests / path)
        for path in ("unit/test_a.py", "interop/test_tls.py", "perf/test_load.py", *LONGEST[1::-1], "spark/test_b.py")
    ]
    pytest_collection_modifyitems(items)
    ordered = [item.path.relative_to(tests).as_posix() for item in items]
    assert ordered == ["unit/test_a.py", "spark/test_b.py", "interop/test_tls.py", *LONGEST[:2], "perf/test_load.py"]


def test_who_asks_for_the_shared_clusters_is_where_they_run() -> None:
    """Elsewhere a second Java cluster and second clients would be started for it."""
    asking = [path for path in (_ROOT / "tests/interop").glob("test_*.py") if "scene: Callable" in path.read_text()]
    assert {unit(f"interop/{path.name}") for path in asking} == {"clients"}
