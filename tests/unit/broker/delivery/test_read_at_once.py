"""A backlog read at once is what a scan finds, however its records lie in the log and whatever of it is in memory."""

from __future__ import annotations

import random
import struct
from itertools import pairwise, product

import pytest

from rmq.broker.delivery.comparison import runs_of
from rmq.broker.delivery.filtering import EVERYTHING, Filter
from rmq.broker.delivery.read import Batch, Reader, ReadLimits, Status
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.protocol.record import FIELDS
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import opened, put, small

LOG_SIZE = 256 << 10
MESSAGES = 2300
TAGS = {"all": None, "some": frozenset(map(ord, "AC")), "few": frozenset({ord("B")})}
_WISHES = [(0, 1), (0, 1024), (7, 1000), (499, 3), (1000, 32), (1020, 40), (1024, 1), (900, 700), (1024, 1000)]


async def _filled(machine: SimNode, pattern: str) -> Store:
    """Two queues of some log files, opened anew: no entry is only in memory, and no message is compared for once."""
    settings = small(commit_log_file_size=LOG_SIZE, queue_file_size=4096 * 20, checksums=False)
    store = await opened(machine.world, settings)
    queues = [store.queues.get_or_create("T", number) for number in (0, 1)]
    chance = random.Random(pattern)
    turn = 0
    while min(queue.next for queue in queues) < MESSAGES:
        count = {"by turns": 1, "batches": 500, "mixed": chance.randrange(1, 9)}[pattern]
        queue = queues[turn % 2]
        tags = ["ABC"[(turn + at) % 3] for at in range(count)]
        store.append([put(queue, b"%d" % at * chance.randrange(1, 40), tag=tag) for at, tag in enumerate(tags)])
        turn += 1
        if turn % 50 == 0:
            await store.writer.write(everything=True)
    await store.stop()
    store = await opened(machine.world, settings)
    for file in store.log.segments:
        file.shared.file.pread(LOG_SIZE, 0)
    for queue in store.queues:
        await store.queues.entries_cold(queue, 0, queue.next)
    return store


def _scanned(reader: Reader, queue: Queue, offset: int, wanted: int, wants: Filter = EVERYTHING) -> Batch:
    scan = reader.scan(queue, offset, wanted, wants)
    with pytest.raises(StopIteration) as end:  # nothing is cold
        next(scan)
    batch: Batch = end.value.value
    return batch


@pytest.mark.parametrize("pattern", ["by turns", "batches", "mixed"])
def test_at_once_is_what_a_scan_finds(pattern: str) -> None:
    async def main() -> None:
        store = await _filled(Simulation(1).node("a"), pattern)
        reader = Reader(store, ReadLimits(bytes_in_memory=4 << 20, count_in_memory=1024))
        crossed = 0
        for queue, codes, (offset, wanted) in product(store.queues, TAGS.values(), _WISHES):
            batch = reader.at_once(queue, offset, wanted, codes)
            scanned = _scanned(reader, queue, offset, wanted, Filter(codes))
            if batch is None:
                assert codes is not None
                assert wanted > 40, "128 entries tell of 40 with a tag"
                continue
            assert b"".join(batch.records) == b"".join(scanned.records)
            assert batch._replace(records=[]) == scanned._replace(records=[])
            assert batch.size == sum(map(len, batch.records))
            assert batch.messages == len(scanned.records) == wanted
            if codes is None:
                assert batch.next_offset == offset + wanted
                if pattern == "batches":
                    assert len(batch.records) <= wanted // 500 + 3
            crossed += _files(scanned) > 1
        assert crossed  # some lie on both sides of a file's end
        await store.stop()

    run(main())


def test_records_behind_one_another_are_one_run() -> None:
    chance = random.Random(1)
    for alike, _ in product((True, False), range(200)):
        offsets, sizes, expected, at = [], [], [], 7
        for _ in range(chance.randrange(1, 5)):
            count = chance.choice([1, 2, 31, 32, 33, 64, 70])
            run = [100 if alike else chance.randrange(100, 110) for _ in range(count)]
            expected.append((at, at + sum(run), count))
            offsets += [at + sum(run[:each]) for each in range(count)]
            sizes += run
            at += sum(run) + chance.randrange(1, 200)
        assert runs_of(offsets, sizes) == expected


@pytest.mark.parametrize("index", [1, 40, 41, 95])
def test_an_entry_within_a_run_that_points_elsewhere_is_left_to_the_scan(index: int) -> None:
    """Of a run of records that are of one size not every entry is looked at to find where it ends."""

    async def main() -> None:
        machine = Simulation(1).node("a")
        settings = small(commit_log_file_size=LOG_SIZE, queue_file_size=4096 * 20, checksums=False)
        store = await opened(machine.world, settings)
        queue = store.queues.get_or_create("T", 0)
        for _ in range(8):
            store.append([put(queue, b"body") for _ in range(128)])
        await store.writer.write(everything=True)
        store.log.segments[0].shared.file.pread(LOG_SIZE, 0)
        reader = Reader(store, ReadLimits(bytes_in_memory=4 << 20, count_in_memory=1024))
        good = await store.queues.entries_cold(queue, 0, 1024)
        served = reader.at_once(queue, 0, 100)
        assert served is not None
        assert len(served.records) == 1
        entries = machine.disk.open(f"{queue.files.directory}/{0:020d}")
        offset, size, code = struct.unpack_from(">qiq", good, index * 20)
        for place in (offset + size, offset - size, offset + 1, offset ^ 1 << 40):
            entries.pwrite(struct.pack(">qiq", place, size, code), index * 20)
            store.queues.cuts += 1
            assert reader.at_once(queue, 0, 100) is None
        await store.stop()

    run(main())


