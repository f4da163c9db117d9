"""When a member's node is called."""

from __future__ import annotations

import asyncio

from rmq.broker.raft.alarm import Alarm
from tests.support.virtual import in_virtual_time


@in_virtual_time
async def test_an_alarm_rings_at_the_earliest_time_that_it_was_set_to_and_once() -> None:
    now = asyncio.get_running_loop().time
    rung: list[float] = []
    alarm = Alarm(now, lambda: rung.append(round(now() - begin, 3)))
    begin = now()
    for seconds in (5, 3, 4):
        alarm.set(begin + seconds)
    await asyncio.sleep(10)
    assert rung == [3]
    alarm.set(begin)  # long over: it does not ring at once, so that nobody is called without end
    assert rung == [3]
    await asyncio.sleep(1)
    assert rung == [3, 10.001]
    alarm.set(now() + 1)
    alarm.cancel()
    alarm.set(now() + 2)
    await asyncio.sleep(5)
    assert rung == [3, 10.001, 13.0]
