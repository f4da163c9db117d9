"""What fails each second is told once, now and then while it lasts, and once when it works again."""

import asyncio
import errno
import logging
import os

import pytest

from rmq.broker.store.trouble import Trouble
from rmq.protocol.errors import StoreError
from rmq.testing.simworld import SimClock
from tests.support.virtual import in_virtual_time

log = logging.getLogger("trouble")


@pytest.fixture
def trouble(caplog: pytest.LogCaptureFixture) -> Trouble:
    caplog.set_level(logging.INFO)
    return Trouble(SimClock(), log, "writing things", "they stay in memory")


def refusal(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/store/thing")


@in_virtual_time
async def test_a_failure_a_second_is_a_line_a_minute_and_its_end_is_told(
    trouble: Trouble, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(150):
        trouble.failed(refusal(errno.EROFS))
        await asyncio.sleep(1)
    trouble.over()
    trouble.over()
    text = "/store/thing: Read-only file system: mount that file system writable; they stay in memory"
    assert caplog.messages == [
        f"writing things fails: {text}",
        f"writing things still fails (60 times in 60 s): {text}",
        f"writing things still fails (60 times in 60 s): {text}",
        "writing things works again, after 150 failures in 150 s",
    ]


@in_virtual_time
async def test_another_kind_is_told_at_once(trouble: Trouble, caplog: pytest.LogCaptureFixture) -> None:
    for error in (refusal(errno.EROFS), refusal(errno.EIO), StoreError("shut"), refusal(errno.EIO), StoreError("no")):
        trouble.failed(error)
        await asyncio.sleep(1)
    assert [line.rpartition(";")[0].rpartition(": ")[2] for line in caplog.messages] == [
        "mount that file system writable", "check that disk", "shut",
    ]  # fmt: skip


@in_virtual_time
async def test_what_fails_and_works_by_turns_is_told_twice_a_minute(
    trouble: Trouble, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        trouble.failed(refusal(errno.EIO))
        await asyncio.sleep(1)
        trouble.over()
        await asyncio.sleep(1)
    begins = [line.partition(":")[0].partition(",")[0] for line in caplog.messages]
    again = "writing things works again"
    assert begins[:2] == ["writing things fails", again]
    assert begins[2:] == ["writing things fails again (30 times in 60 s)", again] * 3


@in_virtual_time
async def test_what_fails_again_after_its_end_was_told_begins_anew(
    trouble: Trouble, caplog: pytest.LogCaptureFixture
) -> None:
    for seconds in (1, 99):
        trouble.failed(refusal(errno.EIO))
        trouble.failed(refusal(errno.EIO))
        trouble.over()
        await asyncio.sleep(seconds * 100)
    begins = [line.partition(":")[0].partition(",")[0] for line in caplog.messages]
    assert begins == ["writing things fails", "writing things works again"] * 2
