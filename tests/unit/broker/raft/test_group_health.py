"""What probes and metrics say of a member: ready as a master or as a replica, and why it is not."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from rmq.aio import Producer
from rmq.client.message import Message
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time


async def told(cluster: GroupCluster, name: str) -> dict[str, float]:
    """Its metrics of groups, by name and member."""
    _, families = await cluster.members[name].metrics.page({})
    return {
        "".join([family.name.removeprefix("rmq_group_"), *(f" {value}" for _, value in labels)]): value
        for family in families
        if family.name.startswith("rmq_group_")
        for _, labels, value in family.samples
    }


@in_virtual_time
async def test_metrics_of_a_leader_and_of_those_that_follow() -> None:
    async with GroupCluster(seed=1) as cluster:
        leader = await cluster.led_by()
        one, other = (name for name in cluster.names if name != leader)
        await cluster.alike()
        await asyncio.sleep(2)
        end, term = cluster.members[leader].store.log.end, cluster.driver(leader).leads
        assert await told(cluster, leader) == {
            "leads": 1, "has_leader": 1, "stopped": 0, "term": term, "committed_offset": end, "failures_total": 0,
            "elections_won_total": cluster.driver(leader).won,
            f"member_connected {one}": 1, f"member_connected {other}": 1,
            f"member_behind_bytes {one}": 0, f"member_behind_bytes {other}": 0,
        }  # fmt: skip
        follower = await told(cluster, one)
        assert (follower["leads"], follower["has_leader"], follower["term"]) == (0, 1, term)
        assert not any(name.startswith("member_behind_bytes") for name in follower)
        for name in (leader, other):
            await cluster.kill(name)
        await asyncio.sleep(3)
        alone = await told(cluster, one)
        assert (alone["leads"], alone["has_leader"], alone[f"member_connected {other}"]) == (0, 0, 0)


@in_virtual_time
async def test_a_member_is_ready_while_it_knows_who_leads() -> None:
    cluster = GroupCluster(seed=2)
    cluster.waits = True
    async with cluster:
        for name in ("n0", "n1"):
            await cluster.begin(name)
        await asyncio.sleep(5)
        for name in ("n0", "n1"):
            assert cluster.members[name]._missing() == "the group begins once every member was met: n2 never was"
        await cluster.begin("n2")
        leader = await cluster.led_by()
        await asyncio.sleep(3)
        assert [app._missing() for app in cluster.members.values()] == [None] * 3
        one, other = (name for name in cluster.names if name != leader)
        for name in (leader, other):
            await cluster.kill(name)
        await asyncio.sleep(3)
        assert cluster.members[one]._missing() == "the group has no leader"
        await cluster.begin(leader)
        await cluster.led_by()
        await asyncio.sleep(3)
        assert [app._missing() for app in cluster.members.values()] == [None] * 2


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What members have said of a group without a leader, since the last time."""
    lines = [one.getMessage() for one in caplog.records if one.name == "rmq.broker.raft.leaderless"]
    caplog.clear()
    return lines


@in_virtual_time
async def test_the_addresses_of_the_other_members_that_are_there() -> None:
    """Whom a member asks how far groups are, before it leads."""
    async with GroupCluster(seed=8) as cluster:
        leader = await cluster.led_by()
        gone, left = (name for name in cluster.names if name != leader)
        addresses = {name: cluster.members[name].group.view.address_of(name) for name in cluster.names}  # type: ignore
        assert len(set(addresses.values())) == 3
        group = cluster.members[leader].group
        assert group is not None
        assert sorted(group.view.addresses_there()) == sorted(str(addresses[name]) for name in (gone, left))
        await cluster.kill(gone)
        await eventually(lambda: group.view.addresses_there() == [addresses[left]])
        assert group.view.address_of(gone) == addresses[gone]


@in_virtual_time
async def test_the_log_says_that_nobody_leads_and_not_often(caplog: pytest.LogCaptureFixture) -> None:
    async with GroupCluster(seed=12) as cluster:
        leader = await cluster.led_by()
        one, other = (name for name in cluster.names if name != leader)
        await asyncio.sleep(60)
        assert said(caplog) == []
        await cluster.kill(leader)
        await eventually(lambda: cluster.leader() is not None)
        await asyncio.sleep(60)
        assert said(caplog) == []  # an election is nothing to be told of
        left = cluster.leader()
        away = sorted((leader, one if left == other else other))
        await cluster.kill(away[0] if away[0] != leader else away[1])
        await asyncio.sleep(150)
        lines = said(caplog)
        what = f"the group has no leader: {', '.join(away)} not connected; 2 of 3 have to hear each other"
        assert [line.partition(" s: ")[2] for line in lines] == [what] * 3
        assert [int(re.findall(r"for (\d+) s", line)[0]) for line in lines] == [3, 63, 123]


@in_virtual_time
async def test_the_log_says_who_was_never_met(caplog: pytest.LogCaptureFixture) -> None:
    cluster = GroupCluster(seed=2)
    cluster.waits = True
    async with cluster:
        await cluster.begin("n0")
        await asyncio.sleep(10)
        assert said(caplog) == [
            "no message has been taken here for 3 s: the group begins once every member was met: n1, n2 never were"
        ]
        for name in ("n1", "n2"):
            await cluster.begin(name)
        await cluster.led_by()


@in_virtual_time
async def test_a_member_that_takes_what_it_missed_is_not_ready_yet() -> None:
    async with GroupCluster(seed=3) as cluster:
        leader = await cluster.led_by()
        late = next(name for name in cluster.names if name != leader)
        await cluster.kill(late)
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            for _ in range(30):
                await producer.send(Message("Topic", random.Random(1).randbytes(100_000)))
        app = await cluster.begin(late)
        group = app.group
        assert group is not None
        assert group.view.lacks(None) == "it does not know yet how far the leader's log goes"
        assert group.view.lacks(3 << 20) == f"it lacks {3 << 20} bytes of the leader's log, and takes them"
        assert app._missing() is not None
        await eventually(lambda: app._missing() is None, 30)
        assert app.store.log.end > 3_000_000
        # It is behind for a moment, as any: that is no reason.
        assert group.view.lacks(3 << 20) is None


@in_virtual_time
async def test_a_member_that_takes_connections_and_says_nothing_is_not_connected() -> None:
    """The system takes them for a process that stands still, and the alert for a member that is away has to fire."""
    async with GroupCluster(seed=41) as cluster:
        leader = await cluster.led_by()
        still = next(name for name in cluster.names if name != leader)
        await asyncio.sleep(3)
        assert (await told(cluster, leader))[f"member_connected {still}"] == 1
        group = cluster.members[still].group
        assert group is not None
        assert group.member is not None
        links = group.member.links
        for link in list(links._in):
            link.close()
        links.introduced = links.heard = lambda *_: None  # type: ignore[assignment, method-assign]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("rmq.broker.raft.incoming.Incoming.data_received", lambda *_: None)
            await asyncio.sleep(10)
            for _ in range(20):
                await asyncio.sleep(0.25)
                assert (await told(cluster, leader))[f"member_connected {still}"] == 0
