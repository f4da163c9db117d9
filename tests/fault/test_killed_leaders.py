"""R05 and C01 for a group: three brokers as processes, whose leader is killed again and again under load.

What it was told of topics and groups a moment before, and has answered, the next one knows, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rmq.aio import AdminClient
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from tests.support.kills.campaign import amount
from tests.support.raft.histories import GroupLoad, judged
from tests.support.raft.processes import ProcessGroup

KILLS = amount(1, 500)


async def _change(admin: AdminClient, number: int, at: str) -> None:
    await admin.create_and_update_topic(at, f"Gone{number}")
    await admin.delete_topic_in_broker([at], f"Gone{number}")
    await admin.create_and_update_topic(at, f"Made{number}", read_queue_nums=3, write_queue_nums=2, perm=4)
    group = SubscriptionGroupConfig(group_name=f"made{number}", retry_max_times=number)
    await admin.create_and_update_subscription_group(at, group)


async def test_leaders_that_are_killed_lose_nothing(tmp_path: Path, say: Callable[[str], None]) -> None:
    async with ProcessGroup(tmp_path) as group, GroupLoad(group) as load:
        admin = load.admin
        for number in range(KILLS):
            await load.more()
            leader = await group.asked(partial(_change, admin, number))
            await group.kill(leader)
            at = group.address(await group.leader())
            topics = (await admin.topic_configs(at)).topic_config_table
            groups = (await admin.subscription_groups(at)).subscription_group_table
            for past in range(number + 1):
                assert topics[f"Made{past}"] == TopicConfig(f"Made{past}", 3, 2, 4)
                assert f"Gone{past}" not in topics
                assert groups[f"made{past}"].retry_max_times == past
            await load.more()
            await group.begin(leader)
        await load.finish()
        await group.stop()
        verdict = judged(load)
    say(f"killed leaders: {KILLS} kills, {dict(verdict.counts)}")
    verdict.demand()
    assert verdict.counts["terms with a leader"] > KILLS


async def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    """Members acknowledge what they have alone; one is cut off and dies, and the others lead on without that."""
    async with (
        ProcessGroup(tmp_path, lines=True, bug="acknowledge_before_fsync") as group,
        GroupLoad(group) as load,
    ):
        leader = await group.leader()
        ways = [line for way, line in group.lines.items() if leader in way]
        for line in ways:
            line.silence()
        await load.more(10)
        await group.kill(leader)
        await group.leader()
        for line in ways:
            line.heal()  # what it had sent comes too late
        await group.begin(leader)
        await load.more(5)
        await load.silence()
        await group.alike()
        await group.stop()
        found = {fault.partition(":")[0] for fault in judged(load).faults}
    assert "I1" in found, found
