"""What is deleted when, what is refused when the disk is full, and that offsets follow."""

import asyncio
from datetime import datetime

import pytest

from rmq.broker.store.log.gate import Gate
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.runtime.world import Usage
from rmq.testing.simfiles import SimFiles
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import LOG_SIZE, QUEUE_SIZE, bodies, die, opened, put, small
from tests.support.store_scan import check_store


async def fresh(**changes: object) -> tuple[SimNode, Store, Queue]:
    machine = Simulation(1).node("a")
    store = await opened(machine.world, small(**({"delete_when": "99", "clean_interval_ms": 10**9} | changes)))
    return machine, store, store.queues.get_or_create("T", 0)


async def fill(store: Store, queue: Queue, files: int) -> None:
    while len(store.log.segments) < files:
        store.append([put(queue, b"m%06d" % queue.next * 12, key=f"k{queue.next}")])
    await asyncio.sleep(2)


def disk(monkeypatch: pytest.MonkeyPatch, machine: SimNode, percent: int) -> None:
    monkeypatch.setattr(type(machine.files), "usage", lambda self, path: Usage(100, percent, 100 - percent))


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_brings_no_deleted_file_back(seed: int) -> None:
    """One that came back between others that did not would leave a gap, with which no store opens."""

    async def main() -> None:
        simulation = Simulation(seed)
        machine = simulation.node("a")
        store = await opened(machine.world, small(delete_when="99", clean_interval_ms=10**9))
        queue = store.queues.get_or_create("T", 0)
        await fill(store, queue, 5)
        await store.flusher.flush_all()
        for file in store.log.segments[:3]:
            machine.disk._entries[file.path].mtime_ms -= 73 * 3_600_000
        store.retention.trigger()
        await store.retention.run()
        assert store.log.start == 3 * LOG_SIZE
        machine.files.freeze()
        await die(store)
        store = await opened(simulation.power_cut(machine), small())
        assert store.log.start == 3 * LOG_SIZE
        await store.stop()

    run(main())


