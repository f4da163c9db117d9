"""Programs whose output nobody takes: a reader that has had enough, a full disk, closed streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.golden_store import unpack

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no disk that is always full")


def shell(line: str) -> tuple[int, str]:
    """The exit code of a program, and standard error; {0} is mqadmin, {1} a pipe whose reader has gone."""
    tool = f"{sys.executable} -m rmq.cli.mqadmin"
    reader, gone = os.pipe()
    os.close(reader)
    try:
        ran = subprocess.run(
            ["bash", "-c", line.format(tool, gone)],
            env={**os.environ, "PYTHONUNBUFFERED": ""}, capture_output=True, text=True, timeout=60, pass_fds=[gone],
        )  # fmt: skip
    finally:
        os.close(gone)
    return ran.returncode, ran.stderr


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("{0} help > /dev/full", 1, "mqadmin: No space left on device\n"),
        ("{0} help >&{1}", 1, ""),
        ("{0} help >&-", 0, ""),
        ("{0} nosuch 2> /dev/full", 2, ""),
        ("{0} nosuch >&- 2>&-", 2, ""),
    ],
)
def test_nothing_is_said_twice_and_the_code_tells(line: str, code: int, said: str) -> None:
    assert shell(line) == (code, said)


def test_who_has_read_enough_of_a_store_is_told_nothing(tmp_path: Path) -> None:
    assert shell(f"{{0}} store dump records -s {unpack(tmp_path)} >&{{1}}") == (1, "")
