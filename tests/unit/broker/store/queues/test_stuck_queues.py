"""A queue that the disk does not take costs itself: told once, kept in memory up to a bound, written when it can be."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from rmq.broker.store.queues import stuck
from rmq.broker.store.queues import writer as queue_writer
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import bodies, die, opened, put, small

FAULTS = [
    ("open", errno.EIO),
    ("open", errno.EACCES),
    ("pwrite", errno.EIO),
    ("pwrite", errno.EUCLEAN),
    ("allocate", errno.EIO),
    ("mkdir", errno.ENOTDIR),
]
BAD = "*/consumequeue/Bad/*"
UNITS = {"ext_enable": True, "ext_file_size": 4_096}


class Scene:
    """A store with one queue that cannot be written, and others."""

    def __init__(self, machine: SimNode, store: Store) -> None:
        self.machine = machine
        self.store = store
        self.bad = store.queues.get_or_create("Bad", 0)
        self.good = [store.queues.get_or_create("Good", number) for number in range(4)]

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            for queue in (self.bad, *self.good):
                self.store.append([put(queue, queue.topic.encode())])

    def on_disk(self, queue: Queue) -> int:
        """How many entries of a queue were written."""
        return queue.tail_from


async def scene(simulation: Simulation | None = None, **changes: object) -> Scene:
    machine = (simulation or Simulation(3)).node("a")
    return Scene(machine, await opened(machine.world, small(**changes)))


@pytest.mark.parametrize(("action", "number"), FAULTS)
def test_the_others_are_written_and_nobody_is_refused(
    action: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        made = await scene()
        store = made.store
        made.machine.disk.fail(action, number, BAD, count=-1)
        for _ in range(120):
            made.send()
            await asyncio.sleep(1)
        assert store.log.gate == 0
        assert [made.on_disk(queue) for queue in made.good] == [120] * 4
        assert len(made.bad.tail) == 120 * 20
        assert len(await bodies(store, made.bad)) == 120
        told = [line for line in caplog.messages if "the entries of Bad-0 cannot be written" in line]
        assert len(told) == 1
        assert "/store/consumequeue/Bad/0" in told[0]
        made.machine.disk.heal()
        await asyncio.sleep(3)
        assert not made.bad.tail
        assert "the entries of Bad-0 are on disk again" in caplog.text
        await store.stop()
        assert made.on_disk(made.bad) == 120
        store = await opened(made.machine.world, small())
        assert store.recovered.clean
        await store.stop()

    run(main())


def test_many_that_wait_keep_none_of_the_others_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the longest waiting ones, and as many as are written in an interval."""
    monkeypatch.setattr(queue_writer, "_SMALL_AT_ONCE", 3)

    async def main() -> None:
        made = await scene()
        made.machine.disk.fail("open", errno.EIO, BAD, count=-1)
        for number in range(6):
            made.store.append([put(made.store.queues.get_or_create("Bad", number))])
        await asyncio.sleep(3)
        made.store.append([put(made.good[0])])
        await asyncio.sleep(20)
        assert not made.good[0].tail
        await made.store.stop()

    run(main())


def test_the_checkpoint_stays_before_what_is_not_written() -> None:
    async def main() -> None:
        made = await scene()
        store = made.store
        made.send()
        await asyncio.sleep(1)
        await store.force()
        before = store.checkpoint.logics
        assert before > 0
        made.machine.disk.fail("pwrite", errno.EIO, BAD, count=-1)
        await asyncio.sleep(5)
        made.send()
        await asyncio.sleep(120)
        made.send()
        await store.flusher.flush_all()
        await store.force()
        assert store.checkpoint.logics == before
        assert store.checkpoint.physic == store.log.stamp
        assert [made.on_disk(queue) for queue in made.good] == [3] * 4
        made.machine.disk.heal()
        await store.force()
        assert store.checkpoint.logics == store.log.stamp
        await store.stop()

    run(main())


