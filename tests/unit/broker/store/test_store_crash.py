"""Kills, power cuts, torn writes: what was acknowledged is there, and nothing that was never sent (I1-I4, I10)."""

import asyncio
import errno
import random
from typing import Any

import pytest

from rmq.broker.store.log.durability import Answers
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import (
    ENTRIES,
    LOG_SIZE,
    QUEUE_SIZE,
    SLOTS,
    bodies,
    body_of,
    die,
    found_keys,
    opened,
    put,
    small,
    snapshot,
    until_open,
)
from tests.support.store_scan import check_store, java_hash, scan_checkpoint, scan_index, scan_log, scan_queues


class History:
    """What was sent where, and which of it was acknowledged."""

    def __init__(self) -> None:
        self.sent: dict[tuple[str, int, int], bytes] = {}
        self.acked: set[tuple[str, int, int]] = set()
        self.codes: list[int] = []

    def answer(self, answers: Answers) -> None:
        for keys, code in answers:
            self.codes.append(int(code))
            if code == b"0":
                self.acked.update(keys)

    def send(self, store: Store, rng: random.Random, count: int, *, hold: bool) -> None:
        puts = []
        keys = []
        taken: dict[Any, int] = {}
        for _ in range(count):
            queue = store.queues.get_or_create(f"T{rng.randrange(3)}", rng.randrange(2))
            index = queue.next + taken.get(queue, 0)
            taken[queue] = taken.get(queue, 0) + 1
            body = f"{queue.topic}-{queue.id}-{index}-{rng.random()}-".encode() * rng.randint(1, 30)
            puts.append(put(queue, body, key=f"k{rng.randrange(20)}", tag="TagA"))
            keys.append((queue.topic, queue.id, index))
        span = store.append(puts)
        for key, message in zip(keys, puts, strict=True):
            self.sent[key] = message.body
        if hold:
            store.acks.hold(span.end, [(keys, b"0")], lambda code: [(keys, str(code).encode())])


async def check(store: Store, history: History, required: set[tuple[str, int, int]]) -> None:
    """Everything required is readable in its place, everything readable was sent to that place."""
    seen: set[tuple[str, int, int]] = set()
    for queue in store.queues:
        assert queue.visible == queue.next
        index = queue.min
        while index < queue.visible:
            entry = await store.queues.entries_cold(queue, index, 1)
            offset, size = int.from_bytes(entry[:8], "big"), int.from_bytes(entry[8:12], "big")
            if (offset, size) != (0, 0x7FFFFFFF):
                record = await store.messages.at(offset)
                assert record is not None
                key = (queue.topic, queue.id, index)
                assert body_of(record) == history.sent[key], f"phantom at {key}"
                seen.add(key)
            index += 1
    assert required <= seen, f"lost: {sorted(required - seen)}"


def node() -> tuple[Simulation, SimNode]:
    simulation = Simulation(7)
    return simulation, simulation.node("a")


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_power_cuts_over_and_over(seed: int, sync: bool) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        simulation = Simulation(seed)
        machine = simulation.node("a", fsync_seconds=0.003)
        history = History()
        settings = small(sync_flush=sync, queue_flush_interval_ms=200, queue_thorough_interval_ms=700)
        required: set[tuple[str, int, int]] = set()
        for _ in range(4):
            store = Store(machine.world, settings, history.answer)
            await store.load()
            await check(store, history, required)
            # What the cut took was never acknowledged: its places are free again.
            alive = {(q.topic, q.id): q.next for q in store.queues}
            history.sent = {k: v for k, v in history.sent.items() if k[2] < alive.get(k[:2], 0)}
            await store.start()
            for _ in range(rng.randint(5, 40)):
                history.send(store, rng, rng.randint(1, 6), hold=True)
                await asyncio.sleep(rng.choice((0, 0.001, 0.05, 0.3)))
            if sync:
                required = set(history.acked)
            else:
                flushed = store.flusher.flushed
                required = set()
                for queue in store.queues:
                    for index in range(queue.min, queue.next):
                        entry = await store.queues.entries_cold(queue, index, 1)
                        if int.from_bytes(entry[:8], "big") + int.from_bytes(entry[8:12], "big") <= flushed:
                            required.add((queue.topic, queue.id, index))
            world = simulation.power_cut(machine, all_lost=rng.random() < 0.3)
            await die(store)
            machine.world = world
        assert required

    run(main())


