"""The log over files: rolls, files made in time or in a pinch, reads hot and cold, cuts."""

import asyncio
import errno

import pytest

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.files import LogFile
from rmq.broker.store.log.gate import Gate
from rmq.protocol.errors import ConfigError, StoreError
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, bodies, opened, put, small
from tests.support.store_scan import scan_log


def fresh() -> tuple[SimNode, CommitLog]:
    machine = Simulation(1).node("a")
    log = CommitLog(machine.world, small())
    log.gate = 0
    return machine, log


def test_a_file_ends_with_a_blank_record() -> None:
    async def main() -> None:
        machine, log = fresh()
        assert log.room == LOG_SIZE - 8
        log.write(b"a" * 1000)
        log.roll()
        assert (log.end, log.room) == (LOG_SIZE, LOG_SIZE - 8)
        data = machine.files.read("/store/commitlog/00000000000000000000")
        assert data[1000:1008] == (LOG_SIZE - 1000).to_bytes(4, "big") + bytes.fromhex("CBD43194")
        assert not any(data[1008:])
        log.roll()  # an empty file is not rolled
        assert log.end == LOG_SIZE
        log.write(b"b" * (LOG_SIZE - 8))
        assert log.room == 0
        log.roll()
        assert log.end == 2 * LOG_SIZE
        assert machine.files.list("/store/commitlog") == [f"{n * LOG_SIZE:020d}" for n in range(3)]

    run(main())


def test_the_prepared_file_is_on_disk_before_it_is_used() -> None:
    async def main() -> None:
        machine, log = fresh()
        machine.disk.recording = True
        await log.prepare()
        assert log.prepared
        path = "/store/commitlog/00000000000000000000"
        forced = [step for step in machine.disk.journal if step[0] in ("datasync", "sync_dir")]
        assert forced == [("sync_dir", "/store/commitlog"), ("sync_dir", "/store"), ("datasync", path)]
        machine.disk.journal.clear()
        log.write(b"x")
        assert machine.disk.journal == [("pwrite", path)]
        assert not log.prepared
        assert log.segments[0].entry_synced

    run(main())


def test_the_step_does_not_wait_for_a_file_that_is_late() -> None:
    async def main() -> None:
        machine, log = fresh()
        late = asyncio.create_task(log.prepare())
        await asyncio.sleep(0)
        log.write(b"x")
        await late
        assert len(log.segments) == 1
        assert log.segments[0].entry_synced
        log.roll()
        assert not log.segments[1].entry_synced
        log.files.sync(log.segments[1])
        assert log.segments[1].entry_synced
        await log.close(remove_unused=True)
        assert machine.files.list("/store/commitlog") == [f"{n * LOG_SIZE:020d}" for n in range(2)]

    run(main())


