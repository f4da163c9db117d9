"""Units of consumequeue_ext: Java's bytes, found again after every kind of end, cut and deleted with their entries."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import pytest

from rmq.broker.store.queues.ext_queues import ExtQueueTable
from rmq.broker.store.queues.ext_units import ExtUnit, QueueExt, is_address, position_of
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.state import Put, Queue
from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import body_of, die, put, small

EXT_SIZE = 4096
FIRST = "/store/consumequeue_ext/T/0/00000000000000000000"


def bits(topic: str, properties: bytes) -> bytes:
    """A bit map that tells its message apart: 14 bytes as with Java's defaults, none for topic U."""
    return b"" if topic == "U" else (properties * 14)[:14]


def message(queue: Queue, number: int) -> Put:
    return put(queue, b"body %d" % number, tag=f"Tag{number}")


async def opened(world: World, **changes: Any) -> Store:
    store = Store(world, small(**({"ext_enable": True, "ext_file_size": EXT_SIZE} | changes)))
    store.bit_map = bits
    await store.load()
    await store.start()
    return store


def fill(store: Store, first: int, count: int, topic: str = "T") -> None:
    queue = store.queues.get_or_create(topic, 0)
    for number in range(first, first + count):
        # The lane appends plain tuples, everybody else what message() makes.
        store.append([message(queue, number) if number % 2 else tuple(message(queue, number))])  # type: ignore[list-item]


async def check(store: Store, count: int, topic: str = "T") -> None:
    """Every message has its plain tags code and its unit; what a power cut took from the log has neither."""
    queue = store.queues.get_or_create(topic, 0)
    assert queue.next == count
    index = queue.min
    while index < count:
        data = await store.queues.entries_cold(queue, index, 7)
        assert store.queues.entries(queue, index, 7) == data
        assert store.ext is not None
        units = await store.ext.units_cold(queue, index, 7)
        assert store.ext.units(queue, index, 7) == units
        for (offset, size, code), unit in zip(struct.iter_unpack(">qiq", data), units, strict=True):
            wanted = message(queue, index)
            index += 1
            if is_blank(offset, size):
                assert (code, unit) == (0, None)
                continue
            assert code == wanted.tags_code
            record = await store.messages.at(offset)
            assert record is not None
            assert len(record) == size
            assert body_of(record) == wanted.body
            stored_at = int.from_bytes(record[56:64], "big")
            assert unit == ExtUnit(wanted.tags_code, stored_at, bits(topic, wanted.properties))


def test_the_bytes_are_javas() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world)
        fill(store, 0, 2)
        fill(store, 0, 1, "U")
        await store.stop()
        file = node.files.read(FIRST)
        assert len(file) == EXT_SIZE
        code = message(store.queues.get_or_create("T", 0), 0).tags_code
        entry = node.files.read("/store/consumequeue/T/0/00000000000000000000")[:40]
        assert [struct.unpack_from(">q", entry, at)[0] for at in (12, 32)] == [-(1 << 63), 34 - (1 << 63)]
        size, tags, time, length = struct.unpack_from(">hqqh", file)
        assert (size, tags, length, file[20:34]) == (34, code, 14, (b"TAGS\x01Tag0" * 2)[:14])
        assert time > 0
        assert file[34:36] == (34).to_bytes(2, "big")
        assert not any(file[68:])
        assert node.files.read("/store/consumequeue_ext/U/0/00000000000000000000")[:2] == (20).to_bytes(2, "big")

    run(main())


def test_a_full_file_ends_with_a_mark() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world)
        fill(store, 0, 300)
        await check(store, 300)
        await store.stop()
        # 120 units of 34 bytes are 4080; the next one and the mark do not fit into 16.
        assert node.files.read(FIRST)[4080:4084] == b"\xff\xff\0\0"
        assert node.files.list("/store/consumequeue_ext/T/0") == [f"{n * EXT_SIZE:020d}" for n in range(3)]
        again = await opened(node.world)
        await check(again, 300)
        fill(again, 300, 10)
        await check(again, 310)
        await again.stop()

    run(main())


@pytest.mark.parametrize(("file_size", "most"), [(EXT_SIZE, EXT_SIZE - 4 - 20), (1 << 20, 0x7FFF - 20)])
def test_a_unit_that_no_file_can_hold_leaves_its_entry_the_tags_code(file_size: int, most: int) -> None:
    ext = QueueExt("/queue")
    assert ext.put(ExtUnit(7, 1, bytes(most + 1)), file_size) == 7
    assert (ext.end, ext.pieces) == (0, [])
    largest = ExtUnit(7, 1, b"b" * most)
    code = ext.put(largest, file_size)
    assert (is_address(code), position_of(code)) == (True, 0)
    assert ext.waiting(0) == (largest, 20 + most)
    assert ext.end == 20 + most


def _gone(node: SimNode) -> None:
    for name in node.files.list("/store/consumequeue_ext/T/0"):
        node.files.unlink(f"/store/consumequeue_ext/T/0/{name}")


def _zeroed(node: SimNode) -> None:
    node.disk.open(FIRST).pwrite(bytes(500), 1000)