@pytest.mark.parametrize("seed", range(6))
def test_killed_processes_lose_nothing(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        simulation = Simulation(seed)
        machine = simulation.node("a")
        history = History()
        for _ in range(4):
            store = await opened(machine.world, small())
            await check(store, history, set(history.sent))
            for _ in range(rng.randint(5, 60)):
                history.send(store, rng, rng.randint(1, 4), hold=False)
                await asyncio.sleep(rng.choice((0, 0.01, 0.6)))
            machine.files.freeze()
            await die(store)
            simulation.kill(machine)
        store = await opened(machine.world, small())
        await check(store, history, set(history.sent))
        await store.stop()
        check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)

    run(main())


def test_derived_files_decide_nothing() -> None:
    """The same log with queues, index and checkpoint intact, old, cut, zeroed or gone gives the same store."""

    async def main() -> None:
        rng = random.Random(1)
        results: list[Any] = []
        for change in ("intact", "none", "no index", "no checkpoint", "year on", "zeroed", "cut", "old", "clean"):
            simulation, machine = node()
            store = await opened(machine.world, small())
            rng.seed(1)
            history = History()
            for number in range(80):
                history.send(store, rng, 3, hold=False)
                await asyncio.sleep(0.1)
                if number == 40:
                    old = {
                        path: machine.files.read(path)
                        for path, inode in machine.disk._entries.items()
                        if inode is not None and "/consumequeue/" in path
                    }
            if change == "clean":
                await store.stop()
            else:
                machine.files.freeze()
                await die(store)
                simulation.kill(machine)
            files = machine.files
            names = [path for path, inode in machine.disk._entries.items() if inode is not None]
            queues = [path for path in names if "/consumequeue/" in path]
            for path in names:
                index = "/index/" in path
                if (
                    (change == "none" and (path in queues or index or path.endswith("checkpoint")))
                    or (change == "no index" and index)
                    or (change == "no checkpoint" and path.endswith("checkpoint"))
                ):
                    files.unlink(path)
            if change == "year on":
                file = machine.disk.open("/store/checkpoint", create=True)
                file.pwrite((machine.clock.now_ms() + 365 * 86_400_000).to_bytes(8, "big") * 3, 0)
            if change == "zeroed":
                for path in queues[::2]:
                    machine.disk.open(path).pwrite(bytes(400), 100)
            if change == "cut":
                for path in queues[1::2]:
                    machine.disk.open(path).truncate(130)
            if change == "old":
                for path in queues:
                    if path in old:
                        machine.disk.open(path).pwrite(old[path], 0)
                    else:
                        files.unlink(path)
            store = await opened(machine.world, small(), start=False)
            seen = await snapshot(store)
            hasher = store.indexing.hasher
            seen["keys"] = {
                f"T{t}-k{n}": sorted(set(await store.index.query(hasher(f"T{t}")(b"k%d" % n), 500, 0, 1 << 62)))
                for t in range(3) for n in range(20) if store.index is not None
            }  # fmt: skip
            results.append((change, seen))
            await store.stop()
            check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
        for change, seen in results[1:]:
            assert seen == results[0][1], change

    run(main())


def test_a_lost_sector_of_properties_is_a_torn_record() -> None:
    """No checksum covers properties; zeros in place of a whole sector are not taken for what was sent."""

    async def main() -> None:
        simulation, machine = node()
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        first = store.append([put(queue, b"first")]).end
        store.append([put(queue, b"second", tag="A" * 1200)])
        nul = store.append([put(queue, b"third", tag="odd\0tag\0\x02")]).end
        machine.files.freeze()
        await die(store)
        simulation.kill(machine)
        store = await opened(machine.world, small(), start=False)
        assert store.log.end == nul
        await store.stop()
        file = machine.disk.open("/store/commitlog/00000000000000000000")
        file.pwrite(bytes(nul - 512), 512)
        machine.disk.open("/store/abort", create=True)
        store = await opened(machine.world, small(), start=False)
        assert store.log.end == first
        await store.stop()

    run(main())


