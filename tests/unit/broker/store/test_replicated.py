"""Bytes of another broker's log: they move whatever messages that were sent move, wherever the network cut them."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest

from rmq.broker.store import catch_up
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.log.reader import LogReader
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, SimOffload, Simulation
from tests.support.scenes.store import LOG_SIZE, bodies, die, found_keys, opened, put, small, snapshot
from tests.support.virtual import eventually

#: More than half of it lies in the third file.
COUNT = 90


class Wire:
    """A master's log, and how much of it was given away."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sent = 0

    def next(self, size: int) -> tuple[int, bytes]:
        """Up to ``size`` bytes of one file."""
        start = self.sent
        log = self.store.log
        end = min(start + size, log.end, start - start % LOG_SIZE + LOG_SIZE)
        file = log.segment_of(start)
        assert file is not None
        data = file.file.pread(end - start, start - file.start)
        self.sent = end
        return start, data

    async def rest(self, slave: Store, size: int = 1 << 20) -> None:
        """Send what is left, and wait until it is in the slave's queues."""
        while self.sent < self.store.log.end:
            slave.append_raw(*self.next(size))
        await settled(slave)


async def settled(store: Store) -> None:
    """Whatever is whole is in queues, and on disk where it has to be."""
    await eventually(lambda: not store.dispatcher.behind)
    if store.settings.sync_flush:
        await eventually(lambda: store.durability.flushed == store.durability.appended)


async def master(count: int = COUNT, **changes: Any) -> Wire:
    store = await opened(Simulation(7).node("m").world, small(**changes))
    for n in range(count):
        queue = store.queues.get_or_create(f"T{n % 3}", n % 2)
        store.append(
            [put(queue, bytes([n]) * (200 + 5 * n), key=f"k{n}", tag="A" if n % 2 else "")], 1_000_000 + 10 * n
        )
    return Wire(store)


async def slave(world: World, **changes: Any) -> Store:
    store = await opened(world, small(**changes))
    store.log.gate |= Gate.SLAVE
    return store


def node() -> SimNode:
    return Simulation(9).node("s")


async def same(one: Store, other: Store) -> None:
    assert await snapshot(one) == await snapshot(other)
    for topic in ("T0", "T1", "T2"):
        keys = [f"k{n}" for n in range(COUNT)]
        assert await found_keys(one, topic, keys) == await found_keys(other, topic, keys)
    queues = [{(q.topic, q.id): (q.bytes_put, q.max_phys) for q in store.queues} for store in (one, other)]
    assert queues[0] == queues[1]
    marks = [
        (s.log.stamp, s.dispatcher.position, s.durability.appended, s.durability.visible, s.index.end if s.index else 0)
        for s in (one, other)
    ]
    assert marks[0] == marks[1]


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("pieces", [60, 700, 1 << 20])
def test_replicated_bytes_do_what_bytes_that_were_sent_do(pieces: int, sync_flush: bool) -> None:
    async def main() -> None:
        wire = await master(sync_flush=sync_flush)
        rng = random.Random(pieces)
        copy = await slave(node().world, sync_flush=sync_flush)
        while wire.sent < wire.store.log.end:
            copy.append_raw(*wire.next(rng.randint(1, pieces)))
            if rng.random() < 0.1:
                await asyncio.sleep(rng.random() / 100)
        await settled(copy)
        await settled(wire.store)
        assert copy.recovered.damages == copy._catch_up.reader.damages == []
        await same(wire.store, copy)
        await wire.store.stop()
        await copy.stop()

    run(main())


def test_what_is_in_memory_yet_is_dispatched_without_a_read_and_together() -> None:
    async def main() -> None:
        wire = await master(20)
        world = node().world
        copy = await slave(world)
        assert isinstance(world.offload, SimOffload)
        world.offload.seen.clear()
        dispatched: list[int] = []
        on_dispatched = copy.durability.on_dispatched

        def counted(end: int, touched: list[Queue]) -> None:
            dispatched.append(end)
            on_dispatched(end, touched)

        copy.durability.on_dispatched = counted  # type: ignore[method-assign]
        while wire.sent < wire.store.log.end:
            copy.append_raw(*wire.next(300))
            await asyncio.sleep(0)
        await settled(copy)
        assert dispatched == [copy.log.end]
        assert not any("pread" in name for name in world.offload.seen)
        await same(wire.store, copy)
        await wire.store.stop()
        await copy.stop()

    run(main())