def test_a_file_that_is_late_forces_no_message_to_disk_before_those_in_front_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A power cut would take these alone: a hole in the log, although flushes go by files in their order."""

    async def main() -> None:
        machine, log = fresh()
        log.write(b"a" * 100)
        machine.disk.recording = True
        create = log.files.create

        def slow(start: int) -> LogFile:
            made = create(start)
            monkeypatch.undo()
            log.roll()
            log.write(b"b" * 100)
            return made

        monkeypatch.setattr(log.files, "create", slow)
        await log.prepare()
        assert [step for step in machine.disk.journal if step[0] == "datasync"] == []
        assert len(log.segments) == 2
        assert not log.segments[1].entry_synced
        log.files.sync(log.segments[1])
        assert log.segments[1].entry_synced

    run(main())


@pytest.mark.parametrize("unused", [True, False])
def test_a_stop_takes_away_a_file_that_was_just_being_made(unused: bool) -> None:
    """Else a store that was stopped cleanly has an empty file more, and the next start is the one to remove it."""

    async def main() -> None:
        machine, log = fresh()
        log.write(b"x")
        late = asyncio.create_task(log.prepare())
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.wait([late])
        assert late.cancelled()
        await log.close(remove_unused=unused)
        names = [f"{n * LOG_SIZE:020d}" for n in range(1 if unused else 2)]
        assert machine.files.list("/store/commitlog") == names

    run(main())


def test_reads_from_memory_page_cache_and_disk() -> None:
    async def main() -> None:
        machine, log = fresh()
        for n in range(40):
            if log.room < 1000:
                log.roll()
            log.write(bytes([n]) * 1000)
        spans = [(n % 16 * 1000 + n // 16 * LOG_SIZE, 1000) for n in range(40)]
        wanted = [bytes([n]) * 1000 for n in range(40)]
        assert log.read_many(spans) == wanted
        log._tail.clear()
        assert log.read_many(spans) == wanted
        assert log.read_many(spans[::3]) == wanted[::3]
        machine.disk.evict("*")
        assert log.read(0, 10) is None
        assert log.read_many(spans[::5]) is None
        assert await log.read_many_cold(spans) == wanted
        assert await log.read_cold(spans[3][0], 1000) == wanted[3]
        assert log.read(spans[3][0], 1000) == wanted[3]

    run(main())


def test_what_the_log_does_not_hold_is_short_not_wrong() -> None:
    async def main() -> None:
        _, log = fresh()
        log.write(b"a" * 100)
        log.roll()
        log.write(b"b" * 100)
        for offset, size in ((LOG_SIZE + 50, 100), (-1, 5), (LOG_SIZE - 10, 20), (10 * LOG_SIZE, 5)):
            assert log.read(offset, size) == b""
            assert await log.read_cold(offset, size) == b""
        assert log.read_many([(0, 100), (LOG_SIZE + 50, 100)]) == [b"a" * 100, b""]
        assert log.read_many([]) == []

    run(main())


def test_removing_the_oldest_file_waits_for_its_readers() -> None:
    async def main() -> None:
        _, log = fresh()
        log.write(b"a" * 100)
        log.roll()
        log.write(b"b")
        log._tail.clear()
        first = log.segments[0].shared
        file = first.pin()
        assert await log.remove_first()
        assert log.start == LOG_SIZE
        assert log.read(0, 10) == b""
        assert file.pread(3, 0) == b"aaa"  # still open for who reads it
        first.unpin()
        with pytest.raises(OSError, match="descriptor"):
            file.pread(3, 0)
        assert not await log.remove_first()

    run(main())


def test_a_roll_that_fails_changes_nothing() -> None:
    async def main() -> None:
        machine, log = fresh()
        log.write(b"a" * 100)
        machine.disk.fail("open", errno.EMFILE)
        with pytest.raises(OSError, match="files"):
            log.roll()
        assert (log.end, len(log.segments), log.gate) == (100, 1, 0)
        machine.disk.fail("pwrite", errno.ENOSPC)
        with pytest.raises(OSError, match="space"):
            log.roll()
        assert (log.end, len(log.segments), log.gate) == (100, 1, Gate.DISK_FULL)
        log.open_gate(Gate.DISK_FULL)
        log.roll()
        assert log.end == LOG_SIZE

    run(main())


def test_an_io_error_on_a_write_closes_the_gate() -> None:
    async def main() -> None:
        machine, log = fresh()
        log.write(b"a" * 100)
        machine.disk.fail("pwrite", errno.EIO)
        with pytest.raises(OSError, match="rror"):
            log.write(b"b" * 100)
        assert log.end == 100
        assert log.gate == Gate.NOT_WRITABLE
        assert "restart" in log.gate_reason()

    run(main())


@pytest.mark.parametrize("late", [False, True])
def test_what_was_refused_is_cleared_once(late: bool) -> None:
    """A second time would take the messages that were acknowledged meanwhile."""

    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"one")])
        machine.disk.fail("pwrite", errno.ENOSPC, "*commitlog*")
        if late:
            machine.disk.fail("truncate", errno.ENOSPC, "*commitlog*")
        with pytest.raises(OSError, match="space"):
            store.append([put(queue, b"refused")])
        await asyncio.sleep(60)
        assert not store.log.gate, "there is room again, and what was refused is cleared"
        store.append([put(queue, b"two")])
        await store.stop()
        store = await opened(machine.world, small(), start=False)
        found = store.queues.get("T", 0)
        assert found is not None
        assert await bodies(store, found) == [b"one", b"two"]
        await store.stop()

    run(main())


def test_cutting_leaves_zeros() -> None:
    async def main() -> None:
        machine, log = fresh()
        for n in range(3):
            log.write(bytes([n + 1]) * 1000)
            log.roll()
        await log.truncate(LOG_SIZE + 300)
        assert (log.end, log.room) == (LOG_SIZE + 300, LOG_SIZE - 308)
        assert machine.files.list("/store/commitlog") == [f"{n * LOG_SIZE:020d}" for n in range(2)]
        data = machine.files.read(f"/store/commitlog/{LOG_SIZE:020d}")
        assert data == bytes([2]) * 300 + bytes(LOG_SIZE - 300)
        log.write(b"z")
        assert log.read(LOG_SIZE + 299, 2) == b"\x02z"
        with pytest.raises(StoreError):
            await log.truncate(5 * LOG_SIZE)

    run(main())


def test_replicated_bytes_go_exactly_where_they_belong() -> None:
    async def main() -> None:
        _, log = fresh()
        log.append_raw(3 * LOG_SIZE + 50, b"x" * 10)
        assert (log.start, log.end) == (3 * LOG_SIZE + 50, 3 * LOG_SIZE + 60)
        with pytest.raises(StoreError, match="ends at"):
            log.append_raw(3 * LOG_SIZE + 100, b"y")
        log.append_raw(4 * LOG_SIZE, b"z" * LOG_SIZE)
        log.append_raw(5 * LOG_SIZE, b"z")
        with pytest.raises(StoreError, match="cross"):
            log.append_raw(5 * LOG_SIZE + 1, b"z" * LOG_SIZE)
        assert [file.start for file in log.segments] == [n * LOG_SIZE for n in (3, 4, 5)]

    run(main())


def test_directories_take_turns() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        settings = small(commit_log_paths=("/disk1", "/disk2"), read_only_paths=("/old",))
        machine.files.mkdir("/old")
        store = await opened(machine.world, settings)
        queue = store.queues.get_or_create("T", 0)
        while len(store.log.segments) < 4:
            store.append([put(queue, b"x" * 1000)])
        count = queue.next
        await store.stop()
        assert machine.files.list("/disk1") == [f"{n * LOG_SIZE:020d}" for n in (0, 2)]
        assert machine.files.list("/disk2") == [f"{n * LOG_SIZE:020d}" for n in (1, 3)]
        machine.files.rename("/disk1/00000000000000000000", "/old/00000000000000000000")
        store = await opened(machine.world, settings)
        again = store.queues.get("T", 0)
        assert again is not None
        assert len(await bodies(store, again)) == count
        await store.stop()

    run(main())


@pytest.mark.parametrize(
    ("names", "size", "words"),
    [
        ((0, 2), LOG_SIZE, "missing"),
        ((1,), LOG_SIZE - 4096, "mappedFileSizeCommitLog"),
        ((0, 1), LOG_SIZE * 2, "bytes"),
    ],
)
def test_files_that_are_no_store_of_ours_are_refused(names: tuple[int, ...], size: int, words: str) -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        machine.files.mkdir("/store/commitlog")
        for n in names:
            machine.disk.open(f"/store/commitlog/{n * LOG_SIZE + (LOG_SIZE - size if size < LOG_SIZE else 0):020d}",
                               create=True).allocate(size)  # fmt: skip
        with pytest.raises(StoreError, match=words):
            await opened(machine.world, small())
        # And the directory is not kept from who may use it.
        machine.files.lock("/store/lock").release()

    run(main())


def test_sizes_no_store_can_have() -> None:
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog"):
        small(commit_log_file_size=100)
    with pytest.raises(ConfigError, match="mappedFileSizeConsumeQueue"):
        small(queue_file_size=5)
    with pytest.raises(ConfigError, match="maxIndexNum"):
        small(index_entries=1)
    assert small(queue_file_size=6001).queue_file_size == 6020


def test_scan_of_a_short_newest_file() -> None:
    """A power cut between making a file and extending it."""

    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"x")])
        await store.stop()
        machine.disk.open(f"/store/commitlog/{LOG_SIZE:020d}", create=True).allocate(100)
        machine.disk.open("/store/abort", create=True)
        store = await opened(machine.world, small())
        await store.stop()
        assert len(scan_log(machine.files, "/store/commitlog", LOG_SIZE).records) == 1

    run(main())