def test_damage_in_the_middle_is_loud_and_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        simulation, machine = node()
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        spans = [store.append([put(queue, b"body %02d" % n, key=f"k{n}")]) for n in range(30)]
        machine.files.freeze()
        await die(store)
        simulation.kill(machine)
        path = "/store/commitlog/00000000000000000000"
        # A flipped bit in one body, and the head of another record overwritten.
        flipped = spans[7].start + 90
        file = machine.disk.open(path)
        byte = file.pread(1, flipped)[0]
        file.pwrite(bytes([byte ^ 4]), flipped)
        file.pwrite(bytes(40), spans[12].start)
        for _ in range(2):
            store = await opened(machine.world, small(), start=False)
            assert [tuple(damage) for damage in store.recovered.damages] == [
                (spans[7].start, spans[7].end), (spans[12].start, spans[12].end),
            ]  # fmt: skip
            again = store.queues.get("T", 0)
            assert again is not None
            assert (again.min, again.visible) == (0, 30)
            kept = [n for n in range(30) if n not in (7, 12)]
            assert await bodies(store, again) == [b"body %02d" % n for n in kept]
            assert await found_keys(store, "T", ["k7", "k12", "k13"]) == {"k7": 0, "k12": 0, "k13": 1}
            machine.files.freeze()
            await die(store)
            simulation.kill(machine)
            for name in [
                p for p, inode in machine.disk._entries.items() if inode is not None and "/consumequeue/" in p
            ]:
                machine.files.unlink(name)

    run(main())
    assert "damaged" in caplog.text


def test_a_failed_write_leaves_nothing_behind() -> None:
    """A batch half on the disk when the write fails: none of it comes back after a crash (I2)."""

    async def main() -> None:
        simulation, machine = node()
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"first")])
        machine.disk.capacity = machine.disk.used + 4096
        with pytest.raises(OSError, match="space"):
            store.append([put(queue, bytes(2000)) for _ in range(4)])
        assert (queue.next, queue.visible, len(queue.tail)) == (1, 1, 20)
        assert store.log.gate == Gate.DISK_FULL
        with pytest.raises(StoreError, match="disk is full"):
            store.append([put(queue, b"x")])
        assert not any(machine.files.read("/store/commitlog/00000000000000000000")[store.log.end :])
        # Space again: messages again, without a restart.
        machine.disk.capacity = None
        await store.retention.check_disk()
        store.append([put(queue, b"second")])
        machine.files.freeze()
        await die(store)
        simulation.kill(machine)
        store = await opened(machine.world, small())
        got = store.queues.get("T", 0)
        assert got is not None
        assert await bodies(store, got) == [b"first", b"second"]
        await store.stop()

    run(main())


def test_an_append_that_fails_behind_a_roll_leaves_nothing() -> None:
    """The first half is in the old file already when the second cannot be written: both halves are refused (I2)."""

    async def main() -> None:
        simulation, machine = node()
        store = await opened(machine.world, small(sync_flush=True))
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"first")])
        await asyncio.sleep(0.1)
        before = store.log.end
        for action in ("open", "pwrite"):
            if action == "open":
                # No file was made in time, and none can be made now.
                await asyncio.sleep(0.1)
                assert store.log._spare is not None
                store.log._spare.shared.drop()
                store.log._spare = None
            machine.disk.fail(action, errno.ENOSPC, f"*{LOG_SIZE:020d}")
            with pytest.raises(OSError, match="space"):
                store.append([put(queue, b"%d" % n * 2000) for n in range(10)])
            assert (store.log.end, queue.next, queue.visible, len(store.log.segments)) == (before, 1, 1, 1)
            assert not any(machine.files.read("/store/commitlog/00000000000000000000")[before:])
            await until_open(store)
            await asyncio.sleep(0.1)
        store.append([put(queue, b"%d" % n * 2000) for n in range(10)])
        await asyncio.sleep(0.1)
        assert queue.visible == 11
        machine.files.freeze()
        await die(store)
        simulation.kill(machine)
        store = await opened(machine.world, small())
        got = store.queues.get("T", 0)
        assert got is not None
        assert await bodies(store, got) == [b"first", *(b"%d" % n * 2000 for n in range(10))]
        await store.stop()
        check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)

    run(main())


