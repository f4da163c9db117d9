"""The suite itself: what hangs is ended, and its report for JUnit says what tests counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