def _torn_map(node: SimNode) -> None:
    """The bit map of unit 29 and what follows: its head, at 986, looks good."""
    node.disk.open(FIRST).pwrite(bytes(500), 29 * 34 + 21)


def _torn_last_map(node: SimNode) -> None:
    node.disk.open(f"/store/consumequeue_ext/T/0/{2 * EXT_SIZE:020d}").pwrite(bytes(100), 59 * 34 + 21)


def _cut(node: SimNode) -> None:
    node.disk.open(FIRST).truncate(2000)


def _garbage_behind(node: SimNode) -> None:
    node.disk.open(f"/store/consumequeue_ext/T/0/{2 * EXT_SIZE:020d}").pwrite(b"\0\x14" * 500, 2040 + 34)


def _entries_gone(node: SimNode) -> None:
    node.files.unlink("/store/consumequeue/T/0/00000000000000000000")


#: What is damaged after a clean stop is for mqadmin store verify: the next start trusts what is there.
_SPOILT = [
    (spoil, False) for spoil in (_gone, _zeroed, _torn_map, _torn_last_map, _cut, _garbage_behind, _entries_gone, None)
]
_SPOILT += [(spoil, True) for spoil in (_gone, _garbage_behind, _entries_gone, None)]


@pytest.mark.parametrize(("spoil", "clean"), _SPOILT)
def test_recovered_whatever_is_left(spoil: Any, clean: bool) -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world)
        fill(store, 0, 300)
        await store.stop()
        if not clean:
            node.disk.open("/store/abort", create=True)
        if spoil is not None:
            spoil(node)
        store = await opened(node.world)
        await check(store, 300)
        fill(store, 300, 50)
        await check(store, 350)
        await store.stop()
        store = await opened(node.world)
        await check(store, 350)
        await store.stop()

    run(main())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("power", [False, True])
def test_kills_and_power_cuts(seed: int, power: bool) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        simulation = Simulation(seed)
        node = simulation.node("a")
        count = 0
        for _ in range(5):
            store = await opened(node.world, queue_flush_interval_ms=100, queue_thorough_interval_ms=300)
            queue = store.queues.get_or_create("T", 0)
            assert queue.next <= count
            count = queue.next
            await check(store, count)
            for _ in range(rng.randint(3, 20)):
                fill(store, count, burst := rng.randint(1, 20))
                count += burst
                await asyncio.sleep(rng.choice((0, 0.05, 0.4)))
            world = simulation.power_cut(node) if power else simulation.kill(node)
            await die(store)
            node.world = world

    run(main())


def test_a_refused_append_leaves_no_unit() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world)
        fill(store, 0, 3)
        queue = store.queues.get_or_create("T", 0)
        node.disk.fail("pwrite", 5, "/store/commitlog/*")
        with pytest.raises(OSError, match="Input/output"):
            store.append([message(queue, 3)])
        store.log.gate = 0
        fill(store, 3, 2)
        assert isinstance(store.queues, ExtQueueTable)
        assert store.queues.ext.of(queue).end == 5 * 34
        await check(store, 5)
        await store.stop()

    run(main())


def test_units_go_with_their_entries() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world)
        queue = store.queues.get_or_create("T", 0)
        fill(store, 0, 400)
        fill(store, 0, 5, "U")
        await store.force()
        assert len(node.files.list("/store/consumequeue_ext/T/0")) == 4
        await store.log.remove_first()
        await store.log.remove_first()
        await store.retention.delete_derived()
        assert 120 < queue.min < 400
        assert f"{0:020d}" not in node.files.list("/store/consumequeue_ext/T/0")
        await check(store, 400)
        await store.queues.cut(queue, 350)
        assert store.queues.ext.of(queue).end < 350 * 36  # type: ignore[attr-defined]
        store.queues.drop("U")
        await store.writer.sweep()
        assert not node.files.exists("/store/consumequeue_ext/U")
        await store.stop()

    run(main())


def test_units_are_read_though_none_are_written() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world)
        fill(store, 0, 200)
        await store.stop()
        before = node.files.read(FIRST)
        store = await opened(node.world, ext_enable=False)
        await check(store, 200)
        fill(store, 200, 5)
        queue = store.queues.get_or_create("T", 0)
        assert store.ext is not None
        assert await store.ext.units_cold(queue, 203, 2) == [None, None]
        await store.stop()
        assert node.files.read(FIRST) == before

    run(main())


def test_another_file_size_is_refused_by_name() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world)
        fill(store, 0, 2)
        await store.stop()
        # Longer files than are configured; shorter ones are a crash's leftovers.
        node.disk.open(FIRST).allocate(2 * EXT_SIZE)
        with pytest.raises(StoreError, match=f"{FIRST}.*mappedFileSizeConsumeQueueExt"):
            await opened(node.world)

    run(main())


def test_a_store_without_units_knows_nothing_of_them() -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world, ext_enable=False)
        assert store.ext is None
        assert store.bit_map is None
        fill(store, 0, 3)
        await store.stop()
        assert not node.files.exists("/store/consumequeue_ext")

    run(main())
