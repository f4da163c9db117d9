"""When a member takes messages, counts what it has, and is a master: not a moment too early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.aio import Message, Producer
from rmq.broker.raft.wire import Hello, listens
from rmq.broker.replication.wire import UnitDecoder
from rmq.broker.store.dispatcher import Dispatcher
from rmq.raft.messages import Append
from rmq.raft.position import Position
from rmq.testing.simworld import SimOffload
from tests.support.raft.brokers import GroupCluster
from tests.support.raft.strangers import PORT, Line, call, fill, said_by, term
from tests.support.virtual import eventually, in_virtual_time


def offload(cluster: GroupCluster, name: str) -> SimOffload:
    found = cluster.simulation.nodes[name].world.offload
    assert isinstance(found, SimOffload)
    return found


@in_virtual_time
async def test_a_leader_takes_messages_once_its_log_is_committed_and_its_services_run() -> None:
    async with GroupCluster(seed=1) as cluster:
        seen: list[tuple[str, bool]] = []
        before = await cluster.led_by()
        for name in cluster.names:
            driver = cluster.driver(name)

            def look(name: str = name, driver: Any = driver) -> None:
                if driver.leads is not None and not seen:
                    seen.append((name, driver.takes_messages))
                    cluster.isolate(name)  # what it says of its log comes to nobody

            driver.on_change.append(look)
        await fill(cluster)
        await cluster.kill(before)  # it has told nobody that the last of them is committed
        await eventually(lambda: seen)
        ((first, took),) = seen
        driver = cluster.driver(first)
        assert driver.node is not None
        assert driver.node.commit < cluster.members[first].store.log.end
        for _ in range(8):
            await asyncio.sleep(0.1)
            assert driver.leads is not None
            assert (driver.serves, driver.takes_messages) == (None, False)
            assert cluster.members[first].roles.role.name == "slave"
        assert not took
        cluster.simulation.net.heal()
        await cluster.led_by()


@in_virtual_time
async def test_and_once_all_of_it_is_in_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    held = True
    done = Dispatcher.done.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Dispatcher, "done", property(lambda self: not held and done(self)))
    async with GroupCluster(seed=2) as cluster:
        await eventually(lambda: any(cluster.driver(name).leads for name in cluster.names))
        await asyncio.sleep(2)
        assert cluster.leader() is None
        held = False
        await cluster.led_by(2)


@in_virtual_time
async def test_a_leader_that_gives_the_lead_away_takes_no_messages_meanwhile() -> None:
    async with GroupCluster(seed=3) as cluster:
        leader = await cluster.led_by()
        heir = next(name for name in cluster.names if name != leader)
        cluster.isolate(heir)
        cluster.driver(leader).transfer(heir)
        assert not cluster.driver(leader).takes_messages
        await asyncio.sleep(0.5)
        assert not cluster.driver(leader).takes_messages
        await eventually(lambda: cluster.driver(leader).takes_messages, 2)
        assert cluster.driver(leader).leads == term(cluster)


@in_virtual_time
@pytest.mark.parametrize("leads", [True, False])
async def test_with_sync_flush_the_disks_of_a_majority_are_waited_for(leads: bool) -> None:
    """One follower is away; the disk of the other one is slow, or the leader's."""
    async with GroupCluster(seed=4, settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        leader = await cluster.led_by()
        away, other = (name for name in cluster.names if name != leader)
        await fill(cluster, 3)
        await cluster.alike()
        await cluster.kill(away)
        follower, start = cluster.members[other].store, cluster.members[other].store.log.end
        offload(cluster, leader if leads else other).delay = lambda: 3.0
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            sending = asyncio.ensure_future(producer.send(Message("Topic", b"waits"), timeout=20))
            await asyncio.sleep(2)
            assert follower.log.end > start
            node = cluster.driver(leader).node
            assert node is not None
            assert (node.commit, follower.durability.visible) == (start, start)
            assert not sending.done()
            await eventually(lambda: node.commit == follower.log.end, 10)
            await sending


class Impostor(Line):
    """Says that it understands what is told of spans."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.say(listens())


@in_virtual_time
async def test_who_has_not_shown_who_it_is_is_told_of_no_span() -> None:
    async with GroupCluster(seed=5) as cluster:
        leader = await cluster.led_by()
        dead = next(name for name in cluster.names if name != leader)
        await fill(cluster)
        await cluster.kill(dead)
        lines: list[Line] = []

        def taken() -> Line:
            lines.append(Impostor())
            return lines[-1]

        listener = await cluster.simulation.net.node(cluster.addresses[dead]).listen(taken, "", PORT)
        await eventually(lambda: any(line.got for line in lines))
        await asyncio.sleep(1)
        await fill(cluster)
        await asyncio.sleep(1)
        kinds = {body[0] for line in lines for _, body in UnitDecoder().units(line.got) if body}
        assert 0 in kinds
        assert 9 not in kinds
        await listener.close()


@in_virtual_time
async def test_the_end_of_one_connection_of_a_leader_is_none_of_the_leader() -> None:
    async with GroupCluster(seed=6) as cluster:
        leader = await cluster.led_by()
        follower = next(name for name in cluster.names if name != leader)
        lost: list[str] = []
        cluster.driver(follower).lost = lost.append  # type: ignore[method-assign]
        line = await call(cluster.simulation.node("x"), cluster, follower, said_by(cluster, leader, follower))
        await asyncio.sleep(1)
        assert not line.ended
        line.transport.abort()  # type: ignore[union-attr]
        await asyncio.sleep(1)
        assert lost == []
        await cluster.kill(leader)
        await eventually(lambda: lost == [leader], 2)


@in_virtual_time
async def test_one_member_has_few_connections() -> None:
    async with GroupCluster(seed=7) as cluster:
        leader = await cluster.led_by()
        other = next(name for name in cluster.names if name != leader)
        node, hello = cluster.simulation.node("x"), said_by(cluster, other, leader)
        assert Hello.decode(hello[12:]).source == other
        lines = [await call(node, cluster, leader, hello) for _ in range(20)]
        await asyncio.sleep(0.2)
        assert sum(not line.ended for line in lines) <= 5
        await fill(cluster)
        await cluster.alike()
        assert cluster.leader() == leader


@in_virtual_time
async def test_nothing_is_heard_of_a_lost_disk_behind_a_word_of_the_newer_one() -> None:
    async with GroupCluster(seed=8) as cluster:
        leader = await cluster.led_by()
        other = next(name for name in cluster.names if name != leader)
        line = await call(cluster.simulation.node("x"), cluster, leader, said_by(cluster, other, leader))
        await asyncio.sleep(0.5)
        assert not line.ended
        await cluster.kill(other, disk=True)
        await cluster.begin(other)
        await eventually(lambda: line.ended, 5)
        await eventually(lambda: not cluster.driver(other).returning, 10)


@in_virtual_time
async def test_what_was_noted_as_committed_is_taken_back_by_nobody_after_a_start_either() -> None:
    """The node finds out anew what is committed; what this member has shown it knows from its disk."""
    async with GroupCluster(seed=9) as cluster:
        leader = await cluster.led_by()
        other = next(name for name in cluster.names if name != leader)
        await fill(cluster)
        await cluster.alike()
        await asyncio.sleep(2)  # it is noted
        end, last = cluster.members[other].store.log.end, cluster.driver(other).log.known
        assert end == last
        await cluster.kill(other, power=True)
        cluster.isolate(other)
        await cluster.begin(other)
        await asyncio.sleep(0.1)
        source = next(name for name in cluster.names if name not in (other, leader))
        driver = cluster.driver(other)
        assert driver.node is not None
        assert driver.node.commit == 0
        place = Position(driver.node.path.last.term, end // 2)
        driver.step(Append(place.term + 1, source, place, Position(place.term + 1, place.end), 0))
        await eventually(lambda: driver.parted)
        assert f"takes back what is committed: the log from {place} up to {end}" in str(driver.parted)
        assert cluster.members[other].store.log.end == end


async def away_for_large_messages(cluster: GroupCluster) -> str:
    """A member that was away while messages of more than a span were sent, and begins to catch up."""
    leader = await cluster.led_by()
    away = next(name for name in cluster.names if name != leader)
    await cluster.kill(away)
    async with Producer("large", namesrv=cluster.namesrv_addr) as producer:
        for _ in range(4):
            await producer.send(Message("Topic", cluster.simulation.random.randbytes(1_500_000)))
    await cluster.begin(away)
    return away


@in_virtual_time
async def test_what_is_committed_within_a_record_is_seen_with_the_rest_of_it() -> None:
    """A member that catches up hears of more than it has, and its spans end within records."""
    async with GroupCluster(seed=10) as cluster:
        away = await away_for_large_messages(cluster)
        seen: list[int] = []
        cluster.driver(away).log.on_committed.append(seen.append)
        await cluster.alike()
        store = cluster.members[away].store
        ends = {queue.max_phys for queue in store.queues}
        for queue in store.queues:
            data = await store.queues.entries_cold(queue, queue.min, queue.next - queue.min)
            places = [(data[at : at + 8], data[at + 8 : at + 12]) for at in range(0, len(data), 20)]
            ends |= {int.from_bytes(offset, "big") + int.from_bytes(size, "big") for offset, size in places}
        assert len(seen) > 3
        assert set(seen) <= ends


@in_virtual_time
async def test_who_begins_anew_within_a_record_has_the_whole_ones_before_it() -> None:
    """It is elected for these, and counted for these."""
    async with GroupCluster(seed=11) as cluster:
        away = await away_for_large_messages(cluster)
        driver, store = cluster.driver(away), cluster.members[away].store
        append, refused = store.append_raw, []

        def refuses(offset: int, data: bytes, **named: Any) -> None:
            if offset >= 1 << 20:
                refused.append(offset)
                store.append_raw = append  # type: ignore[method-assign]
                cluster.isolate(away)
                raise OSError(5, "Input/output error")
            append(offset, data, **named)

        store.append_raw = refuses  # type: ignore[method-assign]
        await eventually(lambda: refused and driver.node is None, 5)
        (within,) = refused
        assert store.log.end == within
        await eventually(lambda: driver.node, 3)
        assert driver.node is not None
        assert store.log.end == driver.node.path.end < within
        cluster.simulation.net.heal()
        await cluster.alike()
