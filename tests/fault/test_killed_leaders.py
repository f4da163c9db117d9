"""R05 and C01 for a group: three brokers as processes, whose leader is killed again and again under load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.kills.campaign import amount
from tests.support.raft.histories import GroupLoad, judged
from tests.support.raft.processes import ProcessGroup

KILLS = amount(1, 500)


async def test_leaders_that_are_killed_lose_nothing(tmp_path: Path, say: Callable[[str], None]) -> None:
    async with ProcessGroup(tmp_path) as group, GroupLoad(group) as load:
        for _ in range(KILLS):
            leader = await group.leader(load.admin)
            await load.more()
            await group.kill(leader)
            await group.leader(load.admin)
            await load.more()
            await group.begin(leader)
        await load.finish()
        await group.stop()
        verdict = judged(load)
    say(f"killed leaders: {KILLS} kills, {dict(verdict.counts)}")
    verdict.demand()
    assert verdict.counts["terms with a leader"] > KILLS
