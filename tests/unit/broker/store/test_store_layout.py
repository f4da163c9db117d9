"""A directory written here, byte by byte as an independent reader of the format sees it."""

import asyncio
import hashlib
import tempfile
from pathlib import Path

from rmq.broker.store.log.records import TagsRule, check, derive
from rmq.broker.store.settings import DEFAULT_DELAYS_MS
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.state import Put
from rmq.protocol.message import decode_record
from rmq.runtime.files import RealFiles
from rmq.runtime.world import World
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimFiles
from tests.support.golden_store import unpack
from tests.support.scenes.store import ENTRIES, HOST, LOG_SIZE, QUEUE_SIZE, SLOTS, opened, put, small
from tests.support.store_scan import (
    check_store,
    java_hash,
    java_signed_hash,
    scan_checkpoint,
    scan_index,
    scan_log,
    scan_queues,
)

HOST6 = bytes.fromhex("20010db8000000000000000000000007") + (9876).to_bytes(4, "big")


async def test_a_directory_written_here(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    world = World.real()
    store = await opened(world, small(root))
    queues = [
        store.queues.get_or_create(topic, n) for topic in ("TopicTest", "%RETRY%group", "Ünïcode") for n in (0, 3)
    ]
    sent: list[tuple[Put, int]] = []
    for n in range(240):
        queue = queues[n * 7 % 6]
        message = put(queue, b"body %d " % n * (n % 50), key=f"key-{n}", tag=("", "TagA", "Täg")[n % 3], born=1000 + n)
        if n % 5 == 1:
            message = message._replace(born_host=HOST6, sys_flag=0x10)
        elif n % 5 == 2:
            message = message._replace(store_host=HOST6, sys_flag=0x20)
        elif n % 5 == 3:
            message = message._replace(born_host=HOST6, store_host=HOST6, sys_flag=0x31, flag=-5)
        elif n % 10 == 4:
            message = message._replace(sys_flag=0x8, reconsume_times=3, prepared_offset=77)
        span = store.append([message], 1_700_000_000_000 + n * 700)
        sent.append((message, span.offsets[0][1]))
    await asyncio.sleep(0)
    await store.stop()
    tree = RealFiles()
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == [
        "checkpoint", "checksums", "commitlog", "consumequeue", "index", "lock",
    ]  # fmt: skip
    assert (tmp_path / "store" / "lock").read_bytes() == b"lock"
    scan = check_store(tree, root, log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
    assert [record.offset for record in scan.records] == [offset for _, offset in sent]
    for record, (message, _) in zip(scan.records, sent, strict=True):
        assert record.body == message.body
        assert record.topic == message.queue.topic
        assert record.queue_id == message.queue.id
        assert (record.flag, record.sys_flag) == (message.flag, message.sys_flag)
        assert (record.born_timestamp, record.reconsume_times, record.prepared_offset) == (
            message.born_timestamp, message.reconsume_times, message.prepared_offset,
        )  # fmt: skip
        assert record.born_host == ("127.0.0.1:10911" if message.born_host == HOST else f"{HOST6[:16].hex()}:9876")
        assert record.store_host == ("127.0.0.1:10911" if message.store_host == HOST else f"{HOST6[:16].hex()}:9876")
    # Every full file ends with a blank record of what is left.
    assert [(offset + left) % LOG_SIZE for offset, left in scan.blanks] == [0] * len(scan.blanks)
    assert len(scan.blanks) == scan.end // LOG_SIZE
    tags = scan_queues(tree, root, QUEUE_SIZE)
    for record in scan.records:
        entry = tags[record.topic, record.queue_id]["entries"][record.queue_offset]
        assert entry == (record.offset, record.size, java_signed_hash(record.properties.get("TAGS", "")))
    indexed = [entry[:2] for file in scan_index(tree, root, SLOTS, ENTRIES) for entry in file["entries"]]
    assert indexed == [(java_hash(f"{r.topic}#{r.properties['KEYS']}"), r.offset) for r in scan.records]
    newest = scan.records[-1].store_timestamp
    assert scan_checkpoint(tree, root) == (newest, newest, newest)


async def test_the_same_messages_give_the_same_bytes(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        root = tmp_path / name
        store = await opened(World.real(), small(str(root)))
        queue = store.queues.get_or_create("T", 0)
        messages = [put(queue, b"%d" % n, key="k") for n in range(100)]
        # As one batch or one by one: no difference on the disk.
        for at in range(0, 100, 100 if name == "one" else 1):
            store.append(messages[at : at + 100 if name == "one" else at + 1], 1_700_000_000_000)
        await store.stop()
        # Index files are named by the time of day, and our note in the checkpoint names the newest.
        files = sorted(path for path in root.rglob("0*") if path.is_file())
        digests.append([(str(path.relative_to(root)), hashlib.sha256(path.read_bytes()).digest()) for path in files])
    assert digests[0] == digests[1]


def test_both_parsers_of_records_agree() -> None:
    """The store's own quick look and the protocol's codec, over the golden store's records."""
    rule = TagsRule(DEFAULT_DELAYS_MS)
    with tempfile.TemporaryDirectory() as folder:
        scan = scan_log(RealFiles(), f"{unpack(Path(folder))}/commitlog", 1_048_576)
    for wanted in scan.records:
        data = b"\0" * 7 + wanted.raw
        assert check(data, 7, wanted.offset, 1 << 20) == wanted.size
        assert check(data[:-1], 7, wanted.offset, 1 << 20) == -wanted.size
        assert check(data, 7, wanted.offset + 1, 1 << 20) == 0
        found = derive(data, 7, rule)
        record = decode_record(wanted.raw)
        assert (found.topic, found.queue_id, found.queue_offset, found.sys_flag, found.store_timestamp) == (
            record.topic, record.queue_id, record.queue_offset, record.sys_flag, record.store_timestamp,
        )  # fmt: skip
        keys = [wanted.properties[k] for k in ("UNIQ_KEY",) if k in wanted.properties]
        keys += [token for token in wanted.properties.get("KEYS", "").split(" ") if token]
        assert [key.decode() for key in found.keys] == keys


def test_a_checkpoint_of_any_length_is_read() -> None:
    tree = SimFiles(SimDisk())
    tree.mkdir("/s")
    ones = int.from_bytes(b"\1" * 8, "big")
    for content, time, oldest in (
        (b"", 0, 0),
        (b"\0" * 5, 0, 0),
        (b"\xff" * 4096, 0, 0),  # before 1970
        ((5).to_bytes(8, "big") * 3, 5, 0),
        (b"\1" * 10_000, ones, ones - 3000),
    ):
        file = tree.open("/s/checkpoint", create=True)
        file.truncate(0)
        file.pwrite(content, 0)
        checkpoint = Checkpoint(tree, "/s/checkpoint")
        checkpoint.load()
        assert (checkpoint.physic, checkpoint.logics, checkpoint.index) == (time, time, time)
        assert checkpoint.oldest == oldest
        assert checkpoint.clean_end == -1
    checkpoint.physic = checkpoint.logics = 12_345
    checkpoint.note_indexed(20260101000000005, 7, 99)
    checkpoint.save()
    again = Checkpoint(tree, "/s/checkpoint")
    again.load()
    assert (again.physic, again.oldest, again.clean_end) == (12_345, 9_345, 99)
    assert again.indexed_to(20260101000000005, 7) == 99
    assert again.indexed_to(20260101000000005, 8) is None
    # Java moves the times and leaves the rest as it is: the note is void.
    tree.open("/s/checkpoint").pwrite((12_346).to_bytes(8, "big"), 8)
    again.load()
    fresh = Checkpoint(tree, "/s/checkpoint")
    fresh.load()
    assert (fresh.logics, fresh.clean_end) == (12_346, -1)
