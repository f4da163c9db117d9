"""R03 on five processes: lines are cut so that members see different majorities, or fall silent one after the other.

Whenever some member is connected to a majority, messages are acknowledged; what was is in the end in every log, in its
place, and nobody was given anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path

from rmq.runtime.real import seeded
from tests.support.kills.campaign import PIECE, amount
from tests.support.raft.histories import GroupLoad, judged
from tests.support.raft.processes import ProcessGroup

ROUNDS = amount(1, 15)


def _only(group: ProcessGroup, pairs: Iterable[tuple[str, str]]) -> None:
    """Just these pairs of members hear each other."""
    kept = {way for one, to in pairs for way in ((one, to), (to, one))}
    for way, line in group.lines.items():
        if way in kept:
            line.heal()
        else:
            line.silence()


async def _goes_on(group: ProcessGroup, load: GroupLoad, pairs: list[tuple[str, str]]) -> None:
    _only(group, pairs)
    await load.more()


async def bridge(group: ProcessGroup, load: GroupLoad, order: list[str]) -> None:
    """Two pairs that do not hear each other, and one member that hears both."""
    a, b, both, c, d = order
    await _goes_on(group, load, [(a, b), (c, d), *((both, one) for one in (a, b, c, d))])


async def ring(group: ProcessGroup, load: GroupLoad, order: list[str]) -> None:
    """Each hears its two neighbours: everybody is with a majority, and no two with the same."""
    await _goes_on(group, load, [(one, order[at - 1]) for at, one in enumerate(order)])


async def swizzle(group: ProcessGroup, load: GroupLoad, order: list[str], back: list[str]) -> None:
    """One after the other is cut off, until nobody hears anybody, and they come back in another order."""
    away: set[str] = set()

    def those() -> list[tuple[str, str]]:
        return [pair for pair in combinations(group.names, 2) if not away & {*pair}]

    for name in order:
        away.add(name)
        _only(group, those())
        if len(away) < 3:
            await load.more(10)
        await asyncio.sleep(0.1)
    # What was on its way when the last majority went may still be told; nothing is acknowledged from then on.
    await load.none()
    for name in back:
        away.remove(name)
        _only(group, those())
        await asyncio.sleep(0.1)
    await load.more()


async def test_whoever_is_with_a_majority_goes_on(tmp_path: Path, say: Callable[[str], None]) -> None:
    random = seeded(PIECE)
    async with (
        ProcessGroup(tmp_path, size=5, lines=True, settings={"slaveTimeout": "3000"}) as group,
        GroupLoad(group) as load,
    ):
        for _ in range(ROUNDS):
            await bridge(group, load, random.sample(group.names, 5))
            await ring(group, load, random.sample(group.names, 5))
            await swizzle(group, load, random.sample(group.names, 5), random.sample(group.names, 5))
            # The one that leads is the one in the middle, and then one that hears only its neighbours.
            leader = await group.leader()
            others = random.sample([name for name in group.names if name != leader], 4)
            await bridge(group, load, [*others[:2], leader, *others[2:]])
            await bridge(group, load, [leader, *others])
            _only(group, combinations(group.names, 2))
            await load.more()
        await load.finish()
        await group.stop()
        verdict = judged(load)
    say(f"five members: {dict(verdict.counts)}")
    verdict.demand()
