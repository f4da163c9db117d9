"""Every kind of damage to the golden store is found, named and placed; looking changes nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.stopped.stopped_store import StoppedStore, fitted
from rmq.broker.store.stopped.verify import Verified, verify
from rmq.protocol.errors import StoreError
from rmq.runtime.files import RealFiles
from rmq.runtime.world import World
from tests.support.golden_store import MANIFEST, golden_settings, state_of, unpack
from tests.support.scenes.store import opened, put, small

RECORD = next(one for one in MANIFEST["records"] if one["topic"] == "GoldTag" and one["queueOffset"] == 3)
LAST = MANIFEST["records"][-1]
QUEUE = "consumequeue/GoldTag/1/00000000000000000000"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("golden"))


@pytest.fixture
def root(unpacked: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked, tmp_path / "store"))


async def look(root: Path) -> Verified:
    async with StoppedStore(World.real(), golden_settings(root)) as store:
        return await verify(store)


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


async def test_what_java_left_is_clean_and_stays_as_it_is(root: Path) -> None:
    before = state_of(root)
    found = await look(root)
    assert (found.findings.damages, found.findings.notes) == ([], [])
    assert (found.log_start, found.log_end, found.records) == (0, MANIFEST["end"]["offset"], MANIFEST["recordCount"])
    assert (found.queues, found.entries) == (
        len(MANIFEST["queues"]), sum(len(queue["entries"]) for queue in MANIFEST["queues"]),
    )  # fmt: skip
    assert (found.index_files, found.keys) == (2, sum(len(file["entries"]) for file in MANIFEST["indexFiles"]))
    assert found.stamp == MANIFEST["records"][-1]["storeTimestamp"]
    assert state_of(root) == before


def _spoil_body(root: Path) -> None:
    write(root / "commitlog/00000000000000000000", RECORD["offset"] + 90, b"\xff")


def _zero_record(root: Path) -> None:
    write(root / "commitlog/00000000000000000000", RECORD["offset"], bytes(RECORD["size"]))


def _spoil_last(root: Path) -> None:
    write(root / "commitlog/00000000000001048576", LAST["offset"] - 1048576 + 90, b"\xff")


def _no_first_log_file(root: Path) -> None:
    shutil.move(root / "commitlog/00000000000001048576", root / "commitlog/00000000000003145728")


def _short_log_file(root: Path) -> None:
    os.truncate(root / "commitlog/00000000000001048576", 1_000_000)


def _log_file_cut_in_a_record(root: Path) -> None:
    os.truncate(root / "commitlog/00000000000000000000", RECORD["offset"] + 100)


def _misplaced_log_file(root: Path) -> None:
    shutil.copy(root / "commitlog/00000000000001048576", root / "commitlog/00000000000001048577")


def _directory_for_a_queue_file(root: Path) -> None:
    (root / QUEUE).unlink()
    (root / QUEUE).mkdir()


def _file_for_a_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/GoldTag/1")
    (root / "consumequeue/GoldTag/1").touch()


def _link_to_nothing(root: Path) -> None:
    path = _index(root)[1]
    path.unlink()
    path.symlink_to(root / "nowhere")


def _file_for_config(root: Path) -> None:
    shutil.rmtree(root / "config")
    (root / "config").touch()


def _zero_entry(root: Path) -> None:
    write(root / QUEUE, 3 * 20, bytes(20))


def _wrong_tags(root: Path) -> None:
    write(root / QUEUE, 3 * 20 + 12, (12345).to_bytes(8, "big"))


def _another_time(root: Path) -> None:
    path = next((root / "consumequeue/SCHEDULE_TOPIC_XXXX").rglob("0*0"))
    code = int.from_bytes(path.read_bytes()[12:20], "big")
    write(path, 12, (code ^ 1 << 20).to_bytes(8, "big"))


def _strange_entry(root: Path) -> None:
    write(root / QUEUE, 10 * 20, (RECORD["offset"]).to_bytes(8, "big") + (99).to_bytes(4, "big") + bytes(8))


def _no_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/GoldTag/1")


def _short_queue_file(root: Path) -> None:
    os.truncate(root / QUEUE, 5000)


def _index_entry(root: Path) -> None:
    write(_index(root)[0], 40 + 4 * 50 + 20 * 7 + 4, (1).to_bytes(8, "big"))


def _index_slot(root: Path) -> None:
    path = _index(root)[1]
    data = path.read_bytes()
    slot = next(at for at in range(50) if any(data[40 + 4 * at : 44 + 4 * at]))
    write(path, 40 + 4 * slot, (0).to_bytes(4, "big"))


def _index_hash(root: Path) -> None:
    """An entry of another key, which leads its chain astray."""
    path = _index(root)[1]
    data = path.read_bytes()
    at = 40 + 4 * 50 + 20 * 5
    write(path, at, ((int.from_bytes(data[at : at + 4], "big") + 50) & 0x7FFFFFFF).to_bytes(4, "big"))


def _no_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def _short_index(root: Path) -> None:
    os.truncate(_index(root)[1], 4000)


def _index(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def _no_checkpoint(root: Path) -> None:
    (root / "checkpoint").unlink()


def _future_checkpoint(root: Path) -> None:
    write(root / "checkpoint", 8, (1 << 61).to_bytes(8, "big"))


def _empty_topics(root: Path) -> None:
    (root / "config/topics.json").write_bytes(b"")


def _broken_offsets(root: Path) -> None:
    path = root / "config/consumerOffset.json"
    path.write_bytes(path.read_bytes()[:-20])


def _foreign_json(root: Path) -> None:
    (root / "config/consumerFilter.json").write_text("[1")


def _directory_for_groups(root: Path) -> None:
    (root / "config/subscriptionGroup.json").unlink()
    (root / "config/subscriptionGroup.json").mkdir()


DAMAGES: list[tuple[Callable[[Path], None], str, str, int | None, int | None]] = [
    (_spoil_body, "commitlog", "record", RECORD["offset"], RECORD["offset"] + RECORD["size"]),
    (_zero_record, "commitlog", "record", RECORD["offset"], RECORD["offset"] + RECORD["size"]),
    (_spoil_last, "commitlog", "tail", LAST["offset"] + 2, None),
    (_no_first_log_file, "commitlog", "missing", 1048576, 3145728),
    (_short_log_file, "commitlog", "size", None, None),
    (_log_file_cut_in_a_record, "commitlog", "size", None, None),
    (_misplaced_log_file, "commitlog", "name", None, None),
    (_directory_for_a_queue_file, "consumequeue", "unreadable", None, None),
    (_file_for_a_queue, "consumequeue", "unreadable", None, None),
    (_link_to_nothing, "index", "unreadable", None, None),
    (_file_for_config, "config", "unreadable", None, None),
    (_zero_entry, "consumequeue", "entry", 3, 4),
    (_wrong_tags, "consumequeue", "tags", 3, 4),
    (_another_time, "consumequeue", "tags", 0, 1),
    (_strange_entry, "consumequeue", "dangling", 10, 11),
    (_no_queue, "consumequeue", "entry", 0, 10),
    (_short_queue_file, "consumequeue", "size", None, None),
    (_index_entry, "index", "entry", 7, 200),
    (_index_slot, "index", "slots", None, None),
    (_index_hash, "index", "entry", None, None),
    (_no_index, "index", "entry", 0, None),
    (_short_index, "index", "size", None, None),
    (_no_checkpoint, "checkpoint", "missing", None, None),
    (_future_checkpoint, "checkpoint", "time", None, None),
    (_empty_topics, "config", "file", None, None),
    (_broken_offsets, "config", "file", None, None),
    (_foreign_json, "config", "file", None, None),
    (_directory_for_groups, "config", "file", None, None),
]


@pytest.mark.parametrize(("spoil", "part", "kind", "start", "end"), DAMAGES)
async def test_damage_is_found_in_its_place(
    root: Path, spoil: Callable[[Path], None], part: str, kind: str, start: int | None, end: int | None
) -> None:
    spoil(root)
    before = state_of(root)
    found = await look(root)
    assert not found.clean
    one = next(finding for finding in found.findings.damages if (finding.part, finding.kind) == (part, kind))
    assert one.path.startswith(str(root))
    if start is not None:
        assert one.start == start
    if end is not None:
        assert one.end == end
    json.dumps(one.as_json())
    assert state_of(root) == before


async def test_queue_files_that_are_missing_are_told_once_beside_their_entries(tmp_path: Path) -> None:
    settings = small(str(tmp_path / "store"))
    store = await opened(World.real(), settings)
    for number in range(200):
        store.append([put(store.queues.get_or_create("T", 0), b"%d" % number)])
    await store.stop()
    files = sorted((tmp_path / "store/consumequeue/T/0").iterdir())
    for file in files[1:3]:
        file.unlink()
    async with StoppedStore(World.real(), settings) as stopped:
        found = (await verify(stopped)).findings.damages
    assert [(one.part, one.kind, one.path) for one in found if one.kind == "missing"] == [
        ("consumequeue", "missing", str(files[3]))
    ]
    assert [(one.kind, one.start, one.end) for one in found if one.kind != "missing"] == [("entry", 40, 120)]


async def test_light_queues_are_whole_whatever_the_settings_say(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    store = await opened(World.real(), small(root, multi_dispatch=True, lmq=True))
    for queue_id in (0, 1, 2):
        one = put(store.queues.get_or_create("T", queue_id), b"x")
        store.append([one._replace(properties=b"INNER_MULTI_DISPATCH\x01%LMQ%x\x02")])
    await store.stop()
    for settings in (small(root), small(root, multi_dispatch=True, lmq=True)):
        async with StoppedStore(World.real(), settings) as stopped:
            found = await verify(stopped)
        assert (found.findings.damages, found.entries) == ([], 6)


async def test_what_is_no_damage_is_a_note(root: Path) -> None:
    (root / "abort").touch()
    (root / "commitlog/notes.txt").write_text("mine")
    (root / "config/topics.json.bak").write_bytes(b"")
    (root / "config/topics.json.tmp").write_bytes(b"{")
    offsets = root / "config/consumerOffset.json"
    offsets.write_text('{"offsetTable":{"GoldTag@g":{1:11}}}')
    found = await look(root)
    assert found.findings.damages == []
    assert {(note.part, note.kind) for note in found.findings.notes} == {
        ("store", "unclean"), ("commitlog", "foreign"), ("config", "backup"), ("config", "leftover"),
        ("config", "offset"),
    }  # fmt: skip


async def test_a_deleted_topic_is_no_damage(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/GoldTag")
    topics = json.loads((root / "config/topics.json").read_text())
    del topics["topicConfigTable"]["GoldTag"]
    (root / "config/topics.json").write_text(json.dumps(topics))
    found = await look(root)
    assert found.findings.damages == []
    assert [(note.kind, note.topic) for note in found.findings.notes if note.kind == "deleted"] == [
        ("deleted", "GoldTag")
    ]


async def test_a_store_in_use_or_none_at_all_is_refused(root: Path, tmp_path: Path) -> None:
    lock = RealFiles().lock(str(root / "lock"))
    try:
        with pytest.raises(StoreError, match=f"a broker uses {root}"):
            await look(root)
    finally:
        lock.release()
    with pytest.raises(StoreError, match="no such directory"):
        await look(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="holds no store"):
        await look(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


async def test_no_broker_starts_while_it_is_looked_at(root: Path) -> None:
    async with StoppedStore(World.real(), golden_settings(root)):
        with pytest.raises(BlockingIOError):
            RealFiles().lock(str(root / "lock"))
    RealFiles().lock(str(root / "lock")).release()


def test_file_sizes_are_found_out(root: Path) -> None:
    plain = StoreSettings(str(root))
    made = fitted(RealFiles(), plain, ())
    assert (made.commit_log_file_size, made.queue_file_size) == (1_048_576, 6000)
    kept = fitted(RealFiles(), plain, ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"))
    assert (kept.commit_log_file_size, kept.queue_file_size) == (1 << 30, 6_000_000)
