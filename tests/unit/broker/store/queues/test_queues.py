"""Queues: entries in memory and in files, written in slices, few files open, deletion, search by time."""

import asyncio
import bisect
import errno
import random
import struct
from pathlib import Path

import pytest

from rmq.broker.store.open_files import OpenFiles
from rmq.broker.store.queues import writer as queue_writer
from rmq.broker.store.queues.files import BLANK_ENTRY
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.state import Put, Queue
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimFiles
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, QUEUE_SIZE, bodies, body_of, die, opened, put, records, small
from tests.support.store_scan import check_store, scan_queues

PER_FILE = QUEUE_SIZE // 20


async def fresh(**changes: object) -> tuple[SimNode, Store]:
    machine = Simulation(2).node("a")
    return machine, await opened(machine.world, small(**changes))


def indexes(store: Store, queue: Queue, data: bytes) -> list[int]:
    """Queue indexes that the records of some entries hold."""
    found = []
    for offset, _size, _ in struct.iter_unpack(">qiq", data):
        head = store.log.read(offset, 28)
        assert head
        found.append(int.from_bytes(head[20:28], "big"))
    return found


def test_entries_come_from_file_and_memory_alike() -> None:
    async def main() -> None:
        machine, store = await fresh()
        queue = store.queues.get_or_create("T", 0)
        for _ in range(PER_FILE + 25):
            store.append([put(queue)])
        assert queue.tail_from == 0
        await store.writer.write(everything=True)
        assert (queue.tail_from, len(queue.tail), store.queues.pending) == (PER_FILE + 25, 0, 0)
        for _ in range(PER_FILE):
            store.append([put(queue)])
        for index in range(0, queue.next, 7):
            data = store.queues.entries(queue, index, 30)
            assert data is not None
            got = indexes(store, queue, data)
            # Whole, in order, and within one queue file where they come from one.
            in_file = PER_FILE - index % PER_FILE if index < queue.tail_from else 30
            assert got == list(range(index, min(index + min(30, in_file), queue.next)))
        assert store.queues.entries(queue, queue.next, 1) == b""
        assert store.queues.entries(queue, -1, 1) == b""
        machine.disk.evict("*")
        assert store.queues.entries(queue, 3, 2) is None
        assert indexes(store, queue, await store.queues.entries_cold(queue, 3, 2)) == [3, 4]
        await store.stop()
        scan = scan_queues(machine.files, "/store", QUEUE_SIZE)["T", 0]
        assert scan["files"] == [f"{n * QUEUE_SIZE:020d}" for n in range(3)]
        assert len(scan["entries"]) == 2 * PER_FILE + 25

    run(main())


async def test_large_tails_are_written_first_and_small_ones_take_turns(tmp_path: Path) -> None:
    settings = small(str(tmp_path), commit_log_file_size=1 << 20, queue_file_size=60_000, queue_flush_interval_ms=10**6)
    store = await opened(World.real(), settings)
    large = store.queues.get_or_create("Large", 0)
    small_ones = [store.queues.get_or_create("Small", n) for n in range(1100)]
    store.append([put(queue) for queue in small_ones])
    store.append([put(large) for _ in range(300)])
    assert len(store.queues.dirty) == 1101
    await store.writer.write()
    assert not large.tail
    left = [queue for queue in small_ones if queue.tail]
    assert left == small_ones[1024:]
    assert len(store.queues.open_files) == 512
    await store.writer.write()
    assert store.queues.pending == 0
    assert not store.queues.dirty
    await store.stop()


def test_too_much_in_memory_is_written_without_waiting() -> None:
    async def main() -> None:
        machine, store = await fresh(queue_flush_interval_ms=1_000_000)
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue)])
        store.queues.pending += 17 << 20
        store.append([put(queue)])
        await asyncio.sleep(0.1)
        assert not queue.tail
        store.queues.pending = 0
        await store.stop()
        assert len(scan_queues(machine.files, "/store", QUEUE_SIZE)["T", 0]["entries"]) == 2

    run(main())


