"""What is in a stopped store, item by item: records of the log, entries of a queue, entries of the index."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from rmq.broker.store.index.file import INDEX_ENTRY, INDEX_ENTRY_SIZE
from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.files import file_name
from rmq.broker.store.log.reader import Damage, LogReader
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.open_files import open_aside
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.refusal import BAD_PLACE
from rmq.broker.store.state import ENTRY, ENTRY_SIZE
from rmq.broker.store.stopped.findings import Finding, unread_bytes, unreadable
from rmq.broker.store.stopped.index_check import open_index
from rmq.broker.store.stopped.pages import read_pages
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.protocol.errors import StoreError
from rmq.protocol.message import MessageRecord, decode_record

__all__ = ["END", "IndexEntry", "QueueEntry", "Unread", "index_entries", "queue_entries", "records"]

#: Later than every offset and time.
END = 1 << 62

_entry = ENTRY.iter_unpack
_index_entry = INDEX_ENTRY.iter_unpack
_READ = 4096


#: Told of what the disk does not give.
Unread = Callable[[Finding], None]


def _passed_over(finding: Finding) -> None:
    """Nobody has asked."""


class QueueEntry(NamedTuple):
    """One entry of a consume queue."""

    queue_offset: int
    #: Where its record is, and how long that is.
    offset: int
    size: int
    #: Hash of the tag, delivery time of a delayed message, or an address in consumequeue_ext.
    tags_code: int


class IndexEntry(NamedTuple):
    """One entry of an index file."""

    file: str
    number: int
    hash: int
    offset: int
    #: Store time of the message to the second, ms.
    time: int
    #: The entry before it in its slot, 0 = none.
    before: int


async def records(
    store: StoppedStore,
    start: int = 0,
    end: int = END,
    topic: str | None = None,
    queue_id: int | None = None,
    *,
    unread: Unread = _passed_over,
) -> AsyncGenerator[MessageRecord, None]:
    """Good records in the order of the log; what is damaged is passed over.

    :param unread: told of each place that the disk does not give; the dump goes on behind it.
    :param start: commit-log offset; the first record there or behind it is the first.
    :param end: the last record begins before it.
    :param topic: only records of this topic, and
    :param queue_id: of this queue.
    :raises OSError: a file that cannot be read.
    """
    for run in store.runs:
        if run.end <= start or run.start >= end:
            continue
        reader = LogReader(store.world, run)
        reader.unreadable = UnreadablePlaces(run.file_size)
        told = 0
        async for data, found in reader.records(max(start, run.start), min(end, run.end)):
            for part in reader.passed_over[told:]:
                unread(_place(run, part))
            told = len(reader.passed_over)
            for at, _, _ in found:
                record = decode_record(data, at)
                if (topic is None or record.topic == topic) and (queue_id is None or record.queue_id == queue_id):
                    yield record
        for part in (*reader.passed_over[told:], *reader.lost_end(min(end, run.end))):
            unread(_place(run, part))


async def queue_entries(
    store: StoppedStore, topic: str, queue_id: int, start: int = 0, end: int = END, *, unread: Unread = _passed_over
) -> AsyncGenerator[QueueEntry, None]:
    """Entries of one queue by number; those that stand for no message are left out.

    :param unread: told of each place that the disk does not give; the dump goes on behind it.
    :raises StoreError: there is no such queue.
    :raises OSError: a file that cannot be read.
    """
    offload = store.world.offload
    found = [starts for _, known, starts, _ in await offload(store.disk.list_queues, [topic]) if known == queue_id]
    if not found:
        raise StoreError(f"there is no queue {queue_id} of topic {topic} in {store.disk.root}")
    size = store.settings.queue_file_size
    for first in found[0]:
        if first + size <= start * ENTRY_SIZE or first >= end * ENTRY_SIZE:
            continue
        key = (store.disk.directory(topic, queue_id), first)
        path = f"{key[0]}/{file_name(first)}"
        try:
            file = await open_aside(offload, store.disk.open_file, key)
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise
            unread(unreadable("consumequeue", path, error))
            continue
        try:
            position = max(0, start * ENTRY_SIZE - first)
            while position < min(size, end * ENTRY_SIZE - first):
                data, bad = await offload(read_pages, file, min(_READ * ENTRY_SIZE, size - position), position)
                for place in bad:
                    unread(unread_bytes("consumequeue", path, *place))
                if data == bytes(len(data)) and not bad:
                    break
                index = (first + position) // ENTRY_SIZE
                for number, item in enumerate(_entry(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]), index):
                    if number >= end or _touches(bad, number * ENTRY_SIZE - first, ENTRY_SIZE):
                        continue
                    if any(item) and not is_blank(*item[:2]):
                        yield QueueEntry(number, *item)
                position += len(data)
        finally:
            file.close()


async def index_entries(
    store: StoppedStore,
    start: int = 0,
    end: int = END,
    *,
    file: str | None = None,
    key: tuple[str, str] | None = None,
    unread: Unread = _passed_over,
) -> AsyncGenerator[IndexEntry, None]:
    """Entries of the index, oldest first.

    :param start: commit-log offset that an entry points to at least, and
    :param end: one that it lies before.
    :param file: name of the only index file to look at.
    :param key: (topic, key): only entries with this key's hash; another key may have it, too.
    :param unread: told of each place that the disk does not give; the dump goes on behind it.
    :raises StoreError: no file of that name, or one that cannot be read as an index file.
    :raises OSError: a file that cannot be read.
    """
    wanted = None if key is None else KeyHasher(key[0])(key[1].encode())
    files, wrong = await open_index(store)
    try:
        chosen = [one for one in files if file in (None, one.name)]
        for fault in wrong:
            if fault.unread:
                unread(fault)
            elif fault.damage and file in (None, os.path.basename(fault.path)):
                raise StoreError(f"{fault.path}: {fault.detail}")
        if file is not None and not chosen:
            raise StoreError(f"there is no index file {file} in {os.path.join(store.root, 'index')}")
        for one in chosen:
            shared = one.shared
            assert shared is not None
            for first in range(1, max(1, one.count), _READ):
                want = min(_READ, one.count - first) * INDEX_ENTRY_SIZE
                position = one.entry_position(first)
                data, bad = await store.world.offload(read_pages, shared.file, want, position)
                for place in bad:
                    unread(unread_bytes("index", one.path, *place))
                for number, item in enumerate(
                    _index_entry(data[: len(data) // INDEX_ENTRY_SIZE * INDEX_ENTRY_SIZE]), first
                ):
                    if _touches(bad, one.entry_position(number), INDEX_ENTRY_SIZE):
                        continue
                    value, offset, seconds, before = item
                    if start <= offset < end and wanted in (None, value):
                        time = one.begin_timestamp + 1000 * seconds
                        yield IndexEntry(one.name, number, value, offset, time, before)
    finally:
        for one in files:
            one.close()


def _place(run: CommitLog, part: Damage) -> Finding:
    file = run.segment_of(part.start)
    return unread_bytes("commitlog", file.path if file is not None else "", *part)


def _touches(bad: list[tuple[int, int]], start: int, size: int) -> bool:
    """Whether a byte of some lies in a place that could not be read."""
    return any(lo < start + size and start < hi for lo, hi in bad)