@pytest.mark.parametrize(
    ("group", "farthest", "old"),
    [(False, 1 << 30, 3.0), (True, 1 << 30, 3.0), (False, 500, 3.0), (False, 1 << 30, 1e10)],
)
def test_a_backlog_that_comes_in_goes_before_the_queues_which_trail_within_bounds(
    monkeypatch: pytest.MonkeyPatch, group: bool, farthest: int, old: float
) -> None:
    """Parts of 300 bytes take 20 ms: 8 times as long lies between two of them, until no more comes in."""
    for name, value in (("_DENSE", 5_000), ("_PART", 300), ("_ENOUGH", 0), ("_FARTHEST", farthest), ("_OLD", old)):
        monkeypatch.setattr(catch_up, name, value)
    monkeypatch.setattr(catch_up, "_SHARE", 1 / 8)

    async def main() -> None:
        wire = await master(COUNT)
        copy = await slave(node().world)
        copy._catch_up._may_trail = not group
        loop = asyncio.get_running_loop()
        parts: list[tuple[float, int]] = []
        advance = copy.dispatcher.advance

        async def slow(reader: LogReader, limit: int, dispatched: Any = None) -> int:
            parts.append((loop.time(), limit))
            await asyncio.sleep(0.02)
            return await advance(reader, limit, dispatched)

        monkeypatch.setattr(copy.dispatcher, "advance", slow)
        while wire.sent < wire.store.log.end:
            copy.append_raw(*wire.next(200))
            await asyncio.sleep(0.01)
        came, position = loop.time(), copy.dispatcher.position
        await settled(copy)
        if group or old > 3:
            assert {limit for _, limit in parts} == {catch_up._STEP}
        elif farthest < 1000:
            assert position > copy.log.end - 2000
        else:
            trailing = [part for part in parts if part[1] == 300]
            ended = next(part for part in parts if part[0] > trailing[-1][0])
            rests = [after - before for (before, _), (after, _) in itertools.pairwise(trailing)]
            assert len(rests) >= 5
            assert rests == pytest.approx([0.16] * len(rests), abs=0.011)
            assert 300 * len(trailing) <= position < copy.log.end / 2
            assert ended == (pytest.approx(came, abs=0.05), catch_up._STEP)
        await same(wire.store, copy)
        await wire.store.stop()
        await copy.stop()

    run(main())


@pytest.mark.parametrize("killed", [False, True])
def test_a_slave_that_ends_while_its_queues_trail_has_all_in_them_when_it_is_a_master(
    monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    async def main() -> None:
        wire = await master(COUNT)
        simulation = Simulation(9)
        here = simulation.node("s")
        copy = await slave(here.world)
        copy.append_raw(*wire.next(2000))
        await asyncio.sleep(1)
        assert copy.dispatcher.position > 1000
        monkeypatch.setattr(copy._catch_up, "wake", lambda: None)
        while wire.sent < wire.store.log.end:
            copy.append_raw(*wire.next(2000))
        assert copy.dispatcher.behind > wire.store.log.end / 2
        world = here.world
        if killed:
            world = simulation.kill(here)
            await die(copy)
        else:
            await copy.stop()
        promoted = await opened(world, small())
        assert not promoted.dispatcher.behind
        await same(wire.store, promoted)
        await promoted.stop()
        await wire.store.stop()

    run(main())


def test_when_much_has_arrived_nothing_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "_GATHER", 3600.0)
    monkeypatch.setattr(catch_up, "_ENOUGH", 1000)

    async def main() -> None:
        wire = await master(20)
        copy = await slave(node().world)
        copy.append_raw(*wire.next(1000))
        await eventually(lambda: copy.dispatcher.position > 500)
        await copy.stop()

    run(main())


def test_with_sync_flush_they_are_visible_when_they_are_on_disk() -> None:
    async def main() -> None:
        wire = await master(2, sync_flush=True)
        copy = await slave(node().world, sync_flush=True)
        copy.flusher._busy = True  # no flush begins
        start, data = wire.next(1 << 20)
        copy.append_raw(start, data)
        await eventually(lambda: not copy.dispatcher.behind)
        queue = copy.queues.get("T0", 0)
        assert queue is not None
        assert (queue.next, queue.visible, copy.durability.visible) == (1, 0, 0)
        copy.flusher._busy = False
        copy.flusher.request()
        await settled(copy)
        assert (queue.visible, copy.durability.visible, copy.flusher.flushed) == (1, len(data), len(data))
        await wire.store.stop()
        await copy.stop()

    run(main())


def test_half_a_record_is_no_message_until_its_rest_comes() -> None:
    async def main() -> None:
        wire = await master(3)
        copy = await slave(node().world)
        copy.append_raw(*wire.next(wire.store.log.end - 30))
        await eventually(lambda: not copy._catch_up._busy)
        assert 0 < copy.dispatcher.behind < copy.log.end
        assert copy.queues.get("T2", 0) is None
        await wire.rest(copy)
        queue = copy.queues.get("T2", 0)
        assert queue is not None
        assert await bodies(copy, queue) == [bytes([2]) * 210]
        await wire.store.stop()
        await copy.stop()

    run(main())