@pytest.mark.parametrize("one_by_one", [0, 1000])
def test_what_was_forced_survives_a_power_cut(monkeypatch: pytest.MonkeyPatch, one_by_one: int) -> None:
    monkeypatch.setattr(queue_writer, "_ONE_BY_ONE", one_by_one)

    async def main() -> None:
        simulation = Simulation(2)
        machine = simulation.node("a")
        store = await opened(machine.world, small())
        for number in range(20):
            store.append([put(store.queues.get_or_create(f"T{number}", 0))])
        await store.force()
        simulation.power_cut(machine, all_lost=True)
        await die(store)
        found = scan_queues(machine.files, "/store", QUEUE_SIZE)
        assert [len(queue["entries"]) for queue in found.values()] == [1] * 20

    run(main())


@pytest.mark.parametrize("slow", ["write", "sync"])
def test_a_stop_leaves_queues_to_the_next_start_when_the_disk_is_too_slow(
    monkeypatch: pytest.MonkeyPatch, slow: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A daemon is killed 28 s after SIGTERM: before that the log is on disk, and all else is made of it."""

    async def main() -> None:
        node, store = await fresh(queue_flush_interval_ms=10**9, queue_thorough_interval_ms=10**9)
        queues = [store.queues.get_or_create(f"T{number}", 0) for number in range(900)]
        store.append([put(queue, b"there") for queue in queues])
        name = "_write_group" if slow == "write" else "_sync_group"
        real = getattr(QueueWriter, name)

        async def two_seconds(self: QueueWriter, *group: object) -> object:
            await asyncio.sleep(2)
            return await real(self, *group)

        monkeypatch.setattr(QueueWriter, name, two_seconds)
        monkeypatch.setattr(queue_writer, "_ONE_BY_ONE", 10_000)
        begun = asyncio.get_running_loop().time()
        await store.stop()
        assert asyncio.get_running_loop().time() - begun < 20
        monkeypatch.setattr(QueueWriter, name, real)
        assert "the next start makes them from the commit log" in caplog.text
        assert node.files.exists("/store/abort"), "nobody, Java included, takes it for clean"
        store = await opened(node.world, small())
        for number in range(900):
            queue = store.queues.get(f"T{number}", 0)
            assert queue is not None
            assert [body_of(record) for record in await records(store, queue)] == [b"there"]
        await store.stop()
        assert not node.files.exists("/store/abort")

    run(main())


def test_entries_that_cannot_be_written_are_kept() -> None:
    async def main() -> None:
        machine, store = await fresh()
        queue = store.queues.get_or_create("T", 0)
        for action in ("open", "pwrite", "mkdir"):
            machine.disk.fail(action, errno.ENOSPC, "*consumequeue*", count=2)
        for n in range(10):
            store.append([put(queue, b"%d" % n)])
            await asyncio.sleep(1.1)
            assert await bodies(store, queue) == [b"%d" % k for k in range(n + 1)]
        assert not queue.tail
        # As long as they fail, the checkpoint does not move.
        machine.disk.fail("pwrite", errno.EIO, "*consumequeue*", count=-1)
        before = store.checkpoint.logics
        store.append([put(queue, b"late")])
        await store.force()
        assert store.checkpoint.logics == before
        # However long that lasts, messages are taken.
        await asyncio.sleep(40)
        store.append([put(queue, b"later")])
        machine.disk.heal()
        await asyncio.sleep(2)
        store.append([put(queue, b"again")])
        await store.stop()
        check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)

    run(main())


def test_a_dropped_topic_is_gone_and_may_come_again() -> None:
    async def main() -> None:
        machine, store = await fresh()
        for n in (0, 1):
            queue = store.queues.get_or_create("T", n)
            for _ in range(50):
                store.append([put(queue, b"old")])
        other = store.queues.get_or_create("Other", 0)
        store.append([put(other, b"other")])
        await asyncio.sleep(2)
        cuts = store.queues.cuts
        store.queues.drop("T")
        assert store.queues.cuts > cuts  # what readers keep of its entries is void
        assert store.queues.get("T", 0) is None
        assert store.queues.topics() == ["Other"]
        again = store.queues.get_or_create("T", 0)
        store.append([put(again, b"new")])
        assert (again.next, again.visible) == (1, 1)
        await asyncio.sleep(2)
        assert machine.files.list("/store/consumequeue/T") == ["0"]
        assert machine.files.list("/store/trash") == []
        # A crash: the old messages are still in the log, but the new life of the topic is what counts.
        machine.files.freeze()
        await die(store)
        simulation = Simulation(3)
        simulation.nodes["a"] = machine
        simulation.kill(machine)
        store = await opened(machine.world, small())
        back = store.queues.get("T", 0)
        assert back is not None
        assert await bodies(store, back) == [b"new"]
        store.append([put(back, b"newer")])
        assert await bodies(store, back) == [b"new", b"newer"]
        await store.stop()

    run(main())


def test_a_topic_dropped_while_it_is_written() -> None:
    async def main() -> None:
        machine, store = await fresh(queue_flush_interval_ms=1_000_000)
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue)])
        task = asyncio.create_task(store.writer.write(everything=True))
        await asyncio.sleep(0)
        store.queues.drop("T")
        await task
        await store.writer.sweep()
        assert machine.files.list("/store/consumequeue") == []
        assert (store.queues.pending, len(store.queues.open_files)) == (0, 0)
        await store.stop()

    run(main())


@pytest.mark.parametrize("topic", ["", ".", "..", "../x", "a/b", "/etc", "a\0b"])
def test_a_topic_names_no_directory_outside(topic: str) -> None:
    """Field case B112."""

    async def main() -> None:
        _, store = await fresh()
        with pytest.raises(StoreError, match="topic"):
            store.queues.get_or_create(topic, 0)
        with pytest.raises(StoreError, match="negative"):
            store.queues.get_or_create("T", -1)
        await store.stop()

    run(main())


def test_a_lookup_makes_no_directory() -> None:
    async def main() -> None:
        machine, store = await fresh()
        queue = store.queues.get_or_create("T", 3)
        assert store.queues.get_or_create("T", 3) is queue
        assert store.queues.get("T", 2) is None
        assert store.queues.all("T") == [queue]
        await store.stop()
        assert not machine.files.exists("/store/consumequeue")

    run(main())


def test_a_queue_whose_past_is_lost_begins_where_the_log_does() -> None:
    """Queue files gone and the first log file, too: pre-blank fill (store-and-broker.md 3.2)."""

    async def main() -> None:
        machine, store = await fresh()
        queue = store.queues.get_or_create("T", 0)
        while len(store.log.segments) < 3:
            store.append([put(queue, b"x" * 300)])
        total = queue.next
        await store.stop()
        machine.files.unlink("/store/commitlog/00000000000000000000")
        for name in machine.files.list("/store/consumequeue/T/0"):
            machine.files.unlink(f"/store/consumequeue/T/0/{name}")
        store = await opened(machine.world, small())
        got = store.queues.get("T", 0)
        assert got is not None
        first = got.min
        assert 0 < first < total
        assert (got.visible, store.log.start) == (total, LOG_SIZE)
        assert len(await bodies(store, got)) == total - first
        await store.stop()
        scan = scan_queues(machine.files, "/store", QUEUE_SIZE)["T", 0]
        start = first * 20 - first * 20 % QUEUE_SIZE
        assert scan["files"][0] == f"{start:020d}"
        assert scan["entries"][: first - start // 20] == [(0, 0x7FFFFFFF, 0)] * (first - start // 20)
        store = await opened(machine.world, small(), start=False)
        got = store.queues.get("T", 0)
        assert got is not None
        assert (got.min, got.visible) == (first, total)
        await store.stop()

    run(main())


def test_search_by_time() -> None:
    async def main() -> None:
        machine, store = await fresh()
        queue = store.queues.get_or_create("T", 0)
        assert await store.offset_by_time(queue, 5) == 0
        assert await store.earliest_time(queue) == -1
        rng = random.Random(4)
        now = machine.clock.now_ms()
        times = []
        for _ in range(150):
            now += rng.choice((0, 0, 1, 50, 5000))
            store.append([put(queue, b"x" * rng.randint(1, 200))], now)
            times.append(now)
        await asyncio.sleep(2)
        assert await store.earliest_time(queue) == times[0]
        assert await store.oldest_time() == times[0]
        for wanted in [
            0,
            times[0] - 10,
            times[-1] + 10,
            *(rng.randint(times[0], times[-1]) for _ in range(300)),
            *times,
        ]:
            assert await store.offset_by_time(queue, wanted) == bisect.bisect_left(times, wanted)
            upper = max(0, bisect.bisect_right(times, wanted) - 1)
            assert await store.offset_by_time(queue, wanted, upper=True) == upper
        await store.stop()

    run(main())


@pytest.mark.parametrize("many", [64, 3 * PER_FILE])
def test_search_by_time_among_messages_of_one_time(many: int) -> None:
    """Ten single messages, a batch (with one of its sizes, over several queue files), ten more."""

    async def main() -> None:
        machine, store = await fresh()
        queue = store.queues.get_or_create("T", 0)
        start = machine.clock.now_ms()
        for number in range(10):
            store.append([put(queue, b"x")], start + number)
        at = start + 1000
        store.append([put(queue, b"x") for _ in range(many)], at)
        for number in range(10):
            store.append([put(queue, b"x")], at + 1000 + number)
        last = 10 + many - 1
        lower = {start - 1: 0, start: 0, at - 1: 10, at: 10, at + 1: last + 1, at + 2000: last + 11}
        upper = {start - 1: 0, start: 0, at - 1: 9, at: last, at + 1: last, at + 2000: last + 10}
        for queue.min in (0, 5):
            for time, wanted in lower.items():
                assert await store.offset_by_time(queue, time) == max(wanted, queue.min)
            for time, wanted in upper.items():
                assert await store.offset_by_time(queue, time, upper=True) == max(wanted, queue.min)
        queue.min = queue.visible  # as retention leaves a queue without messages
        for time in (0, at, at + 9999):
            assert await store.offset_by_time(queue, time) == queue.visible
            assert await store.offset_by_time(queue, time, upper=True) == queue.visible
        await store.stop()

    run(main())


def test_search_by_time_holds_to_store_times_whatever_became_of_the_files() -> None:
    """A row of docs/differences.md: Java takes the first file that was modified at the time asked for or later."""

    async def main() -> None:
        machine, store = await fresh()
        queue = store.queues.get_or_create("T", 0)
        now = machine.clock.now_ms()
        for number in range(4 * PER_FILE):
            store.append([put(queue, b"x")], now + 10 * number)
        await store.stop()
        # Restored from a copy, the oldest file as the last: every file is younger than every message.
        copied = [inode for path, inode in sorted(machine.disk._entries.items()) if inode and "/consumequeue/" in path]
        for age, inode in enumerate(copied):
            inode.mtime_ms = now + 10_000_000 - age
        store = await opened(machine.world, small(), start=False)
        found = store.queues.get("T", 0)
        assert found is not None
        for number in (0, PER_FILE - 1, PER_FILE, 2 * PER_FILE + 3, 4 * PER_FILE - 1):
            assert await store.offset_by_time(found, now + 10 * number) == number
        await store.stop()

    run(main())


def test_only_visible_messages_are_found_by_time() -> None:
    async def main() -> None:
        machine, store = await fresh(sync_flush=True)
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"a")])
        await asyncio.sleep(0.1)
        machine.disk.fail("datasync", errno.EIO, "*commitlog*")
        store.append([put(queue, b"b")])
        await asyncio.sleep(0.1)
        assert (queue.next, queue.visible) == (2, 1)
        assert await store.offset_by_time(queue, 1 << 60) == 1
        assert await store.offset_by_time(queue, 1 << 60, upper=True) == 0
        assert await store.messages.at(0) is not None
        end = store.durability.visible
        assert await store.messages.at(end) is None
        await store.stop()

    run(main())


async def test_more_queues_than_open_files(tmp_path: Path) -> None:
    settings = small(str(tmp_path / "store"), commit_log_file_size=1 << 20, queue_file_size=400)
    store = await opened(World.real(), settings)
    queues = [store.queues.get_or_create(f"T{n}", 0) for n in range(700)]
    store.append([put(queue, b"%d" % n) for n, queue in enumerate(queues)])
    await store.stop()
    store = await opened(World.real(), settings, start=False)
    assert len(store.queues) == 700
    for queue in store.queues:
        assert await bodies(store, queue) == [queue.topic[1:].encode()]
    assert len(store.queues.open_files) == 512
    await store.stop()
    assert len(store.queues.open_files) == 0


def test_a_file_in_use_is_closed_by_its_last_user() -> None:
    tree = SimFiles(SimDisk())
    tree.mkdir("/d")
    files = OpenFiles(limit=2)
    opened_files = [tree.open(f"/d/{n}", create=True) for n in range(4)]
    first = files.put(0, opened_files[0])
    assert first.pin() is opened_files[0]
    files.put(1, opened_files[1])
    files.put(2, opened_files[2])
    assert files.get(0) is None
    opened_files[0].pwrite(b"x", 0)
    first.unpin()
    with pytest.raises(OSError, match="descriptor"):
        opened_files[0].pwrite(b"x", 0)
    assert files.get(1) is not None
    # 1 was used last, so 2 goes.
    files.put(3, opened_files[3])
    assert files.get(2) is None
    double = tree.open("/d/3")
    assert files.put(3, double) is files.get(3)
    with pytest.raises(OSError, match="descriptor"):
        double.pread(1, 0)
    files.close_all()
    assert len(files) == 0


def test_delayed_messages_keep_their_delivery_time_over_a_rebuild() -> None:
    async def main() -> None:
        machine, store = await fresh()
        queue = store.queues.get_or_create("SCHEDULE_TOPIC_XXXX", 2)
        now = store.stamp(machine.clock.now_ms())
        plain = put(queue, b"x")
        delayed: list[Put] = [
            plain._replace(properties=b"DELAY\x01%d\x02TAGS\x01a" % level, tags_code=store.tags.due(level, now))
            for level in (1, 3, 18, 99)
        ]
        store.append(delayed, now)
        wanted = bytes(queue.tail)
        assert [code - now for _, _, code in struct.iter_unpack(">qiq", wanted)] == [1000, 10_000, 7_200_000, 7_200_000]
        await store.stop()
        machine.files.unlink("/store/consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000")
        store = await opened(machine.world, small(), start=False)
        got = store.queues.get("SCHEDULE_TOPIC_XXXX", 2)
        assert got is not None
        assert await store.queues.entries_cold(got, 0, 4) == wanted
        await store.stop()

    run(main())


def test_a_queue_cut_behind_blank_entries_takes_what_comes_next() -> None:
    """A blank entry stands for no record: what follows it in the log is not behind it (found by the long form)."""

    async def main() -> None:
        _, store = await fresh()
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"%d" % number) for number in range(5)])
        await store.writer.write(everything=True)
        queue.tail += BLANK_ENTRY * 2
        queue.next += 2
        await store.queues.cut(queue, 6)
        entry = store.queues.entries(queue, 4, 1)
        assert entry is not None
        offset, size, _ = struct.unpack(">qiq", entry)
        assert queue.max_phys == offset + size
        await store.stop()

    run(main())


def test_times_of_many_queues_are_read_in_one_go_and_open_no_file_for_good() -> None:
    """A group on 40,000 queues: few of them have an open file."""

    async def main() -> None:
        _, store = await fresh()
        queues = [store.queues.get_or_create(f"T{number}", 0) for number in range(20)]
        for queue in queues:
            await asyncio.sleep(0.01)
            store.append([put(queue)])
        await store.writer.write(everything=True)
        places = [(queue, queue.next - 1) for queue in queues] + [(queues[0], 5)]
        one_by_one = [await store.search.time_at(queue, index) for queue, index in places]
        assert len(set(one_by_one)) == 21
        assert one_by_one[-1] == -1
        store.queues.open_files.close_all()
        store.append([put(queues[3])])
        places[3] = (queues[3], queues[3].next - 1)
        one_by_one[3] = await store.search.time_at(*places[3])
        assert await store.search.times_at(places) == one_by_one
        assert len(store.queues.open_files) == 0
        store.queues.disk.read_each = lambda ranges: pytest.fail("in memory")  # type: ignore[method-assign]
        assert await store.search.times_at([places[3]]) == [one_by_one[3]]

    run(main())


def test_the_time_in_a_file_that_is_deleted_meanwhile_is_not_known() -> None:
    async def main() -> None:
        _, store = await fresh()
        kept, gone = store.queues.get_or_create("T", 0), store.queues.get_or_create("Gone", 0)
        store.append([put(kept), put(gone)])
        await store.writer.write(everything=True)
        store.queues.open_files.close_all()
        asked = asyncio.ensure_future(store.search.times_at([(gone, 0), (kept, 0)]))
        store.queues.drop("Gone")
        times = await asked
        assert times[0] == -1
        assert times[1] > 0

    run(main())
