"""How a member begins anew after a failure, and that one which had to stop does not."""

from __future__ import annotations

import asyncio

import pytest

from rmq.aio import Message as Sent
from rmq.aio import Producer
from rmq.protocol.errors import StoreError
from rmq.raft.messages import Append, Message
from rmq.raft.position import Position
from rmq.testing.simworld import SimOffload
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time


@in_virtual_time
@pytest.mark.parametrize("when", ["before", "while"])
async def test_a_member_that_has_to_stop_does_not_begin_anew_after_a_failure(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        driver = cluster.driver(next(name for name in cluster.names if name != leader))
        begin, begins = driver.log.begin, asyncio.Event()

        async def slowly() -> object:
            begins.set()
            path = await begin()
            await asyncio.sleep(1)
            return path

        monkeypatch.setattr(driver.log, "begin", slowly)
        driver._fail(StoreError("the disk"))
        if when == "while":
            await begins.wait()
        driver.part("another disk has taken its place")
        await asyncio.sleep(10)
        assert driver.node is None
        assert driver.parted == "another disk has taken its place"
        assert begins.is_set() == (when == "while")  # else its log is left as it is


@in_virtual_time
async def test_a_member_begins_anew_after_a_failure() -> None:
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        driver = cluster.driver(next(name for name in cluster.names if name != leader))
        driver._fail(StoreError("the disk"))
        assert driver.node is None
        await eventually(lambda: driver.leader == leader, 10)


@in_virtual_time
async def test_what_a_node_was_about_to_say_when_it_ended_nobody_hears() -> None:
    """It may have said that it has what it takes back when it begins anew."""
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        driver = cluster.driver(next(name for name in cluster.names if name != leader))
        node, said = driver.node, list[Message]()
        assert node is not None
        driver._answering._send = lambda to, message: said.append(message)
        last = node.path.last
        for ends in (False, True):
            said.clear()
            driver.step(Append(node.term, leader, last, last, node.commit))
            if ends:
                driver._fail(StoreError("the disk"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(said) == (0 if ends else 1)


@in_virtual_time
async def test_what_waits_behind_the_disk_when_a_node_ends_is_not_done() -> None:
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        name = next(name for name in cluster.names if name != leader)
        driver, offload = cluster.driver(name), cluster.simulation.nodes[name].world.offload
        assert isinstance(offload, SimOffload)
        cluster.isolate(name)
        node, end = driver.node, driver._commit_log.end
        assert node is not None
        offload.delay = lambda: 0.5
        after = Position(node.term + 1, end + 100)
        driver.step(Append(node.term + 1, leader, node.path.last, after, node.commit, bytes(100)))
        assert driver._effects
        driver._fail(StoreError("the disk"))
        assert not driver._effects
        await asyncio.sleep(0.9)  # the vote is kept, and the term is not begun
        assert (driver._promises.term, driver.log.known, driver._commit_log.end) == (after.term, end, end)


@in_virtual_time
async def test_what_is_not_on_the_disk_is_not_counted_by_who_begins_anew_either() -> None:
    async with GroupCluster(seed=4, settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        leader = await cluster.led_by()
        name = next(name for name in cluster.names if name != leader)
        driver, store = cluster.driver(name), cluster.members[name].store
        offload = cluster.simulation.nodes[name].world.offload
        assert isinstance(offload, SimOffload)
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Sent("Topic", b"first"))
            await cluster.alike()
            offload.delay = lambda: 5.0
            await producer.send(Sent("Topic", b"the two others have it on their disks"))
        await eventually(lambda: store.log.end == cluster.members[leader].store.log.end)
        driver._fail(StoreError("the disk"))
        await asyncio.sleep(2)
        assert (driver.node, store.flusher.flushed < store.log.end) == (None, True)
        await eventually(lambda: driver.leader == leader, 10)
        assert store.flusher.flushed == store.log.end


@in_virtual_time
async def test_a_leader_that_fails_is_no_master_any_more() -> None:
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        driver, roles = cluster.driver(leader), cluster.members[leader].roles
        assert roles.role.name != "slave"
        driver._fail(StoreError("the disk"))
        assert (driver.leads, driver.leader, driver.takes_messages) == (None, None, False)
        await eventually(lambda: roles.role.name == "slave", 0.9)
        await cluster.led_by()
