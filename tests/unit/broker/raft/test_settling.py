"""Who has put a change into the log is told what came of it."""

from __future__ import annotations

import asyncio

import pytest

from rmq.broker.raft.settling import Settling
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from tests.support.virtual import in_virtual_time


async def waiting(settling: Settling, end: int) -> asyncio.Task[None]:
    settling.wrote(end)
    task = asyncio.ensure_future(settling.settled())
    await asyncio.sleep(0)
    return task


@in_virtual_time
async def test_who_waits_is_answered_when_all_that_was_written_before_is_committed() -> None:
    settling = Settling(lambda: 3000)
    await settling.settled()  # nothing was written
    first, second = [await waiting(settling, end) for end in (100, 200)]
    settling.committed(99)
    await asyncio.sleep(1)
    assert (first.done(), second.done()) == (False, False)
    settling.committed(100)
    settling.committed(50)  # says nothing new
    await asyncio.sleep(1)
    assert (first.done(), second.done()) == (True, False)
    settling.committed(250)
    await second
    await settling.settled()


@in_virtual_time
async def test_a_cut_takes_back_what_lies_behind_it_and_was_not_committed() -> None:
    settling = Settling(lambda: 3000)
    first, second = [await waiting(settling, end) for end in (100, 200)]
    settling.cut(100)
    for task in (second, asyncio.ensure_future(settling.settled())):
        with pytest.raises(ResponseError, match="it is not made") as refused:
            await task
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert not first.done()
    settling.committed(100)
    await first
    third = await waiting(settling, 150)  # written since then
    settling.committed(150)
    await third
    settling.cut(120)  # which takes nothing back that is committed
    await settling.settled()


@in_virtual_time
async def test_nobody_waits_longer_than_the_settings_say() -> None:
    times = [1500]
    settling = Settling(lambda: times[0])
    task = await waiting(settling, 100)
    begin = asyncio.get_running_loop().time()
    with pytest.raises(ResponseError, match=r"has not committed the change within 1\.5 s") as late:
        await task
    assert late.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert asyncio.get_running_loop().time() - begin == pytest.approx(1.5)
    assert settling._waiting == []
    times[0] = 4000
    task = asyncio.ensure_future(settling.settled())
    await asyncio.sleep(3)
    settling.committed(100)
    await task