def test_the_first_failed_flush_is_the_last() -> None:
    async def main() -> None:
        _, machine = node()
        answers: list[Any] = []
        store = Store(machine.world, small(sync_flush=True), answers.extend)
        await store.load()
        await store.start()
        queue = store.queues.get_or_create("T", 0)

        def send(name: str) -> None:
            span = store.append([put(queue, name.encode())])
            store.acks.hold(span.end, [(name, b"0")], lambda code: [(name, str(code).encode())])

        send("a")
        await asyncio.sleep(0.1)
        assert answers == [("a", b"0")]
        machine.disk.fail("datasync", errno.EIO, "*commitlog*")
        send("b")
        assert queue.visible == 1
        await asyncio.sleep(0.1)
        assert answers[1:] == [("b", b"10")]
        assert store.log.gate & Gate.FSYNC_FAILED
        with pytest.raises(StoreError, match="flush"):
            send("c")
        # The disk works again, but what became of the failed pages nobody knows.
        await asyncio.sleep(20)
        assert (store.flusher.flushed < store.log.end, queue.visible, len(answers)) == (True, 1, 2)
        await store.stop()
        assert machine.files.exists("/store/abort")

    run(main())


def test_async_flush_fails_once_and_for_all() -> None:
    async def main() -> None:
        _, machine = node()
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        machine.disk.fail("datasync", errno.EIO, "*commitlog*")
        store.append([put(queue, b"x")])
        await asyncio.sleep(1)
        assert store.log.gate == Gate.FSYNC_FAILED
        assert store.durability.failed
        await store.stop()
        assert machine.files.exists("/store/abort")

    run(main())


def test_a_new_file_survives_only_with_its_directory_entry() -> None:
    """Everything acknowledged lies in files whose names are on the disk, too."""

    async def main() -> None:
        simulation, machine = node()
        history = History()
        store = Store(machine.world, small(sync_flush=True), history.answer)
        await store.load()
        await store.start()
        rng = random.Random(5)
        # More than one file at once: the second is made by the append itself.
        for _ in range(30):
            history.send(store, rng, 8, hold=True)
        await asyncio.sleep(0.02)
        assert len(store.log.segments) > 2
        assert len(history.acked) == 240
        simulation.power_cut(machine, all_lost=True)
        await die(store)
        store = await opened(machine.world, small(), start=False)
        await check(store, history, history.acked)
        await store.stop()

    run(main())


def test_a_stop_is_clean_and_says_so() -> None:
    async def main() -> None:
        simulation, machine = node()
        rng = random.Random(9)
        history = History()
        store = await opened(machine.world, small())
        assert machine.files.exists("/store/abort")
        for _ in range(60):
            history.send(store, rng, 3, hold=False)
        await store.stop()
        assert not machine.files.exists("/store/abort")
        scan = check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
        assert len(scan.records) == 180
        # A power cut after a clean stop loses nothing, derived files included.
        simulation.power_cut(machine, all_lost=True)
        again = check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
        assert again.end == scan.end
        store = await opened(machine.world, small(), start=False)
        assert store.recovered.clean
        assert store.recovered.dispatched_from == store.log.end
        await check(store, history, set(history.sent))
        await store.stop()

    run(main())


def test_a_second_broker_is_kept_out() -> None:
    async def main() -> None:
        simulation, machine = node()
        store = await opened(machine.world, small())
        other = Store(simulation._world("b", "10.0.0.9", machine.disk, machine.clock, 0), small())
        with pytest.raises(StoreError, match="Lock failed,MQ already started"):
            await other.load()
        machine.files.freeze()
        await die(store)
        simulation.kill(machine)
        store = await opened(machine.world, small())
        await store.stop()

    run(main())


def test_the_log_is_rescanned_where_it_was_not_forced() -> None:
    """Nothing after the newest flush counts as good only because it is there."""

    async def main() -> None:
        simulation, machine = node()
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        for n in range(200):
            store.append([put(queue, b"n%03d" % n)])
        await asyncio.sleep(1)
        machine.files.freeze()
        await die(store)
        simulation.kill(machine)
        scan = scan_log(machine.files, "/store/commitlog", LOG_SIZE)
        victim = scan.records[150]
        path = f"/store/commitlog/{victim.offset - victim.offset % LOG_SIZE:020d}"
        machine.disk.open(path).pwrite(b"\xff" * 8, victim.offset % LOG_SIZE + 88)
        store = await opened(machine.world, small(), start=False)
        assert len(store.recovered.damages) == 1
        await store.stop()

    run(main())


