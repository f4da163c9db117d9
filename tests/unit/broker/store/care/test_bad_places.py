"""One record, queue or sector that is bad costs itself: dispatch, index, retention and start go on with the rest."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from struct import pack_into

import pytest

from rmq.broker.store.index import build as index_build
from rmq.broker.store.queues.files import QueueDisk
from rmq.broker.store.state import Put
from rmq.broker.store.store import Store
from rmq.protocol import properties
from rmq.protocol.names import SCHEDULE_TOPIC
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.faults.sick_disk import Sick
from tests.support.scenes.store import HOST, QUEUE_SIZE, bodies, body_of, die, opened, put, small


def append(store: Store, topic: str, body: bytes, **table: str) -> int:
    """Store a message with any properties; where it lies."""
    stored = properties.encode(table).encode()
    queue = store.queues.get_or_create(topic, 0)
    return store.append([Put(queue, body, stored, 0, 0, 1, HOST, HOST, 0, 0, 0, (b"k",))]).offsets[0][1]


async def killed_without_queues(simulation: Simulation, node: SimNode, store: Store) -> Store:
    """The next process, which has to make queues and index of the commit log; not started."""
    await store.flusher.flush_all()
    simulation.kill(node)
    await die(store)
    for folder in ("consumequeue", "index"):
        if node.files.is_dir(f"/store/{folder}"):
            QueueDisk(node.files, "/store", QUEUE_SIZE).remove_tree(f"/store/{folder}")
    return Store(node.world, small())


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_delay_of_any_length_costs_no_start(digits: int) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        store = await opened(node.world, small())
        append(store, SCHEDULE_TOPIC, b"bad", DELAY="9" * digits, REAL_TOPIC="T", REAL_QID="0")
        append(store, "T", b"good")
        again = await killed_without_queues(simulation, node, store)
        await again.load()
        assert await bodies(again, again.queues.get_or_create("T", 0)) == [b"good"]
        assert again.queues.get_or_create(SCHEDULE_TOPIC, 0).next == 1
        await again.start()
        await again.stop()

    run(main())


@pytest.mark.parametrize(
    ("field", "value", "form"),
    [(20, -5, ">q"), (20, 1 << 62, ">q"), (20, 1 << 59, ">q"), (12, -1, ">i"), (56, (1 << 63) - 1, ">q"),
     (56, -(1 << 63), ">q")],
    ids=["negative index", "huge index", "index behind all files", "negative queue", "late", "early"],
)  # fmt: skip
def test_a_field_that_no_checksum_covers_costs_its_record(field: int, value: int, form: str) -> None:
    """A delayed message, whose entry is made of its store time."""

    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        store = await opened(node.world, small())
        before = append(store, "T", b"before")
        bad = append(store, SCHEDULE_TOPIC, b"bad", DELAY="1", REAL_TOPIC="T", REAL_QID="0", KEYS="k")
        append(store, "T", b"after", KEYS="k")
        again = await killed_without_queues(simulation, node, store)
        spoilt = bytearray(8)
        pack_into(form, spoilt, 0, value)
        file = node.disk.open("/store/commitlog/" + "0" * 20)
        file.pwrite(bytes(spoilt[: 8 if form == ">q" else 4]), bad + field)
        file.close()
        await again.load()
        assert await bodies(again, again.queues.get_or_create("T", 0)) == [b"before", b"after"]
        assert before == 0
        await again.start()
        found = [body_of(record) for record in (await again.query_message("T", "k", 10, 0, 1 << 62)).records]
        assert b"after" in found
        append(again, "T", b"new")
        assert await bodies(again, again.queues.get_or_create("T", 0)) == [b"before", b"after", b"new"]
        await again.stop()

    run(main())


@pytest.mark.parametrize("wide", [1, 9000])
def test_a_bad_sector_costs_the_keys_in_it(monkeypatch: pytest.MonkeyPatch, wide: int) -> None:
    monkeypatch.setattr(index_build, "_STEP", 4096)
    monkeypatch.setattr(index_build, "_LEAST_AT_ONCE", 512)
    monkeypatch.setattr(index_build, "_MOST_AT_ONCE", 2048)
    monkeypatch.setattr(index_build, "_LEAST_GAP", 256)

    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world, small())
        places = []
        for number in range(400):
            places.append(store.log.end)
            store.append([put(store.queues.get_or_create("T", 0), b"%d" % number, key=f"k{number}")])
        await store.stop()
        for name in node.files.list("/store/index"):
            node.files.unlink(f"/store/index/{name}")
        node.files.unlink("/store/checkpoint")
        store = await opened(node.world, small(index_at_start=0), start=False)
        build = store.indexing.build
        assert build is not None
        read = build.reader._read
        bad = range(places[100] + 50, places[100] + 50 + wide)

        async def sick(file: object, offset: int, size: int) -> bytes:
            if offset < bad.stop and bad.start < offset + size:
                raise OSError(errno.EIO, os.strerror(errno.EIO), "/store/commitlog")
            return await read(file, offset, size)  # type: ignore[arg-type]

        monkeypatch.setattr(build.reader, "_read", sick)
        await store.start()
        await asyncio.sleep(60)
        assert build.complete
        lost = [n for n in range(400) if not (await store.query_message("T", f"k{n}", 10, 0, 1 << 62)).records]
        assert 100 in lost
        # Its neighbours, and what the growing leaps take along behind a wide region.
        assert len(lost) <= 3 + 2 * wide // 100
        assert await bodies(store, store.queues.get_or_create("T", 0)) == [b"%d" % n for n in range(400)]
        await store.stop()

    run(main())


def test_a_queue_that_retention_cannot_read_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        store = await opened(node.world, small())
        names = ("A", "B", "C")
        while len(store.log.segments) < 4:
            for name in names:
                store.append([put(store.queues.get_or_create(name, 0), b"x" * 100)])
        await store.force()
        sick = Sick(store)
        sick.entries("B", *range(500))
        await store.log.remove_first()
        await store.retention.run()
        start = store.log.start

        async def first(name: str) -> int:
            queue = store.queues.get_or_create(name, 0)
            entry = await store.queues.entries_cold(queue, queue.min, 1)
            return int.from_bytes(entry[:8], "big")

        assert [await first(name) >= start for name in ("A", "C")] == [True, True]
        await store.retention.run()
        told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 1
        assert "/store/consumequeue/B/0" in told[0]
        sick.heal()
        assert await first("B") < start
        await asyncio.sleep(5)
        await store.retention.run()
        assert await first("B") >= start
        await store.stop()

    run(main())


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_file_with_a_bad_sector_is_made_anew(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        store = await opened(node.world, small())
        for number in range(120):
            for name in ("A", "B"):
                store.append([put(store.queues.get_or_create(name, 0), b"%d" % number)])
        if clean:
            await store.stop()
        else:
            await store.force()
            simulation.kill(node)
            await die(store)
        node.disk.fail("pread", errno.EIO, f"/store/consumequeue/B/0/{QUEUE_SIZE:020d}", count=1)
        store = await opened(node.world, small())
        for name in ("A", "B"):
            assert await bodies(store, store.queues.get_or_create(name, 0)) == [b"%d" % n for n in range(120)]
        store.append([put(store.queues.get_or_create("B", 0), b"new")])
        await store.stop()
        told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len([text for text in told if re.search(r"consumequeue/B/0/0+800: .*check that disk", text)]) == 1
        store = await opened(node.world, small())
        assert (await bodies(store, store.queues.get_or_create("B", 0)))[119:] == [b"119", b"new"]
        await store.stop()

    run(main())


@pytest.mark.parametrize(
    "text",
    [
        '{"damaged":[],"position":1e400,"began":0}',
        '{"damaged":[],"position":0,"began":%s}' % ("9" * 400),
        '{"damaged":[],"position":0,"began":%s}' % ("9" * 5000),
        '{"damaged":[[5,1e300]],"position":0,"began":0}',
        '{"damaged":[[9,5]],"position":0,"began":0}',
        '{"damaged":[["a","b"],[1,2]],"position":0,"began":0}',
        '{"damaged":7,"position":0,"began":0}',
        "[" * 100_000,
        "7",
    ],
    ids=lambda text: text[:50],
)  # fmt: skip
def test_odd_numbers_in_scrub_json_cost_no_start(text: str) -> None:
    async def main() -> None:
        node = Simulation(1).node("a")
        node.files.mkdir("/store")
        node.files.write_atomic("/store/scrub.json", text.encode())
        store = await opened(node.world, small())
        assert store.scrub.progress() == "not begun yet; a pass takes 1 min at 4 MiB/s; no damage known"
        append(store, "T", b"good")
        await asyncio.sleep(90)
        assert store.scrub.checked > 0
        await store.stop()

    run(main())
