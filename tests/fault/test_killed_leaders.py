"""R05 and C01 for a group: three brokers as processes, whose leader is killed again and again under load.

What it was told of topics and groups a moment before, and has answered, the next one knows, too.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rmq.aio import AdminClient
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.bodies.topic import TopicConfig
from tests.support.kills.campaign import amount
from tests.support.raft.histories import GroupLoad, judged
from tests.support.raft.processes import ProcessGroup

KILLS = amount(1, 500)
#: A leader that was to be cut off stood still instead.
TRIES = 5


async def _change(admin: AdminClient, number: int, at: str) -> None:
    await admin.create_and_update_topic(at, f"Gone{number}")
    await admin.delete_topic_in_broker([at], f"Gone{number}")
    await admin.create_and_update_topic(at, f"Made{number}", read_queue_nums=3, write_queue_nums=2, perm=4)
    group = SubscriptionGroupConfig(group_name=f"made{number}", retry_max_times=number)
    await admin.create_and_update_subscription_group(at, group)


async def _tables(
    group: ProcessGroup, admin: AdminClient
) -> tuple[Mapping[str, TopicConfig], Mapping[str, SubscriptionGroupConfig]]:
    """What whoever leads knows of topics and groups."""
    found = []

    async def look(at: str) -> None:
        topics, groups = await admin.topic_configs(at), await admin.subscription_groups(at)
        found.append((topics.topic_config_table, groups.subscription_group_table))

    await group.asked(look)
    return found[-1]


async def test_leaders_that_are_killed_lose_nothing(tmp_path: Path, say: Callable[[str], None]) -> None:
    async with ProcessGroup(tmp_path) as group, GroupLoad(group) as load:
        admin = load.admin
        for number in range(KILLS):
            await load.more()
            leader = await group.asked(partial(_change, admin, number))
            await group.kill(leader)
            topics, groups = await _tables(group, admin)
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


async def _acknowledged_alone(group: ProcessGroup, load: GroupLoad) -> bool:
    """A leader is cut off, acknowledges some, and dies; the others, who lead on, stand still until then: on a busy
    machine one of them would be elected before, and those acknowledged be its own.

    :return: false, if the leader itself stood still for so long that it leads no more.
    """
    leader = await group.leader()
    others = [name for name in group.names if name != leader]
    ways = [line for way, line in group.lines.items() if leader in way]
    for line in ways:
        line.silence()
    for name in others:
        group.signal(name, signal.SIGSTOP)
    try:
        await load.more(10, within=10)
    except AssertionError:
        alone = False
    else:
        alone = True
        await group.kill(leader)
    for name in others:
        group.signal(name, signal.SIGCONT)
    await group.leader()
    for line in ways:
        line.heal()  # what it had sent comes too late
    if alone:
        await group.begin(leader)
    return alone


async def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    """Members acknowledge what they have alone; one is cut off and dies, and the others lead on without that."""
    async with (
        ProcessGroup(tmp_path, lines=True, bug="acknowledge_before_fsync") as group,
        GroupLoad(group) as load,
    ):
        for _ in range(TRIES):
            if await _acknowledged_alone(group, load):
                break
        await load.more(5)
        await load.silence()
        await group.alike()
        await group.stop()
        found = {fault.partition(":")[0] for fault in judged(load).faults}
    assert "I1" in found, found