def test_the_older_file_is_forced_first() -> None:
    """A younger file on the disk proves nothing while the one before it is not (group commit over a roll)."""

    async def main() -> None:
        _, machine = node()
        history = History()
        store = Store(machine.world, small(sync_flush=True), history.answer)
        await store.load()
        await store.start()
        machine.disk.fail("datasync", errno.EIO, "*/00000000000000000000", count=-1)
        rng = random.Random(6)
        while len(store.log.segments) < 2:
            history.send(store, rng, 4, hold=True)
        history.send(store, rng, 4, hold=True)
        await asyncio.sleep(1)
        assert not history.acked
        assert history.codes
        assert set(history.codes) == {10}
        assert store.flusher.flushed == 0
        assert all(queue.visible == 0 for queue in store.queues)
        await store.stop()

    run(main())


@pytest.mark.parametrize("checkpoint", ["kept", "gone", "next year"])
@pytest.mark.parametrize("back", [1, 2])
def test_newest_files_are_checked_whatever_the_checkpoint_says(back: int, checkpoint: str) -> None:
    async def main() -> None:
        simulation, machine = node()
        # An index to be filled would have the whole log read.
        settings = small(index_enable=False)
        store = await opened(machine.world, settings)
        queue = store.queues.get_or_create("T", 0)
        number = 0
        while len(store.log.segments) < 5:
            store.append([put(queue, b"n%05d" % number * 8)])
            number += 1
        await asyncio.sleep(70)
        # In the same boot what was forced is believed: see test_same_boot.
        simulation.power_cut(machine)
        await die(store)
        scan = scan_log(machine.files, "/store/commitlog", LOG_SIZE)
        victim = next(r for r in scan.records if r.offset // LOG_SIZE == 4 - back and r.offset % LOG_SIZE > 3000)
        path = f"/store/commitlog/{victim.offset - victim.offset % LOG_SIZE:020d}"
        machine.disk.open(path).pwrite(b"\xff" * 8, victim.offset % LOG_SIZE + 88)
        if checkpoint == "gone":
            machine.files.unlink("/store/checkpoint")
        elif checkpoint == "next year":
            later = machine.clock.now_ms() + 365 * 86_400_000
            machine.disk.open("/store/checkpoint").pwrite(later.to_bytes(8, "big") * 3, 0)
        store = await opened(machine.world, settings, start=False)
        assert [tuple(damage) for damage in store.recovered.damages] == [(victim.offset, victim.offset + victim.size)]
        got = store.queues.get("T", 0)
        assert got is not None
        assert len(await bodies(store, got)) == number - 1
        await store.stop()

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_the_checkpoint_never_promises_what_is_not_on_disk(seed: int) -> None:
    """Java starts its recovery of our directory from these times (design.md section 4, the checkpoint rule)."""

    async def main() -> None:
        rng = random.Random(seed)
        simulation = Simulation(seed)
        machine = simulation.node("a", fsync_seconds=0.002)
        settings = small(queue_flush_interval_ms=100, queue_thorough_interval_ms=300)
        store = await opened(machine.world, settings)
        history = History()
        for _ in range(rng.randint(20, 80)):
            history.send(store, rng, rng.randint(1, 5), hold=False)
            await asyncio.sleep(rng.choice((0.001, 0.02, 0.15)))
        before = scan_log(machine.files, "/store/commitlog", LOG_SIZE)
        simulation.power_cut(machine, all_lost=True)
        await die(store)
        physic, logics, index = scan_checkpoint(machine.files, "/store")
        assert logics > 0
        queues = scan_queues(machine.files, "/store", QUEUE_SIZE, exact=False)
        after = scan_log(machine.files, "/store/commitlog", LOG_SIZE)
        on_disk = {record.offset for record in after.records}
        for record in before.records:
            if record.store_timestamp <= physic:
                assert record.offset in on_disk
            if record.store_timestamp <= logics:
                entries = queues[record.topic, record.queue_id]["entries"]
                assert entries[record.queue_offset][:2] == (record.offset, record.size)
        keys = {
            (entry[0], entry[1])
            for file in scan_index(machine.files, "/store", SLOTS, ENTRIES, exact=False)
            if file["end_time"] <= index
            for entry in file["entries"]
        }
        for record in before.records:
            if record.store_timestamp < index:
                assert (java_hash(f"{record.topic}#{record.properties['KEYS']}"), record.offset) in keys

    run(main())