def test_old_files_go_at_their_hour_and_offsets_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        machine, store, queue = await fresh()
        disk(monkeypatch, machine, 10)
        quiet = store.queues.get_or_create("Quiet", 0)
        store.append([put(quiet, b"once")])
        await fill(store, queue, 6)
        total = queue.next
        hour = datetime.fromtimestamp(machine.clock.now_ms() // 1000).hour
        # Neither the hour nor the age.
        await store.retention.run()
        store.settings.delete_when = f"1;{hour}"
        await store.retention.run()
        assert store.log.start == 0
        # The hour, and three files are old enough.
        for file in store.log.segments[:3]:
            machine.disk._entries[file.path].mtime_ms -= 73 * 3_600_000
        await store.retention.run()
        assert store.log.start == 3 * LOG_SIZE
        assert store.retention.deleted_files == 3
        assert machine.files.list("/store/commitlog")[0] == f"{3 * LOG_SIZE:020d}"
        assert 0 < queue.min < total
        left = await bodies(store, queue)
        assert left == [b"m%06d" % n * 12 for n in range(queue.min, total)]
        first = await store.queues.entries_cold(queue, queue.min, 1)
        assert 3 * LOG_SIZE <= int.from_bytes(first[:8], "big") < 3 * LOG_SIZE + 300
        # Queue files before it are gone, too, and the index before that.
        assert machine.files.list("/store/consumequeue/T/0")[0] == f"{queue.min * 20 // QUEUE_SIZE * QUEUE_SIZE:020d}"
        assert store.index is not None
        assert store.index.files[0].end_offset >= store.log.start
        # A queue all of whose messages are gone is empty, at its end.
        assert (quiet.min, quiet.visible) == (1, 1)
        assert store.retention.expired_queues() == [quiet]
        await store.stop()
        store = await opened(machine.world, small())
        again = store.queues.get("T", 0)
        assert again is not None
        assert (again.min, again.visible) == (queue.min, total)
        assert await bodies(store, again) == left
        quiet_again = store.queues.get("Quiet", 0)
        assert quiet_again is not None
        assert (quiet_again.min, quiet_again.visible, quiet_again.next) == (1, 1, 1)
        store.append([put(quiet_again, b"twice")])
        assert await bodies(store, quiet_again) == [b"twice"]
        await store.stop()

    run(main())


def test_the_checkpoint_is_told_before_a_file_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a start after a kill in between would miss the file, and take it for lost."""

    async def main() -> None:
        machine, store, queue = await fresh()
        await fill(store, queue, 4)
        for file in store.log.segments[:2]:
            machine.disk._entries[file.path].mtime_ms -= 73 * 3_600_000
        told: list[tuple[int, int, bool]] = []
        unlink = type(machine.files).unlink

        def noting(files: SimFiles, path: str) -> None:
            if "/commitlog/" in path:
                checkpoint = Checkpoint(files, "/store/checkpoint")
                checkpoint.load()
                told.append((int(path[-20:]), checkpoint.log_start, checkpoint.logics == store.log.stamp))
            unlink(files, path)

        monkeypatch.setattr(type(machine.files), "unlink", noting)
        store.retention.trigger()
        await store.retention.run()
        assert told == [(0, LOG_SIZE, True), (LOG_SIZE, 2 * LOG_SIZE, True)]
        await store.stop()

    run(main())


def test_three_levels_of_a_filling_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case B009."""

    async def main() -> None:
        machine, store, queue = await fresh()
        await fill(store, queue, 4)
        # Over 75 %: expired files go, young ones stay.
        disk(monkeypatch, machine, 80)
        await store.retention.run()
        assert store.log.start == 0
        machine.disk._entries[store.log.segments[0].path].mtime_ms -= 73 * 3_600_000
        await store.retention.run()
        assert store.log.start == LOG_SIZE
        # Over 85 %: young ones go, too, but never the newest.
        disk(monkeypatch, machine, 86)
        store.settings.clean_forcibly = False
        await store.retention.run()
        assert store.log.start == LOG_SIZE
        store.settings.clean_forcibly = True
        await store.retention.run()
        assert store.log.start == 3 * LOG_SIZE
        assert store.log.gate == 0
        # Over 90 %: no more messages, until there is space.
        disk(monkeypatch, machine, 91)
        await store.retention.run()
        assert store.log.gate == Gate.DISK_FULL
        with pytest.raises(StoreError, match="disk is full"):
            store.append([put(queue)])
        assert await bodies(store, queue)
        assert store.disk_ratios() == (0.91, 0.91, 0.91)
        disk(monkeypatch, machine, 60)
        await store.retention.run()
        store.append([put(queue)])
        await store.stop()

    run(main())


def test_no_young_file_goes_that_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        machine, store, queue = await fresh()
        await fill(store, queue, 8)
        files = len(store.log.segments)
        # Each file is 1 % of the disk.
        used = lambda path: Usage(100, 86 + len(store.log.segments) - files, 14 + files - len(store.log.segments))  # noqa: E731
        monkeypatch.setattr(machine.world.files, "usage", used)
        await store.retention.run()
        assert store.log.start == LOG_SIZE
        assert store.retention.deleted_early == 1
        await store.retention.run()
        assert store.log.start == LOG_SIZE
        # Old ones all go: they have had their time.
        monkeypatch.setattr(machine.world.files, "usage", lambda path: Usage(100, 86, 14))
        for file in store.log.segments[:3]:
            machine.disk._entries[file.path].mtime_ms -= 73 * 3_600_000
        store.settings.clean_forcibly = False
        await store.retention.run()
        assert store.log.start == 4 * LOG_SIZE
        await store.stop()

    run(main())


def test_a_full_disk_at_start_refuses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        disk(monkeypatch, machine, 95)
        store = await opened(machine.world, small())
        assert store.log.gate == Gate.DISK_FULL
        await store.stop()
        assert not machine.files.exists("/store/abort")

    run(main())


def test_deleting_by_hand_takes_what_is_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        machine, store, queue = await fresh()
        disk(monkeypatch, machine, 10)
        await fill(store, queue, 4)
        for file in store.log.segments:
            machine.disk._entries[file.path].mtime_ms -= 73 * 3_600_000
        store.retention.trigger()
        await store.retention.run()
        # The newest file is never deleted, however old.
        assert store.log.start == 3 * LOG_SIZE
        assert len(store.log.segments) == 1
        await store.stop()
        check = await opened(machine.world, small(), start=False)
        await check.stop()

    run(main())


def test_the_ratio_setting_is_clamped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        machine, store, queue = await fresh(disk_max_used_percent=0, file_reserved_hours=0)
        await fill(store, queue, 3)
        disk(monkeypatch, machine, 9)
        await store.retention.run()
        assert store.log.start == 0
        disk(monkeypatch, machine, 11)
        await asyncio.sleep(1)
        await store.retention.run()
        assert store.log.start == 2 * LOG_SIZE
        await store.stop()

    run(main())


def test_reads_go_on_while_files_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        machine, store, queue = await fresh()
        disk(monkeypatch, machine, 86)
        await fill(store, queue, 5)
        cleaning = asyncio.create_task(store.retention.run())
        while not cleaning.done():
            await asyncio.sleep(0.01)
            # Between the log's new start and the queue's new minimum an entry may point to nothing.
            index = queue.min
            data = await store.queues.entries_cold(queue, index, 1)
            if data:
                offset, size = int.from_bytes(data[:8], "big"), int.from_bytes(data[8:12], "big")
                record = await store.log.read_cold(offset, size)
                assert len(record) in (0, size)
        assert await bodies(store, queue)
        await store.stop()
        check_log = check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
        assert check_log.records

    run(main())


def test_a_round_over_many_queues_gives_others_their_turn() -> None:
    async def main() -> None:
        _, store, _ = await fresh(queue_flush_interval_ms=10**9)
        store.append([put(store.queues.get_or_create(f"M{number}", 0), b"x") for number in range(1000)])
        turns = 0

        async def other() -> None:
            nonlocal turns
            while not round_.done():
                turns += 1
                await asyncio.sleep(0)

        round_ = asyncio.create_task(store.retention.delete_derived())
        await other()
        assert turns >= 5
        await store.stop()

    run(main())