def test_a_start_leaves_half_a_record_to_be_sent_again() -> None:
    async def main() -> None:
        wire = await master()
        machine = node()
        copy = await slave(machine.world)
        copy.append_raw(*wire.next(5000))
        await asyncio.sleep(1)
        half = copy.dispatcher.position
        assert half < 5000
        await copy.stop()
        copy = await slave(machine.world)
        assert copy.log.end == half
        wire.sent = half
        await wire.rest(copy, 3000)
        for queue in copy.queues:
            queue.bytes_put = wire.store.queues.get_or_create(queue.topic, queue.id).bytes_put  # since its start only
        await same(wire.store, copy)
        await wire.store.stop()
        await copy.stop()

    run(main())


def test_store_times_that_go_back_are_found_on_the_way() -> None:
    async def main() -> None:
        wire = await master(2)
        queue = wire.store.queues.get_or_create("T0", 0)
        step = wire.store.append([put(queue)], 500_000).start
        wire.store.append([put(queue)], 500_001)
        copy = await slave(node().world)
        await wire.rest(copy)
        assert wire.store.checkpoint.steps.offsets == copy.checkpoint.steps.offsets == [step]
        assert copy.log.stamp == 500_001
        await wire.store.stop()
        await copy.stop()

    run(main())


def test_a_log_may_begin_anywhere() -> None:
    async def main() -> None:
        wire = await master()
        begin = wire.sent = min(queue.max_phys for queue in wire.store.queues if queue.max_phys > LOG_SIZE)
        copy = await slave(node().world)
        await wire.rest(copy, 700)
        assert (copy.log.start, copy.log.end) == (begin, wire.store.log.end)
        for queue in copy.queues:
            whole = await bodies(wire.store, wire.store.queues.get_or_create(queue.topic, queue.id))
            assert queue.next == len(whole)
            assert await bodies(copy, queue) == whole[queue.min :]
        await wire.store.stop()
        await copy.stop()

    run(main())


def test_what_does_not_belong_there_is_refused() -> None:
    async def main() -> None:
        wire = await master(3)
        copy = await slave(node().world)
        copy.append_raw(*wire.next(300))
        with pytest.raises(StoreError, match="the log ends at 300"):
            copy.append_raw(400, b"x")
        with pytest.raises(StoreError, match="cross the end of a file"):
            copy.append_raw(300, bytes(LOG_SIZE))
        with pytest.raises(StoreError, match="is a slave"):
            copy.append([put(copy.queues.get_or_create("T", 0))])
        copy.log.close_gate(Gate.DISK_FULL)
        with pytest.raises(StoreError, match="disk is full"):
            copy.append_raw(300, b"x")
        assert copy.log.end == copy.durability.appended == 300
        copy.log.open_gate(Gate.DISK_FULL)
        await wire.rest(copy)
        copy.log.gate &= ~Gate.SLAVE
        await copy.stop()
        await wire.store.stop()

    run(main())


def test_messages_come_into_queues_that_have_all_that_was_replicated() -> None:
    """A slave that becomes master gives no queue number twice."""

    async def main() -> None:
        wire = await master()
        copy = await slave(node().world)
        copy.append_raw(*wire.next(1 << 20))
        copy.log.gate &= ~Gate.SLAVE
        queue = copy.queues.get_or_create("T0", 0)
        with pytest.raises(StoreError, match="in queues up to 0"):
            copy.append([put(queue)])
        await wire.rest(copy)
        last = copy.append([put(queue, b"mine")], 2_000_000).offsets[0][0]
        assert last == wire.store.queues.get_or_create("T0", 0).next
        assert (await bodies(copy, queue))[last] == b"mine"
        await copy.stop()
        await wire.store.stop()

    run(main())


@pytest.mark.parametrize("bit", [0, 3, 12, 40])
@pytest.mark.parametrize("pieces", [300, 1 << 20])
def test_a_bit_of_a_queue_offset_costs_its_message_alone(
    pieces: int, bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        wire = await master()
        queue = wire.store.queues.get_or_create("T1", 0)
        entry = await wire.store.queues.entries_cold(queue, 4, 1)
        victim = int.from_bytes(entry[:8], "big")
        file = wire.store.log.segment_of(victim)
        assert file is not None
        at = victim - file.start + 27 - bit // 8
        file.file.pwrite(bytes([file.file.pread(1, at)[0] ^ 1 << bit % 8]), at)
        copy = await slave(node().world)
        while wire.sent < wire.store.log.end:
            copy.append_raw(*wire.next(pieces))
            await asyncio.sleep(0.01)
        await settled(copy)
        for mine in copy.queues:
            whole = await bodies(wire.store, wire.store.queues.get_or_create(mine.topic, mine.id))
            if mine.topic == "T1" and mine.id == 0:
                del whole[4]
                assert mine.next == len(whole) + 1
            assert await bodies(copy, mine) == whole
        told = [record for record in caplog.records if record.levelname == "CRITICAL"]
        assert len(told) == 1
        assert f"commit log offset {victim}" in told[0].getMessage()
        assert [part.start for part in copy.damaged.parts] == [victim]
        await wire.store.stop()
        await copy.stop()

    run(main())
