"""What is in a stopped store, item by item: records of the log, entries of a queue, entries of the index."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from struct import Struct
from typing import NamedTuple

from rmq.broker.store.index.file import ENTRY
from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.log.reader import LogReader
from rmq.broker.store.open_files import open_aside
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.state import ENTRY_SIZE
from rmq.broker.store.stopped.index_check import open_index
from rmq.broker.store.stopped.opened import StoppedStore
from rmq.protocol.errors import StoreError
from rmq.protocol.message import MessageRecord, decode_record

__all__ = ["END", "IndexEntry", "QueueEntry", "index_entries", "queue_entries", "records"]

#: Later than every offset and time.
END = 1 << 62

_entry = Struct(">qiq").iter_unpack
_index_entry = Struct(">iqii").iter_unpack
_READ = 4096


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
    store: StoppedStore, start: int = 0, end: int = END, topic: str | None = None, queue_id: int | None = None
) -> AsyncGenerator[MessageRecord, None]:
    """Good records in the order of the log; what is damaged is passed over.

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
        async for data, found in reader.records(max(start, run.start), min(end, run.end)):
            for at, _, _ in found:
                record = decode_record(data, at)
                if (topic is None or record.topic == topic) and (queue_id is None or record.queue_id == queue_id):
                    yield record


async def queue_entries(
    store: StoppedStore, topic: str, queue_id: int, start: int = 0, end: int = END
) -> AsyncGenerator[QueueEntry, None]:
    """Entries of one queue by number; those that stand for no message are left out.

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
        file = await open_aside(offload, store.disk.open_file, key)
        try:
            position = max(0, start * ENTRY_SIZE - first)
            while position < min(size, end * ENTRY_SIZE - first):
                data = await offload(file.pread, min(_READ * ENTRY_SIZE, size - position), position)
                if data.count(0) == len(data):
                    break
                index = (first + position) // ENTRY_SIZE
                for number, item in enumerate(_entry(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]), index):
                    if number < end and any(item) and not is_blank(*item[:2]):
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
) -> AsyncGenerator[IndexEntry, None]:
    """Entries of the index, oldest first.

    :param start: commit-log offset that an entry points to at least, and
    :param end: one that it lies before.
    :param file: name of the only index file to look at.
    :param key: (topic, key): only entries with this key's hash; another key may have it, too.
    :raises StoreError: no file of that name, or one that cannot be read as an index file.
    :raises OSError: a file that cannot be read.
    """
    wanted = None if key is None else KeyHasher(key[0])(key[1].encode())
    files, wrong = await open_index(store)
    try:
        chosen = [one for one in files if file in (None, one.name)]
        for fault in wrong:
            if fault.damage and file in (None, os.path.basename(fault.path)):
                raise StoreError(f"{fault.path}: {fault.detail}")
        if file is not None and not chosen:
            raise StoreError(f"there is no index file {file} in {os.path.join(store.root, 'index')}")
        for one in chosen:
            shared = one.shared
            assert shared is not None
            for first in range(1, max(1, one.count), _READ):
                want = min(_READ, one.count - first) * ENTRY
                data = await store.world.offload(shared.file.pread, want, one.entry_position(first))
                for number, item in enumerate(_index_entry(data[: len(data) // ENTRY * ENTRY]), first):
                    value, offset, seconds, before = item
                    if start <= offset < end and wanted in (None, value):
                        time = one.begin_timestamp + 1000 * seconds
                        yield IndexEntry(one.name, number, value, offset, time, before)
    finally:
        for one in files:
            one.close()
