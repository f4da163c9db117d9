"""Scenes about bytes that change under a running broker: what a reader is given then."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from rmq.broker.delivery.filtering import EVERYTHING, Filter
from rmq.broker.delivery.read import Batch, Reader, ReadLimits, Status
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import body_of, opened, put, small

__all__ = ["CHANGES", "Scene", "pulled", "scene"]

LOG = 64 << 10
QUEUE = 20_000
#: Messages of each queue.
COUNT = 60
_entry = struct.Struct(">qiq")


async def pulled(store: Store, queue: Queue, wants: Filter = EVERYTHING, *, most: int = 16) -> dict[int, bytes]:
    """What a consumer gets that reads a queue from its beginning to its end: bodies by the index it got them at."""
    reader = Reader(store, ReadLimits())
    found: dict[int, bytes] = {}
    offset = queue.min
    for _ in range(10 * COUNT):
        if offset >= queue.visible:
            return found
        batch = await _read(reader, queue, offset, most, wants)
        data = b"".join(batch.records)
        while data:  # as a client takes messages: one behind the other, by the size each says it has
            size = int.from_bytes(data[:4], "big")
            found[int.from_bytes(data[20:28], "big")] = body_of(data)
            data = data[size:]
        assert batch.next_offset > offset or batch.status is not Status.FOUND, "the queue stands still"
        offset = max(offset, batch.next_offset)
        assert batch.status is not Status.OFFSET_FOUND_NULL, "the queue stands still"
    raise AssertionError(f"{queue!r} is never read to its end: it stands at {offset}")


async def _read(reader: Reader, queue: Queue, offset: int, most: int, wants: Filter) -> Batch:
    batch = reader.at_once(queue, offset, most, wants.codes) if wants.sql is None else None
    if batch is not None:
        return batch
    scan = reader.scan(queue, offset, most, wants)
    try:
        waits_for = next(scan)
        while True:
            waits_for = scan.send(await waits_for)
    except StopIteration as end:
        found: Batch = end.value
        return found


@dataclass
class Scene:
    """Two topics of two queues whose messages have one size and came by turns."""

    simulation: Simulation
    machine: SimNode
    store: Store
    sent: dict[Queue, list[bytes]]

    def queue(self, topic: str, queue_id: int) -> Queue:
        queue = self.store.queues.get(topic, queue_id)
        assert queue is not None
        return queue

    def entry(self, queue: Queue, index: int) -> tuple[int, int, int]:
        """What is on disk."""
        file, at = self._entry_at(queue, index)
        found: tuple[int, int, int] = _entry.unpack(self.machine.disk.open(file).pread(20, at))
        return found

    def set_entry(self, queue: Queue, index: int, offset: int, size: int, code: int = 0) -> None:
        file, at = self._entry_at(queue, index)
        self.machine.disk.open(file).pwrite(_entry.pack(offset, size, code), at)

    def _entry_at(self, queue: Queue, index: int) -> tuple[str, int]:
        at = index * 20
        return f"{queue.files.directory}/{at - at % QUEUE:020d}", at % QUEUE

    def write_log(self, offset: int, data: bytes) -> None:
        """Change bytes of the log, which may go over files."""
        while data:
            room = LOG - offset % LOG
            self.machine.disk.open(f"/store/commitlog/{offset - offset % LOG:020d}").pwrite(data[:room], offset % LOG)
            offset, data = offset + room, data[room:]

    def flip(self, offset: int, bit: int) -> None:
        """Flip a bit of the log: bit 0 is the lowest of the byte at ``offset``."""
        file = self.machine.disk.open(f"/store/commitlog/{offset - offset % LOG:020d}")
        file.pwrite(bytes([file.pread(1, offset % LOG)[0] ^ 1 << bit]), offset % LOG)

    async def check(self, lost: dict[Queue, set[int]], wants: Filter = EVERYTHING) -> None:
        """Every consumer gets each message but the lost ones, and never anything else; twice."""
        for _ in range(2):
            for queue, bodies in self.sent.items():
                expected = {n: body for n, body in enumerate(bodies) if n not in lost.get(queue, ())}
                given = await pulled(self.store, queue, wants)
                assert given == expected, (queue, sorted(set(expected) ^ set(given)))


async def scene(
    *, hot: bool = True, count: int = COUNT, again: Callable[[Store], object] | None = None, **changes: object
) -> Scene:
    """A running broker's store, all of it on disk; opened anew, so that nothing of it is only in memory.

    :param hot: the page cache has it.
    """
    simulation = Simulation(7)
    machine = simulation.node("a")
    settings = small(
        **{"commit_log_file_size": LOG, "queue_file_size": QUEUE, "index_enable": False, "scrub_rate_mib": 0} | changes
    )  # fmt: skip
    store = await opened(machine.world, settings)
    names = [(topic, queue_id) for topic in ("A", "B") for queue_id in (0, 1)]
    for number in range(count):
        for topic, queue_id in names:
            queue = store.queues.get_or_create(topic, queue_id)
            store.append([put(queue, b"%s%d-%05d " % (topic.encode(), queue_id, number) * 10, tag="TagA")])
    await store.stop()
    store = await opened(machine.world, settings)
    made = Scene(simulation, machine, store, {})
    for topic, queue_id in names:
        queue = made.queue(topic, queue_id)
        made.sent[queue] = [b"%s%d-%05d " % (topic.encode(), queue_id, n) * 10 for n in range(count)]
    if hot:
        for file in store.log.segments:
            file.shared.file.pread(LOG, 0)
        for queue in store.queues:
            await store.queues.entries_cold(queue, 0, queue.next)
    else:
        machine.disk.evict("*")
    return made


def _swap(at: Scene) -> None:
    one, other = at.queue("A", 0), at.queue("B", 0)
    mine, others = at.entry(one, 30), at.entry(other, 30)
    at.set_entry(one, 30, *others)
    at.set_entry(other, 30, *mine)


def _duplicate(at: Scene) -> None:
    at.set_entry(at.queue("A", 0), 30, *at.entry(at.queue("B", 0), 30))


def _another_queue(at: Scene) -> None:
    at.set_entry(at.queue("A", 0), 30, *at.entry(at.queue("A", 1), 30))


def _another_index(at: Scene) -> None:
    at.set_entry(at.queue("A", 0), 30, *at.entry(at.queue("A", 0), 31))


def _behind_the_end(at: Scene) -> None:
    offset, size, code = at.entry(at.queue("A", 0), 30)
    at.set_entry(at.queue("A", 0), 30, offset + (1 << 40), size, code)


def _before_zero(at: Scene) -> None:
    offset, size, code = at.entry(at.queue("A", 0), 30)
    at.set_entry(at.queue("A", 0), 30, offset - (1 << 63), size, code)


def _other_size(at: Scene) -> None:
    offset, size, code = at.entry(at.queue("A", 0), 30)
    at.set_entry(at.queue("A", 0), 30, offset, size ^ 1 << 20, code)


def _huge(at: Scene) -> None:
    offset, size, code = at.entry(at.queue("A", 0), 30)
    at.set_entry(at.queue("A", 0), 30, offset, size ^ 1 << 30, code)


def _negative(at: Scene) -> None:
    offset, size, code = at.entry(at.queue("A", 0), 30)
    at.set_entry(at.queue("A", 0), 30, offset, size - (1 << 31), code)


def _within_a_record(at: Scene) -> None:
    offset, size, code = at.entry(at.queue("A", 0), 30)
    at.set_entry(at.queue("A", 0), 30, offset ^ 4, size, code)


def _zeros(at: Scene) -> None:
    for index in range(25, 40):
        at.set_entry(at.queue("A", 0), index, 0, 0)


def _first_and_last(at: Scene) -> None:
    for index in (0, 59):
        offset, size, code = at.entry(at.queue("A", 0), index)
        at.set_entry(at.queue("A", 0), index, offset ^ 1 << 41, size, code)


#: Ways in which entries of queue 0 of topic A, and perhaps of others, become wrong; their messages are in the log.
CHANGES: dict[str, Callable[[Scene], None]] = {
    "swap": _swap,
    "duplicate": _duplicate,
    "another queue": _another_queue,
    "another index": _another_index,
    "behind the end": _behind_the_end,
    "before zero": _before_zero,
    "other size": _other_size,
    "huge": _huge,
    "negative": _negative,
    "within a record": _within_a_record,
    "zeros": _zeros,
    "first and last": _first_and_last,
}