def test_a_wrong_entry_or_record_is_left_to_the_scan() -> None:
    """Also an entry that its tag keeps out: the scan has it mended."""

    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await _filled(machine, "by turns")
        reader = Reader(store, ReadLimits(bytes_in_memory=4 << 20, count_in_memory=1024))
        queue = store.queues.get_or_create("T", 0)
        entries = machine.disk.open(f"{queue.files.directory}/{0:020d}")
        log = store.log.segments[0].shared.file
        for codes, index in product(TAGS.values(), range(3)):  # one of the three has each tag
            assert reader.at_once(queue, 0, 30, codes) is not None
            good = await store.queues.entries_cold(queue, index, 1)
            offset, size, code = struct.unpack(">qiq", good)
            record = log.pread(size, offset)
            for at in (FIELDS["queue_offset"][0] + 7, FIELDS["physical_offset"][0] + 7, len(record) - 8):
                log.pwrite(bytes((record[at] ^ 1,)), offset + at)
                served = reader.at_once(queue, 0, 30, codes)
                assert (served is None) == (codes is None or code in codes)
                log.pwrite(record, offset)
            for place, told in ((offset, 0), (offset, 90), (offset, 0x7FFFFFFF), (-5, size), (store.log.end - 1, size)):
                entries.pwrite(struct.pack(">qiq", place, told, code), index * 20)
                store.queues.cuts += 1
                assert reader.at_once(queue, 0, 30, codes) is None
            entries.pwrite(good, index * 20)
            store.queues.cuts += 1
        await store.stop()

    run(main())


def _files(batch: Batch) -> int:
    places = [int.from_bytes(record[28:36], "big") // LOG_SIZE for record in batch.records]
    assert all(one <= other for one, other in pairwise(places))
    return len(set(places))


def test_only_records_have_to_be_in_memory_not_what_lies_between_them() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await _filled(machine, "batches")
        reader = Reader(store, ReadLimits(bytes_in_memory=4 << 20, count_in_memory=1024))
        one, other = sorted(store.queues, key=lambda queue: queue.id)
        wanted = _scanned(reader, one, 0, 600)
        first, *_, last = [int.from_bytes(record[28:36], "big") for record in wanted.records]
        file = store.log.segments[0]
        assert last - first > 1.3 * wanted.size  # a batch of the other queue lies between
        assert last < file.start + LOG_SIZE
        machine.disk.evict(file.path)
        assert reader.at_once(one, 0, 600) is None
        for record in wanted.records:
            file.shared.file.pread(len(record), int.from_bytes(record[28:36], "big"))
        batch = reader.at_once(one, 0, 600)
        assert batch is not None
        assert b"".join(batch.records) == b"".join(wanted.records)
        assert reader.at_once(other, 0, 400) is None
        await store.stop()

    run(main())


class _Any:
    """A condition that has every record read, and lets each through."""

    weight = 0

    def matches(self, properties: dict[str, str]) -> bool:
        return True


@pytest.mark.parametrize("wants", [EVERYTHING, Filter(sql=_Any())])
@pytest.mark.parametrize("far", [False, True])
def test_a_scan_ends_at_its_limits_and_never_before_the_first_message(far: bool, wants: Filter) -> None:
    """Limits of count and bytes, of what is in memory and what is not, each up to and with the last that fits."""

    async def main() -> None:
        store = await _filled(Simulation(1).node("a"), "mixed")
        queue = store.queues.get_or_create("T", 0)

        def limits(count: int, size: int) -> ReadLimits:
            if far:  # of the others nothing is to be seen
                return ReadLimits(1, 1, bytes_on_disk=size, count_on_disk=count, memory_bound=-1)
            return ReadLimits(size, count, bytes_on_disk=1, count_on_disk=1)

        everything = _scanned(Reader(store, limits(100, 1 << 20)), queue, 7, 20, wants)
        sizes = [len(record) for record in everything.records]
        assert (len(sizes), everything.next_offset) == (20, 27)
        for count, size, wanted in [
            (5, 1 << 20, 5),
            (100, sum(sizes[:3]), 3),
            (100, sum(sizes[:3]) - 1, 2),
            (100, 1, 1),
            (1, 1 << 20, 1),
        ]:
            batch = _scanned(Reader(store, limits(count, size)), queue, 7, 20, wants)
            assert (len(batch.records), batch.size) == (wanted, sum(sizes[:wanted]))
            assert (batch.next_offset, batch.status) == (7 + wanted, Status.FOUND)
        await store.stop()

    run(main())
