"""A directory of the real Java 4.9.4: what it holds is what we read, in whatever state its derived files are."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.store import Store
from rmq.protocol.message import decode_record
from rmq.runtime.files import RealFiles
from rmq.runtime.world import World
from tests.support.golden_store import MANIFEST, golden_settings, unpack
from tests.support.store_scan import check_store, scan_index, scan_log, scan_queues


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return unpack(tmp_path)


def _abort(directory: Path) -> None:
    (directory / "abort").touch()


def _no_queues(directory: Path) -> None:
    shutil.rmtree(directory / "consumequeue")


def _no_index(directory: Path) -> None:
    shutil.rmtree(directory / "index")


def _no_checkpoint(directory: Path) -> None:
    (directory / "checkpoint").unlink()


def _future_checkpoint(directory: Path) -> None:
    (directory / "checkpoint").write_bytes((1 << 61).to_bytes(8, "big") * 3 + bytes(4072))


def _zero_queue_file(directory: Path) -> None:
    path = directory / "consumequeue" / "GoldOrder" / "0" / "00000000000000000000"
    path.write_bytes(bytes(6000))


def _hole_in_queue(directory: Path) -> None:
    path = directory / "consumequeue" / "GoldOrder" / "0" / "00000000000000000000"
    data = path.read_bytes()
    path.write_bytes(data[:1000] + bytes(200) + data[1200:])


def _short_queue_file(directory: Path) -> None:
    path = directory / "consumequeue" / "GoldTag" / "0" / "00000000000000000000"
    path.write_bytes(path.read_bytes()[:70])


def _old_queue(directory: Path) -> None:
    path = directory / "consumequeue" / "GoldTag" / "1" / "00000000000000000000"
    path.write_bytes(path.read_bytes()[:100].ljust(6000, b"\0"))


def _everything_derived(directory: Path) -> None:
    _no_queues(directory)
    _no_index(directory)
    _no_checkpoint(directory)


CHANGES: list[Callable[[Path], None]] = [
    _abort, _no_queues, _no_index, _no_checkpoint, _future_checkpoint, _zero_queue_file, _hole_in_queue,
    _short_queue_file, _old_queue, _everything_derived,
]  # fmt: skip


async def _compare(store: Store) -> None:
    assert (store.log.start, store.log.end) == (0, MANIFEST["end"]["offset"])
    assert store.recovered.damages == []
    for wanted in MANIFEST["records"]:
        data = await store.messages.at(wanted["offset"])
        assert data is not None
        assert len(data) == wanted["size"]
        record = decode_record(data)
        assert (record.topic, record.queue_id, record.queue_offset) == (
            wanted["topic"], wanted["queueId"], wanted["queueOffset"],
        )  # fmt: skip
        assert record.properties == wanted["properties"]
    for wanted in MANIFEST["queues"]:
        queue = store.queues.get(wanted["topic"], wanted["queueId"])
        assert queue is not None, wanted["topic"]
        assert (queue.min, queue.visible, queue.next) == (
            wanted["firstIndex"], wanted["maxOffset"], wanted["maxOffset"],
        ), queue  # fmt: skip
        got: list[list[int]] = []
        while len(got) < queue.next:
            data = await store.queues.entries_cold(queue, len(got), 1000)
            assert data
            for at in range(0, len(data), 20):
                parts = (data[at : at + 8], data[at + 8 : at + 12], data[at + 12 : at + 20])
                got.append([len(got), *(int.from_bytes(part, "big", signed=True) for part in parts)])
        assert got == wanted["entries"], queue
    assert len(list(store.queues)) == len(MANIFEST["queues"])


async def test_opens_as_java_left_it(directory: Path) -> None:
    store = Store(World.real(), golden_settings(directory))
    recovered = await store.load()
    assert recovered.clean
    await _compare(store)
    assert [file.name for file in store.index or ()] == [file["file"] for file in MANIFEST["indexFiles"]]
    await store.stop()
    # Opening and closing changed nothing that Java reads.
    files = scan_index(RealFiles(), str(directory), 50, 200)
    for got, wanted in zip(files, MANIFEST["indexFiles"], strict=True):
        assert (got["begin_time"], got["end_time"], got["begin_offset"], got["end_offset"]) == (
            wanted["beginTimestamp"], wanted["endTimestamp"], wanted["beginPhyOffset"], wanted["endPhyOffset"],
        )  # fmt: skip
        assert (got["slot_count"], got["count"]) == (wanted["hashSlotCount"], wanted["indexCount"])
        assert [list(entry) for entry in got["entries"]] == wanted["entries"]
    check_store(RealFiles(), str(directory), log_size=1_048_576, queue_size=6000)


def test_the_checkpoint_is_read(directory: Path) -> None:
    checkpoint = Checkpoint(RealFiles(), str(directory / "checkpoint"))
    checkpoint.load()
    wanted = MANIFEST["checkpoint"]
    assert (checkpoint.physic, checkpoint.logics, checkpoint.index) == (
        wanted["physicMsgTimestamp"], wanted["logicsMsgTimestamp"], wanted["indexMsgTimestamp"],
    )  # fmt: skip


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("change", CHANGES)
async def test_derived_files_do_not_matter(directory: Path, change: Callable[[Path], None], abort: bool) -> None:
    change(directory)
    if abort:
        _abort(directory)
    store = Store(World.real(), golden_settings(directory))
    await store.load()
    await _compare(store)
    await _find_by_key(store)
    await store.stop()
    check_store(RealFiles(), str(directory), log_size=1_048_576, queue_size=6000)


async def _find_by_key(store: Store) -> None:
    """Every message is found by its unique key and by each of its keys."""
    for wanted in MANIFEST["records"]:
        properties = wanted["properties"]
        if wanted["sysFlag"] & 0xC == 0xC:
            continue
        for key in [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]:
            if key:
                offsets = await _query(store, wanted["topic"], key)
                assert wanted["offset"] in offsets, (wanted["topic"], key)


async def _query(store: Store, topic: str, key: str) -> list[int]:
    assert store.index is not None
    return await store.index.query(store.indexing.hasher(topic)(key.encode()), 400, 0, 1 << 62)


async def test_search_by_time(directory: Path) -> None:
    store = Store(World.real(), golden_settings(directory))
    await store.load()
    for wanted in MANIFEST["queues"]:
        queue = store.queues.get(wanted["topic"], wanted["queueId"])
        assert queue is not None
        times = {
            record["queueOffset"]: record["storeTimestamp"]
            for record in MANIFEST["records"]
            if (record["topic"], record["queueId"]) == (queue.topic, queue.id)
        }
        assert await store.earliest_time(queue) == times[queue.min]
        for index in list(times)[:: max(1, len(times) // 7)]:
            # Several messages may have one store time: the first of them.
            first = min(offset for offset, time in times.items() if time == times[index])
            assert await store.offset_by_time(queue, times[index]) == first
        assert await store.offset_by_time(queue, max(times.values()) + 10_000) == queue.visible
        assert times[await store.offset_by_time(queue, 1)] == times[queue.min]
    await store.stop()


def test_the_scanner_agrees_with_the_manifest(directory: Path) -> None:
    scan = scan_log(RealFiles(), str(directory / "commitlog"), 1_048_576)
    assert len(scan.records) == MANIFEST["recordCount"]
    assert scan.end == MANIFEST["end"]["offset"]
    assert [list(blank) for blank in scan.blanks] == [[b["offset"], b["size"]] for b in MANIFEST["blanks"]]
    queues = scan_queues(RealFiles(), str(directory), 6000)
    assert len(queues) == len(MANIFEST["queues"])


async def test_more_messages_go_behind_javas(directory: Path) -> None:
    from tests.support.scenes.store import bodies, put

    store = Store(World.real(), golden_settings(directory))
    await store.load()
    await store.start()
    queue = store.queues.get("GoldTag", 1)
    assert queue is not None
    before = queue.next
    store.append([put(queue, b"from python", key="pykey", tag="TagP")])
    assert (await bodies(store, queue))[-1] == b"from python"
    await store.stop()
    scan = check_store(RealFiles(), str(directory), log_size=1_048_576, queue_size=6000)
    assert (scan.records[-1].queue_offset, scan.records[-1].offset) == (before, MANIFEST["end"]["offset"])
    assert not (directory / "abort").exists()
