"""R07: members whose disk is lost come back empty under their ids, and break nothing that they had promised.

Who has lost its disk may have voted, and acknowledged: it follows, and neither votes nor counts, until it has back what
it had. Members without disks never elect one of themselves over one that has its own.
"""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from rmq.aio import Producer
from rmq.broker.raft.driver import RaftDriver
from rmq.client.message import Message
from tests.support.raft.brokers import GroupCluster
from tests.support.raft.lives import Load, live
from tests.support.virtual import eventually, in_virtual_time

_TORTURE = float(os.environ.get("RMQ_TORTURE", "0"))


async def sent(cluster: GroupCluster, count: int = 20) -> Load:
    """Messages that are acknowledged."""
    load = Load(cluster)
    running = asyncio.create_task(load.run())
    await eventually(lambda: len(load.acknowledged) >= count, 60)
    load.ended = True
    await running
    return load


def kept(cluster: GroupCluster, name: str, what: str) -> dict[str, object]:
    found = json.loads(cluster.simulation.nodes[name].files.read(f"/store/raft/{what}"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("leads", [False, True])
@in_virtual_time
async def test_a_member_without_its_disk_gets_everything_and_is_counted_again(leads: bool) -> None:
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        load = await sent(cluster)
        wiped = leader if leads else next(name for name in cluster.names if name != leader)
        await cluster.kill(wiped, disk=True)
        await cluster.begin(wiped)
        await eventually(lambda: cluster.driver(wiped).returning)
        await eventually(lambda: not cluster.driver(wiped).returning and cluster.leader(), 30)
        await cluster.alike()
        assert load.acknowledged <= set(await cluster.bodies(wiped, "Topic"))
        assert (kept(cluster, wiped, "vote")["returning"], kept(cluster, wiped, "members")["returned"]) == (False, True)
        # It is the second of a majority now, and after a start.
        await cluster.kill(next(name for name in cluster.names if name not in (cluster.leader(), wiped)))
        load.acknowledged |= (await sent(cluster)).acknowledged
        await cluster.kill(wiped)
        await cluster.begin(wiped)
        load.acknowledged |= (await sent(cluster)).acknowledged
        await eventually(lambda: cluster.leader() is not None)
        assert load.acknowledged <= set(await cluster.bodies(cluster.leader() or "", "Topic"))


@pytest.mark.parametrize("restarted", [False, True])
@in_virtual_time
async def test_it_begins_where_the_leaders_log_does_beside_traffic(restarted: bool) -> None:
    """Also where it has made its first file already, and got nothing for it yet."""
    async with GroupCluster(seed=12, settings={"mappedFileSizeCommitLog": "65536"}) as cluster:
        leader = await cluster.led_by()
        async with Producer("large", namesrv=cluster.namesrv_addr) as producer:
            for _ in range(120):
                await producer.send(Message("Large", bytes(2000)))
        store = cluster.members[leader].store
        for _ in range(2):
            assert await store.log.remove_first()
        load = Load(cluster)
        running = asyncio.create_task(load.run())
        wiped = next(name for name in cluster.names if name != leader)
        await cluster.kill(wiped, disk=True)
        if restarted:
            cluster.isolate(wiped)
            await cluster.begin(wiped)
            await cluster.members[wiped].store.log.prepare()
            await cluster.kill(wiped)
            cluster.simulation.net.heal()
        await cluster.begin(wiped)
        await eventually(lambda: cluster.driver(wiped).returning, 30)
        await eventually(lambda: not cluster.driver(wiped).returning, 30)
        assert cluster.members[wiped].store.log.start == store.log.start == 131072
        load.ended = True
        await running
        await cluster.alike()
        assert load.acknowledged <= set(await cluster.bodies(wiped, "Topic"))
        await cluster.kill(wiped)  # it knows of which term its log is, that has no beginning
        await cluster.begin(wiped)
        await eventually(lambda: cluster.driver(wiped).leader, 10)
        await cluster.alike()


@in_virtual_time
async def test_it_is_no_second_of_a_majority_before_that() -> None:
    """The leader has the only copy, besides the one that is empty: nothing more is acknowledged, and nobody elected."""
    async with GroupCluster(seed=6) as cluster:
        leader = await cluster.led_by()
        await sent(cluster)
        wiped, other = (name for name in cluster.names if name != leader)
        end = cluster.members[leader].store.log.end
        await cluster.kill(other)
        await cluster.kill(wiped, disk=True)
        await cluster.begin(wiped)
        await eventually(lambda: cluster.leader() is None, 10)
        await asyncio.sleep(20)
        assert cluster.leader() is None
        assert cluster.members[leader].store.log.end == end
        assert cluster.driver(wiped).returning
        assert cluster.members[wiped]._missing() is not None
        await cluster.begin(other)
        await eventually(lambda: cluster.leader() and not cluster.driver(wiped).returning, 30)
        await cluster.alike()


@in_virtual_time
async def test_two_without_disks_elect_nobody_over_the_one_that_has_its_own() -> None:
    async with GroupCluster(seed=7) as cluster:
        leader = await cluster.led_by()
        await sent(cluster)
        wiped = [name for name in cluster.names if name != leader]
        end = cluster.members[leader].store.log.end
        await cluster.kill(leader)
        for name in wiped:
            await cluster.kill(name, disk=True)
        for name in wiped:
            await cluster.begin(name)
        await asyncio.sleep(20)
        assert cluster.leader() is None
        assert "the group begins once every member was met" in str(cluster.members[wiped[0]]._missing())
        await cluster.begin(leader)
        await asyncio.sleep(20)
        assert cluster.leader() is None
        assert all(cluster.driver(name).returning for name in wiped)
        assert cluster.members[leader].store.log.end == end


@in_virtual_time
async def test_members_that_are_all_empty_are_a_new_group() -> None:
    async with GroupCluster(seed=8) as cluster:
        await cluster.led_by()
        await sent(cluster)
        for name in cluster.names:
            await cluster.kill(name, disk=True)
        for name in cluster.names:
            await cluster.begin(name)
        await cluster.led_by()
        assert (await sent(cluster)).acknowledged


@in_virtual_time
async def test_a_disk_that_another_one_has_taken_the_place_of_is_nobodys() -> None:
    async with GroupCluster(seed=9) as cluster:
        leader = await cluster.led_by()
        await sent(cluster)
        name = next(name for name in cluster.names if name != leader)
        await cluster.kill(name)
        old = cluster.simulation.nodes[name].disk.copied()
        await cluster.begin(name)
        await cluster.kill(name, disk=True)
        await cluster.begin(name)
        await eventually(lambda: not cluster.driver(name).returning and cluster.leader(), 30)
        await eventually(lambda: all(one in str(kept(cluster, leader, "members")["retired"]) for one in [name]))
        await cluster.kill(name)
        cluster.simulation.nodes[name].disk = old
        cluster.simulation.kill(cluster.simulation.nodes[name])
        await cluster.begin(name)
        await eventually(lambda: cluster.driver(name).parted, 10)
        assert "knows this member with a newer disk" in str(cluster.driver(name).parted)
        assert cluster.leader() == leader


@in_virtual_time
async def test_a_log_whose_folder_raft_is_gone_is_not_taken_for_the_groups() -> None:
    async with GroupCluster(seed=10) as cluster:
        leader = await cluster.led_by()
        await sent(cluster)
        name = next(name for name in cluster.names if name != leader)
        await cluster.kill(name)
        files = cluster.simulation.nodes[name].files
        for one in files.list("/store/raft"):
            files.unlink(f"/store/raft/{one}")
        for _ in range(2):  # another start does not have it forget
            await cluster.begin(name)
            await eventually(lambda: cluster.driver(name).parted, 10)
            assert "start it with an empty store" in str(cluster.driver(name).parted)
            assert cluster.members[name].store.log.end > 0
            await asyncio.sleep(1)
            await cluster.kill(name)


@in_virtual_time
async def test_a_member_that_was_away_for_longer_than_messages_are_kept_keeps_its_log_and_says_so() -> None:
    async with GroupCluster(seed=14, settings={"mappedFileSizeCommitLog": "65536"}) as cluster:
        leader = await cluster.led_by()
        await sent(cluster)
        await cluster.alike()
        away = next(name for name in cluster.names if name != leader)
        end = cluster.members[away].store.log.end
        await cluster.kill(away)
        async with Producer("large", namesrv=cluster.namesrv_addr) as producer:
            for _ in range(80):
                await producer.send(Message("Large", bytes(2000)))
        await asyncio.sleep(1)
        for app in cluster.members.values():
            assert await app.store.log.remove_first()
            assert app.store.log.start > end
        await asyncio.sleep(1)
        await cluster.begin(away)
        await eventually(lambda: cluster.driver(away).parted, 10)
        assert "lacks what the others have deleted already" in str(cluster.driver(away).parted)
        assert cluster.members[away].store.log.end == end


@pytest.mark.parametrize("seed", range(max(3, round(300 * _TORTURE))))
@in_virtual_time
async def test_lives(seed: int) -> None:
    load = await live(seed, power=bool(seed % 2), wipes=True)
    assert load.acknowledged


# -- planted bugs


def an_empty_disk_is_a_new_members(patch: pytest.MonkeyPatch) -> None:
    """A member that has lost its disk votes and counts as if it had promised nothing."""

    async def nothing(self: RaftDriver) -> None:
        """It is told, and goes on."""

    patch.setattr(RaftDriver, "returns", nothing)


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    an_empty_disk_is_a_new_members(monkeypatch)

    @in_virtual_time
    async def one_life() -> None:
        """What two of three had is on one disk, which is away when the other is lost."""
        async with GroupCluster(seed=11) as cluster:
            leader = await cluster.led_by()
            second, third = (name for name in cluster.names if name != leader)
            await cluster.kill(third)
            load = await sent(cluster)
            await cluster.kill(second, disk=True)
            await cluster.begin(second)
            await asyncio.sleep(0.3)
            await cluster.kill(leader)
            await cluster.begin(third)
            await asyncio.sleep(20)
            now = cluster.leader()
            assert now is None or load.acknowledged <= set(await cluster.bodies(now, "Topic"))

    with pytest.raises(AssertionError):
        one_life()
