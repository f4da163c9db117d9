"""R05, R07 and R11 on processes: all members die, with their power or without, and come back in any order.

Under SYNC_FLUSH nothing acknowledged is lost by that; under ASYNC_FLUSH by the end of processes nothing either. One
whose disk is gone comes back empty under its id, and gets everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import cycle, islice, permutations
from pathlib import Path

import pytest

from rmq.runtime.real import seeded
from tests.support.kills.campaign import LONG, PIECE, amount
from tests.support.raft.histories import GroupLoad, judged
from tests.support.raft.processes import ProcessGroup
from tests.support.virtual import eventually

#: Seconds within which a group that is there again has a leader (R05).
_LED = 10.0
ORDERS = permutations(("n0", "n1", "n2"))


async def _back(group: ProcessGroup, load: GroupLoad, order: tuple[str, ...]) -> None:
    """One after the other; with the second there is a majority."""
    loop = asyncio.get_running_loop()
    for name in order[:2]:
        await group.begin(name)
    began = loop.time()
    await group.leader()
    assert loop.time() - began < _LED * (1 if LONG else 5), "a busy machine may take its time"
    await load.more()
    await group.begin(order[2])


async def test_all_that_are_killed_come_back_in_every_order(tmp_path: Path, say: Callable[[str], None]) -> None:
    """And a storm of rolling restarts, with no pause between them but that the one before has its place again."""
    orders = [*islice(cycle(ORDERS), amount(1, 60))]
    async with ProcessGroup(tmp_path) as group, GroupLoad(group) as load:
        for order in orders:
            await load.more()
            await group.kill(*group.names)
            await _back(group, load, order)
        for name in islice(cycle(group.names), amount(1, 90)):
            await group.stop(name)
            await group.begin(name)
            await load.more(5)
        await load.finish()
        await group.stop()
        verdict = judged(load)
    say(f"all dead: {len(orders)} times, {dict(verdict.counts)}")
    verdict.demand()


async def test_a_disk_that_is_lost_is_filled_again(tmp_path: Path, say: Callable[[str], None]) -> None:
    """The leader's, then that of one that follows; the next one goes when the last one is counted again."""
    async with ProcessGroup(tmp_path) as group, GroupLoad(group) as load:
        for number in range(amount(1, 60)):
            await load.more()
            leader = await group.leader()
            name = leader if number % 2 == 0 else next(name for name in group.names if name != leader)
            await group.kill(name)
            group.wipe(name)
            await group.begin(name)
            await load.more()
            await eventually(lambda name=name: group.has_returned(name), 90, 0.1)
        await load.finish()
        await group.stop()
        verdict = judged(load)
    say(f"lost disks: {dict(verdict.counts)}")
    verdict.demand()


@pytest.mark.parametrize("cut", range(amount(1, 50)))
async def test_all_lose_their_power_within_a_moment(cut: int, tmp_path: Path, say: Callable[[str], None]) -> None:
    """R11: 50 ms, and what was not forced is lost, kept or torn, as it falls."""
    random = seeded(1000 * PIECE + cut)
    forced = 0
    async with (
        ProcessGroup(tmp_path, power=True, settings={"flushDiskType": "SYNC_FLUSH"}) as group,
        GroupLoad(group) as load,
    ):
        for number in range(2 if LONG else 1):
            await load.more(60)
            for name in random.sample(group.names, 3):
                await group.kill(name)
                await asyncio.sleep(random.uniform(0, 0.025))
            for name in group.names:
                forced += group.cut_power(name, 10 * cut + number)
            await _back(group, load, tuple(random.sample(group.names, 3)))
        await load.finish()
        await group.stop()
        verdict = judged(load)
    say(f"no power: {forced} forcing calls, {dict(verdict.counts)}")
    verdict.demand()
    assert forced > 10