def test_a_stop_brings_everything_else_to_disk_and_the_next_start_has_all() -> None:
    async def main() -> None:
        made = await scene()
        made.machine.disk.fail("open", errno.EIO, BAD, count=-1)
        made.send(3)
        assert not await made.store.stop()
        assert [made.on_disk(queue) for queue in made.good] == [3] * 4
        assert made.store.checkpoint.physic == made.store.log.stamp
        made.machine.disk.heal()
        store = await opened(made.machine.world, small())
        assert not store.recovered.clean
        queue = store.queues.get("Bad", 0)
        assert queue is not None
        assert await bodies(store, queue) == [b"Bad"] * 3
        await store.stop()

    run(main())


def test_a_start_that_fills_many_queues_passes_over_one_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq.broker.store.start.filling._PENDING", 40)

    async def main() -> None:
        simulation = Simulation(3)
        made = await scene(simulation)
        made.send(5)
        world = simulation.kill(made.machine)
        await die(made.store)
        made.machine.disk.fail("open", errno.EIO, BAD, count=-1)
        again = Scene(made.machine, await opened(world, small()))
        assert len(await bodies(again.store, again.bad)) == 5
        again.send()
        await asyncio.sleep(3)
        assert [again.on_disk(queue) for queue in again.good] == [6] * 4
        await again.store.stop()

    run(main())


def test_messages_for_it_alone_are_refused_when_too_many_entries_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stuck, "_MOST_WAITING", 200)
    monkeypatch.setattr(stuck, "_MOST_TOGETHER", 300)

    async def main() -> None:
        made = await scene()
        store = made.store
        made.machine.disk.fail("pwrite", errno.EIO, BAD, count=-1)
        made.send(9)
        await asyncio.sleep(2)
        assert not store.queues.full
        made.send()
        await asyncio.sleep(3)
        assert list(store.queues.full) == [made.bad]
        assert "Bad-0 takes no messages until its entries can be written: 10 of them" in caplog.text
        # All of them together have a bound, too: with a second one each has half of it.
        other = store.queues.get_or_create("Bad", 1)
        store.append([put(other) for _ in range(7)])
        await asyncio.sleep(3)
        assert set(store.queues.full) == {made.bad}
        store.append([put(other)])
        await asyncio.sleep(3)
        assert set(store.queues.full) == {made.bad, other}
        store.queues.drop_queue(other)
        assert list(store.queues.full) == [made.bad]
        made.machine.disk.heal()
        await asyncio.sleep(3)
        assert not store.queues.full
        await store.stop()

    run(main())


@pytest.mark.parametrize("part", ["consumequeue", "consumequeue_ext"])
def test_a_file_that_cannot_be_forced_keeps_no_other_from_it(part: str) -> None:
    async def main() -> None:
        made = await scene(**UNITS)
        store = made.store
        made.send()
        await store.writer.write(everything=True)
        disk = made.machine.disk
        disk.fail("datasync", errno.EIO, f"*/{part}/Bad/*", count=-1)
        disk.fail("sync_dir", errno.EIO, "*/consumequeue/Bad/0", count=-1)
        with pytest.raises(OSError, match="Input/output error"):
            await store.writer.sync()
        assert [key[0].split("/")[-2:] for key in store.writer._unsynced] == [["Bad", "0"]]
        assert list(store.writer._unsynced_directories) == ["/store/consumequeue/Bad/0"]
        disk.heal()
        await store.writer.sync()
        assert not store.writer._unsynced
        await store.stop()

    run(main())


def test_units_that_cannot_be_written_cost_their_queue() -> None:
    async def main() -> None:
        made = await scene(**UNITS)
        made.machine.disk.fail("pwrite", errno.EIO, "*/consumequeue_ext/Bad/*", count=-1)
        made.send()
        await asyncio.sleep(3)
        assert [made.on_disk(queue) for queue in (made.bad, *made.good)] == [0, 1, 1, 1, 1]
        made.machine.disk.heal()
        await asyncio.sleep(3)
        assert made.on_disk(made.bad) == 1
        await made.store.stop()

    run(main())
