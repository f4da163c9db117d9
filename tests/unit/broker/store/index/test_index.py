"""The index: what is on disk, what a query finds, rolls, chains that are damaged, recovery."""

import asyncio
import errno
import random
from datetime import datetime

import pytest

from rmq.broker.store.index.index import Index
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import ENTRIES, SLOTS, body_of, die, opened, put, small
from tests.support.store_scan import java_hash, scan_index


def fresh() -> tuple[SimNode, Index, Checkpoint]:
    machine = Simulation(1).node("a")
    machine.files.mkdir("/store")
    checkpoint = Checkpoint(machine.files, "/store/checkpoint")
    return machine, Index(machine.world, small(), checkpoint), checkpoint


def test_entries_chains_and_headers_are_javas() -> None:
    async def main() -> None:
        machine, index, checkpoint = fresh()
        rng = random.Random(1)
        now = machine.clock.now_ms()
        items: list[tuple[int, int, int]] = []
        for n in range(130):
            now += rng.randint(0, 1500)
            items.append((java_hash(f"T#k{rng.randrange(30)}"), n * 100, now))
            index.put(items[-1][0], n * 100, now)
            if n % 20 == 0:
                await index.writer.write()
        await index.writer.force()
        files = scan_index(machine.files, "/store", SLOTS, ENTRIES)
        assert [file["count"] for file in files] == [ENTRIES, ENTRIES, 130 - 2 * (ENTRIES - 1) + 1]
        assert files == sorted(files, key=lambda file: file["file"])
        first = 0
        for file in files:
            mine = items[first : first + file["count"] - 1]
            first += len(mine)
            assert (file["begin_time"], file["end_time"]) == (mine[0][2], mine[-1][2])
            assert (file["begin_offset"], file["end_offset"]) == (mine[0][1], mine[-1][1])
            newest: dict[int, int] = {}
            for number, ((value, offset, seconds, before), item) in enumerate(
                zip(file["entries"], mine, strict=True), 1
            ):
                assert (value, offset, seconds) == (item[0], item[1], (item[2] - mine[0][2]) // 1000)
                assert before == newest.get(value % SLOTS, 0)
                newest[value % SLOTS] = number
            assert file["slots"] == [newest.get(slot, 0) for slot in range(SLOTS)]
            assert file["slot_count"] == len(newest)
        assert checkpoint.index == files[-1]["end_time"]
        index.close()

    run(main())


def test_files_are_named_by_local_time_and_never_twice() -> None:
    async def main() -> None:
        machine, index, _ = fresh()
        now = machine.clock.now_ms()
        for n in range(3 * ENTRIES):
            index.put(5, n, now)
        names = [file.name for file in index]
        assert names[0] == datetime.fromtimestamp(now // 1000).strftime("%Y%m%d%H%M%S") + f"{now % 1000:03d}"
        assert names == sorted(set(names))
        # The clock goes back: names still grow.
        machine.clock.skew_ms = -3_600_000
        for n in range(3 * ENTRIES, 6 * ENTRIES):
            index.put(5, n, now)
        names = [file.name for file in index]
        assert names == sorted(set(names))
        index.close()

    run(main())


def test_a_query_walks_back_in_time() -> None:
    async def main() -> None:
        machine, index, _ = fresh()
        begin = machine.clock.now_ms()
        for n in range(120):
            index.put(7 if n % 3 == 0 else 7 + SLOTS, n, begin + n * 1000)
        for _ in range(2):
            everything = await index.query(7, 1000, 0, 1 << 62)
            assert everything == [n for n in range(119, -1, -1) if n % 3 == 0]
            assert await index.query(7, 5, 0, 1 << 62) == everything[:5]
            assert await index.query(7, 1000, begin + 30_000, begin + 60_000) == list(range(60, 29, -3))
            assert await index.query(7, 1000, begin + 900_000, begin + 1_000_000) == []
            assert await index.query(8, 1000, 0, 1 << 62) == []
            # Once more from files alone, the page cache cold.
            await index.writer.force()
            machine.disk.evict("*")
        index.close()

    run(main())


@pytest.mark.parametrize("damage", ["cycle", "forward", "huge", "negative time"])
def test_a_damaged_chain_ends(damage: str) -> None:
    async def main() -> None:
        machine, index, _ = fresh()
        for n in range(1, ENTRIES + 20):
            index.put(7, n, 1_000_000)
        await index.writer.force()
        file = machine.disk.open(index.files[0].path)
        at = 40 + 4 * SLOTS + 20 * 10
        change = {"cycle": (16, 10), "forward": (16, 40), "huge": (16, 1 << 30), "negative time": (12, -5)}[damage]
        file.pwrite(change[1].to_bytes(4, "big", signed=True), at + change[0])
        found = await index.query(7, 10_000, 0, 1 << 62)
        assert len(found) == len(set(found))
        assert found[:20] == list(range(ENTRIES + 19, ENTRIES - 1, -1))
        index.close()

    run(main())


def test_what_cannot_be_written_stays_findable() -> None:
    async def main() -> None:
        machine, index, checkpoint = fresh()
        machine.disk.fail("pwrite", errno.EIO, "*index*", count=3)
        for n in range(ENTRIES + 10):
            index.put(7, n, 1_000_000)
        for _ in range(3):
            with pytest.raises(OSError, match="rror"):
                await index.writer.write()
            assert checkpoint.index == 0
            assert len(await index.query(7, 1000, 0, 1 << 62)) == ENTRIES + 10
        await index.writer.write()
        assert checkpoint.index == 1_000_000
        assert len(await index.query(7, 1000, 0, 1 << 62)) == ENTRIES + 10
        index.close()

    run(main())


def test_expired_files_go_but_the_newest_stays() -> None:
    async def main() -> None:
        machine, index, _ = fresh()
        for n in range(4 * ENTRIES):
            index.put(7, n * 10, 1_000_000)
        await index.writer.force()
        names = [file.name for file in index]
        assert await index.delete_expired(index.files[1].end_offset + 1) == 2
        assert machine.files.list("/store/index") == names[2:]
        assert await index.delete_expired(1 << 60) == len(names) - 3
        assert machine.files.list("/store/index") == names[-1:]
        index.close()

    run(main())


@pytest.mark.parametrize("damage", ["entries", "slots", "header", "short", "unforced", "nothing"])
def test_a_crash_loses_no_key(damage: str) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        store = await opened(machine.world, small(queue_thorough_interval_ms=4000))
        queue = store.queues.get_or_create("T", 0)
        for n in range(170):
            store.append([put(queue, b"%d" % n, key=f"k{n}")])
            await asyncio.sleep(0.05)
        machine.files.freeze()
        await die(store)
        simulation.kill(machine)
        names = machine.files.list("/store/index")
        assert len(names) == 4
        for name in names[-2:]:
            file = machine.disk.open(f"/store/index/{name}")
            if damage == "entries" and name == names[-1]:
                file.pwrite(bytes(60), 40 + 4 * SLOTS + 20 * 7)
            elif damage == "slots":
                file.pwrite(bytes(4 * SLOTS), 40)
            elif damage == "header":
                file.pwrite(bytes(40), 0)
            elif damage == "short":
                file.truncate(200)
        if damage == "unforced":
            machine.disk.power_cut(simulation.random)
        store = await opened(machine.world, small())
        end = queue.next if damage != "unforced" else store.queues.get_or_create("T", 0).next
        for n in range(end):
            found = (await store.query_message("T", f"k{n}", 10, 0, 1 << 62)).records
            assert [body_of(record) for record in found] == [b"%d" % n], n
        assert (await store.query_message("T", f"k{end}", 10, 0, 1 << 62)).records == []
        await store.stop()
        # All that a clean stop leaves is consistent for Java, too.
        for file in scan_index(machine.files, "/store", SLOTS, ENTRIES):
            newest: dict[int, int] = {}
            for number, (value, _, _, before) in enumerate(file["entries"], 1):
                assert before == newest.get(value % SLOTS, 0)
                newest[value % SLOTS] = number
            assert file["slots"] == [newest.get(slot, 0) for slot in range(SLOTS)]

    run(main())


def test_java_finds_no_half_index_after_a_crash() -> None:
    """A file whose slots are not on disk says so: its end time is behind every checkpoint, Java destroys it."""

    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        store = await opened(machine.world, small(queue_thorough_interval_ms=10_000_000))
        queue = store.queues.get_or_create("T", 0)
        now = machine.clock.now_ms()
        for n in range(ENTRIES + 10):
            # All of one millisecond: no file can be told by its time from the one before.
            store.append([put(queue, key=f"k{n}")], now)
        await asyncio.sleep(3)
        first, second = scan_index(machine.files, "/store", SLOTS, ENTRIES)
        assert store.checkpoint.index == first["end_time"] == now
        assert any(first["slots"])
        assert not any(second["slots"])
        assert second["end_time"] > now
        for round_ in range(2):
            # The process might die while the slots are being written: no header on disk vouches for them.
            store.append([put(queue, key=f"r{round_}")], now)
            machine.disk.fail("datasync", errno.EIO, "*index*", after=1)
            await store.force()
            second = scan_index(machine.files, "/store", SLOTS, ENTRIES)[1]
            assert second["end_time"] > now
            await store.force()
            second = scan_index(machine.files, "/store", SLOTS, ENTRIES)[1]
            assert (second["end_time"], store.checkpoint.index) == (now, now)
            assert any(second["slots"])
        await store.stop()

    run(main())


def test_without_an_index() -> None:
    async def main() -> None:
        machine = Simulation(1).node("a")
        store = await opened(machine.world, small(index_enable=False))
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, key="k")])
        assert (await store.query_message("T", "k", 5, 0, 1 << 62)).records == []
        await store.stop()
        assert not machine.files.exists("/store/index")
        # Switched on later, it has what came before.
        store = await opened(machine.world, small())
        assert len((await store.query_message("T", "k", 5, 0, 1 << 62)).records) == 1
        await store.stop()

    run(main())
