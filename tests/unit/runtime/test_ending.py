"""A whole ends with all of its parts, whichever of them cannot end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rmq.runtime.ending import Parts, end_each


def fails() -> None:
    raise RuntimeError("planted")


async def test_the_newest_part_ends_first_and_one_that_fails_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def slow() -> None:
        ended.append("slow")

    parts = Parts("the whole")
    parts.push("the store", lambda: ended.append("store"))
    parts.push("the half", fails)
    parts.push("the one that told", lambda: False)
    parts.push("the slow one", slow)
    assert await parts.unwind() == ["the one that told", "the half"]
    assert ended == ["slow", "store"]
    assert len(parts) == 0
    assert await parts.unwind() == []
    (told,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert told.getMessage() == "the whole: the half did not end cleanly; the rest ends all the same"


async def test_whether_all_parts_ended_is_known() -> None:
    assert await end_each("the whole", {"one": lambda: None, "two": lambda: 0})
    assert not await end_each("the whole", {"one": lambda: False, "two": lambda: None})
    assert not await end_each("the whole", {"one": fails})


async def test_who_is_cancelled_meanwhile_ends_the_rest_all_the_same() -> None:
    ended: list[str] = []

    async def for_ever() -> None:
        await asyncio.Event().wait()

    parts = Parts("the whole")
    parts.push("the store", lambda: ended.append("store"))
    parts.push("the slow one", lambda: end_each("its own", {"one": for_ever, "two": lambda: ended.append("two")}))
    ending = asyncio.ensure_future(parts.unwind())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert ended == ["two", "store"]
