"""The log is cut back: what was made of what is gone goes with it, and what comes instead might have been first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.broker.store.log.durability import FLUSH
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.queues.deletions import TopicDeleted
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation
from tests.support.scenes.store import LOG_SIZE, die, found_keys, opened, put, small, snapshot
from tests.support.virtual import eventually

COUNT = 120


def send(store: Store, numbers: range, *, body: int = 0, at: int = 1_000_000) -> list[int]:
    """Commit-log offsets of messages over some queues; half of them have two keys in common."""
    starts = []
    for n in numbers:
        queue = store.queues.get_or_create(f"T{n % 3}", n % 2)
        message = put(queue, bytes([body or n]) * (100 + 3 * n), key=f"k{n % 30}", tag="A" if n % 2 else "")
        starts.append(store.append([message], at + 10 * n).start)
    return starts


async def seen(store: Store) -> dict[str, Any]:
    """What clients see, and how far everything is."""
    found = await snapshot(store)
    for topic in ("T0", "T1", "T2"):
        found[topic] = await found_keys(store, topic, [f"k{n}" for n in range(30)])
    assert store.index is not None
    durable = store.durability
    found["marks"] = (store.log.stamp, store.dispatcher.position, durable.appended, durable.visible)
    found["queues"] = sorted((q.topic, q.id, q.max_phys) for q in store.queues if q.next)
    assert store.index.end[1] < max(1, store.log.end)
    assert durable.flushed <= store.flusher.flushed <= store.log.end
    return found


def world(seed: int = 1) -> World:
    return Simulation(seed).node("a").world


@pytest.mark.parametrize("keep", [0, 1, 40, 90, 119])
@pytest.mark.parametrize("written", [False, True])
def test_a_cut_log_is_as_if_the_rest_had_never_been(keep: int, written: bool) -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        store, other = await opened(machine.world, small()), await opened(world(2), small())
        starts = send(store, range(COUNT))
        if written:
            await store.force()
        await store.truncate(starts[keep])
        send(other, range(keep))
        assert await seen(store) == await seen(other)
        # What comes instead goes where the other was.
        for one in (store, other):
            send(one, range(keep, keep + 40), body=7)
        expected = await seen(other)
        assert await seen(store) == expected
        await store.stop()
        store = await opened(machine.world, small())
        assert store.recovered.damages == []
        assert await seen(store) == expected
        await store.stop()
        await other.stop()

    run(main())


def test_a_kill_right_after_a_cut_brings_nothing_back() -> None:
    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        store, other = await opened(machine.world, small()), await opened(world(2), small())
        starts = send(store, range(COUNT))
        await store.force()
        await store.truncate(starts[50])
        send(other, range(50))
        for one in (store, other):
            send(one, range(50, 60), body=7)
        killed, store = store, await opened(simulation.kill(machine), small())
        await die(killed)
        assert await seen(store) == await seen(other)
        await store.stop()
        await other.stop()

    run(main())


@pytest.mark.parametrize("keep", [50, 0])
def test_what_was_cut_off_does_not_come_back_when_the_power_goes(keep: int) -> None:
    """It was on the disk, and the group has other messages there by then."""

    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        store = await opened(machine.world, small())
        starts = send(store, range(COUNT))
        await store.force()
        await store.truncate(starts[keep])
        machine.disk.power_cut()
        killed, store = store, await opened(simulation.kill(machine), small())
        await die(killed)
        assert store.log.end == starts[keep]
        await store.stop()

    run(main())


def test_a_later_message_is_not_taken_for_flushed() -> None:
    """The bytes that were there before the cut were on disk; those that come instead are not."""

    async def main() -> None:
        store = await opened(world(), small(sync_flush=True))
        starts = send(store, range(40))
        await eventually(lambda: store.durability.flushed == store.log.end)
        await store.truncate(starts[10])
        assert store.flusher.flushed == store.durability.flushed == store.durability.visible == starts[10]
        store.flusher._busy = True  # no flush begins
        queue = store.queues.get_or_create("T0", 0)
        span = store.append([put(queue)])
        answers = store.durability.hold(span.end, FLUSH, 1e9, 1e9, [("conn", b"ok")], lambda code: [])
        assert answers == []
        assert queue.visible < queue.next
        store.flusher._busy = False
        await store.stop()

    run(main())


def test_a_flush_that_is_under_way_says_nothing_of_what_came_after_the_cut() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await opened(machine.world, small(sync_flush=True))
        starts = send(store, range(10))
        await asyncio.sleep(0)  # a flush of these begins
        assert store.flusher._busy
        store.flusher.log_ends(starts[2])
        store.durability.log_ends(starts[2])
        await eventually(lambda: store.flusher.flushed == starts[2], step=0.0001)
        await store.tasks.close()

    run(main())


def test_who_waits_for_what_is_gone_is_told_so() -> None:
    async def main() -> None:
        sent: list[Any] = []
        store = Store(world(), small(sync_flush=True), send=sent.extend)
        await store.load()
        await store.start()
        queue = store.queues.get_or_create("T", 0)
        store.flusher._busy = True
        ends = [store.append([put(queue)]).end for _ in range(2)]
        for number, end in enumerate(ends):
            store.acks.hold(
                end, [("conn", b"ok %d" % number)], lambda code, n=number: [("conn", b"%d: %d" % (n, code))]
            )
        await store.truncate(ends[0])
        assert sent == [("conn", b"1: 10")]
        store.flusher._busy = False
        store.flusher.request()
        await eventually(lambda: len(sent) == 2)
        assert sent[1] == ("conn", b"ok 0")
        await store.stop()

    run(main())


def test_nothing_is_appended_while_the_log_is_cut() -> None:
    async def main() -> None:
        store = await opened(world(), small())
        starts = send(store, range(40))
        cut = asyncio.create_task(store.truncate(starts[5]))
        await asyncio.sleep(0)
        for append in (lambda: send(store, range(1)), lambda: store.append_raw(store.log.end, b"x")):
            with pytest.raises(StoreError, match="is being cut back"):
                append()
        await cut
        assert not store.log.gate
        with pytest.raises(StoreError, match="cannot be cut at 99999"):
            await store.truncate(99_999)
        await store.stop()

    run(main())


def test_a_topic_that_was_deleted_behind_the_cut_has_its_new_messages() -> None:
    async def main() -> None:
        store = await opened(world(), small())
        starts = send(store, range(40))
        store.delete_topic("T0", existed=True)
        await store.deletions.saved()
        await store.truncate(starts[6])
        with pytest.raises(TopicDeleted):
            store.deletions.check_alive("T0", starts[3])
        queue = store.queues.get_or_create("T0", 0)
        span = store.append([put(queue, b"new")])
        store.deletions.check_alive("T0", span.start)
        await store.stop()

    run(main())


def test_half_a_record_that_was_replicated_is_cut_off() -> None:
    async def main() -> None:
        source, store = await opened(world(2), small()), await opened(world(), small())
        starts = send(source, range(20))
        store.log.gate |= Gate.SLAVE
        data = source.log.read(0, starts[9] + 50) or b""
        store.append_raw(0, data)
        await eventually(lambda: store.dispatcher.position == starts[9])
        await store.truncate(starts[9] + 20)
        await store.truncate(starts[9])
        store.append_raw(starts[9], source.log.read(starts[9], source.log.end - starts[9]) or b"")
        await eventually(lambda: not store.dispatcher.behind)
        assert await seen(store) == await seen(source)
        await source.stop()
        await store.stop()

    run(main())


def test_what_is_replicated_in_place_of_what_was_cut_is_found_by_its_keys() -> None:
    """A master of before is a slave now: its own last messages go, and the other's come."""

    async def main() -> None:
        machine = Simulation(1).node("a")
        source, store = await opened(world(2), small()), await opened(machine.world, small())
        starts = send(store, range(40))
        await store.stop()
        store = await opened(machine.world, small())
        send(source, range(10))
        send(source, range(10, 60), body=7)
        await store.truncate(starts[10])
        store.log.gate |= Gate.SLAVE
        at = starts[10]
        while at < source.log.end:
            data = source.log.read(at, min(source.log.end, at - at % LOG_SIZE + LOG_SIZE) - at) or b""
            store.append_raw(at, data)
            at += len(data)
        await eventually(lambda: not store.dispatcher.behind)
        assert await seen(store) == await seen(source)
        await source.stop()
        await store.stop()

    run(main())


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("keep", [0, 50, 119])
def test_an_index_that_is_not_checked_yet_loses_the_keys_of_what_is_cut(keep: int, clean: bool) -> None:
    """A leader of before hears where its log ends as soon as it is there again, and its index is looked at later."""

    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        late = small(index_at_start=-1)
        store, other = await opened(machine.world, small()), await opened(world(2), small())
        starts = send(store, range(COUNT))
        await store.force()
        if clean:
            await store.stop()
            store = await opened(machine.world, late, start=False)
        else:
            killed, store = store, await opened(simulation.kill(machine), late, start=False)
            await die(killed)
        await store.truncate(starts[keep])
        await store.start()
        send(other, range(keep))
        for one in (store, other):
            send(one, range(keep + 7, COUNT + 7), body=7)  # other keys, at other places
        await eventually(lambda: store.upkeep.indexed)
        assert await seen(store) == await seen(other)
        await store.stop()
        await other.stop()

    run(main())


@pytest.mark.parametrize("power", [False, True], ids=["killed", "without power"])
def test_a_kill_after_a_cut_brings_no_keys_back_of_what_was_cut(power: bool) -> None:
    """What has come instead has not been written to the index yet, and has its place where the old entries were."""

    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        store, other = await opened(machine.world, small()), await opened(world(2), small())
        starts = send(store, range(COUNT))
        assert store.index is not None
        await store.index.writer.write()
        await store.truncate(starts[101])
        send(other, range(101))
        for one in (store, other):
            send(one, range(108, COUNT + 7), body=7)
        store.flusher.request()
        await eventually(lambda: store.flusher.flushed == store.log.end)
        killed = store
        if power:
            machine.disk.power_cut()
        store = await opened(simulation.kill(machine), small())
        await die(killed)
        assert await seen(store) == await seen(other)
        await store.stop()
        await other.stop()

    run(main())
