"""A store that Java 4.9.4 left, with bytes flipped, zeroed, cut, replaced, added, as seeds draw them.

It is looked at (``store verify``), made anew (``store rebuild``) by every other seed, started, read by pulls,
scrubbed, and read again. Java keeps no checksums of what stands beside the bodies, so a change there may be served; but
no body is ever served that is not the message's own, each message whose bytes are untouched comes, what verify finds is
told, and a start that is refused says so in one line about a file that there is.
"""

from __future__ import annotations

import functools
import logging
import random
import tarfile
from pathlib import Path

import pytest

from rmq.broker.schedule.timing import may_have
from rmq.broker.store.stopped.rebuild import rebuild
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.broker.store.stopped.verify import verify
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ConfigError, StoreError
from rmq.protocol.headers.pull import PullMessageResponse
from rmq.protocol.message import decode_record, decode_records
from rmq.protocol.names import TIMER_TOPIC
from rmq.testing.simloop import run
from tests.support.golden_store import GOLDEN, MANIFEST, golden_settings
from tests.support.kills.campaign import amount
from tests.support.raw_peer import pull
from tests.support.scenes.pop import PopScene

LOG_SIZE = 1_048_576
SETTINGS = {
    "mappedFileSizeCommitLog": str(LOG_SIZE),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
    "commitLogScrubRate": "0",
}
_READ = frozenset({
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip

#: Bytes of files, by path.
Files = dict[str, bytes]
#: Offset -> body, of each queue.
Bodies = dict[tuple[str, int], dict[int, bytes]]


@functools.cache
def java_files() -> Files:
    with tarfile.open(GOLDEN / "store-4.9.4.tar.xz") as archive:
        files = ((member, archive.extractfile(member)) for member in archive if member.isfile())
        return {f"/{member.name}": file.read() for member, file in files if file is not None}


@functools.cache
def places() -> dict[tuple[str, int], dict[int, tuple[int, int]]]:
    """Where the messages of queues that clients read lie: commit-log offset and size, by queue and offset."""
    return {
        (queue["topic"], queue["queueId"]): {index: (offset, size) for index, offset, size, _ in queue["entries"]}
        for queue in MANIFEST["queues"]
        if queue["topic"].startswith(("Gold", "%DLQ%", "%RETRY%"))
    }


@functools.cache
def sent() -> Bodies:
    files = java_files()

    def body(offset: int, size: int) -> bytes:
        at = offset % LOG_SIZE
        return decode_record(files[f"/store/commitlog/{offset - at:020d}"][at : at + size]).body

    return {queue: {index: body(*place) for index, place in there.items()} for queue, there in places().items()}


def spoil(files: Files, rng: random.Random) -> tuple[Files, str]:
    """Do one to three things; the files after it, and what was done."""
    changed, done = dict(files), []
    for _ in range(rng.choice((1, 1, 2, 3))):
        folder = rng.choice(("commitlog", "commitlog", "consumequeue", "index", "config", "checkpoint"))
        path = rng.choice(sorted(path for path in files if path.startswith(f"/store/{folder}")))
        data = bytearray(changed[path])
        used = len(data.rstrip(b"\0")) or len(data) or 1
        at, size = rng.randrange(used), rng.choice((1, 4, 20, 512, 4096, 70_000))
        size = len(data[at : at + size])
        how = rng.choice(("flip", "flip", "flip", "zero", "noise", "cut", "add", "shift"))
        if how == "flip":
            for place in (at, *rng.choices(range(used), k=rng.choice((0, 0, 7)))):
                if place < len(data):
                    data[place] ^= 1 << rng.randrange(8)
        elif how in ("zero", "noise"):
            data[at : at + size] = bytes(size) if how == "zero" else rng.randbytes(size)
        elif how == "cut":
            del data[at:]
        elif how == "add":
            data += rng.randbytes(rng.choice((1, 20, 4096)))
        else:
            data[at:] = (rng.randbytes(rng.choice((1, 8))) + data[at:])[: len(data) - at]
        changed[path] = bytes(data)
        done.append(f"{how} {path} at {at}, {size} bytes")
    return changed, "; ".join(done)


class _Told(logging.Handler):
    """What the log says from warnings on; a traceback is none of it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info is None, f"{record.getMessage()}: {record.exc_info}"
        self.lines.append(record.getMessage())


async def read(scene: PopScene) -> Bodies:
    """Everything that consumers are given."""
    given: Bodies = {}
    for topic, queue_id in places():
        there = given[topic, queue_id] = {}
        offset = 0
        for _ in range(60):
            request = pull("reader", topic, offset, queue=queue_id)
            answer = await scene.client.request(scene.addr, request, 60.0)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                break  # topics.json was damaged in a way that leaves it readable
            assert answer.code in _READ, f"{topic}-{queue_id} {offset}: {answer.code} {answer.remark}"
            begin, offset = offset, answer.header(PullMessageResponse).next_begin_offset
            if answer.code == ResponseCode.SUCCESS:
                there |= {record.queue_offset: record.body for record in decode_records(answer.body)}
            elif offset == begin:
                break
        else:
            raise AssertionError(f"{topic}-{queue_id} stands still at {offset}")
    return given


def untouched(changed: Files, queue: tuple[str, int]) -> set[int]:
    """Offsets of the messages of a queue whose records are as they were."""
    files = java_files()
    found = set()
    for index, (offset, size) in places()[queue].items():
        at = offset % LOG_SIZE
        path = f"/store/commitlog/{offset - at:020d}"
        if files[path][at : at + size] == changed[path][at : at + size]:
            found.add(index)
    return found


@pytest.mark.parametrize("seed", range(amount(5, 1500)))
def test_no_byte_of_it_is_believed_that_is_not_the_messages(seed: int) -> None:
    rng = random.Random(seed)
    changed, done = spoil(java_files(), rng)
    told = _Told()

    async def main() -> None:
        scene = PopScene(seed, SETTINGS)
        for path, data in changed.items():
            scene.node.files.mkdir(path.rpartition("/")[0])
            file = scene.node.disk.open(path, create=True)
            file.pwrite(data, 0)
            file.datasync()
        settings = golden_settings(Path("/store"))
        refusal = ""
        try:
            async with StoppedStore(scene.node.world, settings) as stopped:
                found = await verify(stopped, codes={TIMER_TOPIC: may_have})
            if seed % 2:
                await rebuild(scene.node.world, settings)
            await scene.start()
        except (StoreError, ConfigError) as error:
            refusal = str(error)
        if refusal:
            assert "\n" not in refusal
            assert "/store/" in refusal
            assert any(kind in done for kind in ("commitlog", "config")), refusal
            return
        try:
            given = await read(scene)
            scene.app.store.settings.scrub_rate_mib = 1000
            await scene.app.store.scrub.run()
            again = await read(scene)
            for queue, there in (*given.items(), *again.items()):
                for offset, body in there.items():
                    assert body == sent()[queue].get(offset), f"{queue} {offset} is what was not sent"
            topics = scene.app.topics
            lost = {
                queue: missing
                for queue, there in again.items()
                if queue[0] in topics and (missing := untouched(changed, queue) - there.keys())
            }
            assert not lost, f"lost: {lost}"
            assert found.clean or told.lines, f"told by nobody: {found.findings.damages}"
        finally:
            await scene.app.stop()
            await scene.client.close()

    logger = logging.getLogger("rmq")
    logger.addHandler(told)
    try:
        run(main())
    except BaseException as error:
        error.add_note(f"seed {seed}: {done}\n" + "\n".join(told.lines[:20]))
        raise
    finally:
        logger.removeHandler(told)
