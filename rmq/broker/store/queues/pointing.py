"""Queue entries by where they point to: found, and overwritten.

The entries of a queue are in the log's order, with blank ones among them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from rmq.broker.store.queues.files import FileKey, QueueDisk, QueueFiles, is_blank
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import ENTRY_SIZE, PLACE, Queue
from rmq.runtime.world import Offload

__all__ = ["entries_into", "overwrite", "piece_end"]

_pair = PLACE.unpack_from


async def entries_into(queues: QueueTable, queue: Queue, start: int, end: int) -> AsyncGenerator[tuple[int, bytes]]:
    """The entries of a queue that point into a part of the commit log, as (index, entry); no blank ones.

    :param start: commit-log offset of its first byte.
    :param end: and behind its last.
    """
    if queue.next <= queue.min or queue.max_phys <= start:
        return
    low, high = queue.min, queue.next
    while low < high:
        middle = (low + high) // 2
        at, entry = await _filled(queues, queue, middle, high)
        if at < high and _pair(entry)[0] < start:
            low = at + 1
        else:
            high = middle
    while True:
        at, entry = await _filled(queues, queue, low, queue.next)
        if not entry or _pair(entry)[0] >= end:
            return
        yield at, entry
        low = at + 1


async def _filled(queues: QueueTable, queue: Queue, index: int, stop: int) -> tuple[int, bytes]:
    """The first entry from ``index`` on that is not blank; ``stop`` and nothing when there is none."""
    while index < stop:
        entry = await queues.entries_cold(queue, index, 1)
        if len(entry) < ENTRY_SIZE:
            break
        if not is_blank(*_pair(entry)):
            return index, entry
        index += 1
    return stop, b""


async def overwrite(queues: QueueTable, offload: Offload, queue: Queue, index: int, entries: bytes) -> bool:
    """Put other entries in the place of some, in memory or on disk; False when the queue or its file is gone.

    :param entries: those from ``index`` on, up to :func:`piece_end` at most.
    """
    files: QueueFiles = queue.files
    if files.dropped:
        return False
    if index >= queue.tail_from:
        at = (index - queue.tail_from) * ENTRY_SIZE
        queue.tail[at : at + len(entries)] = entries
        return True
    position = index * ENTRY_SIZE
    start = position - position % queues.file_size
    try:
        await offload(_write, queues.disk, (files.directory, start), position - start, entries)
    except FileNotFoundError:
        return False  # deleted meanwhile
    return True


def piece_end(queues: QueueTable, queue: Queue, index: int) -> int:
    """Behind the last entry that lies side by side with one: in the same file, or in memory, too."""
    if index >= queue.tail_from:
        return queue.next
    in_file = queues.file_size // ENTRY_SIZE
    return min(index - index % in_file + in_file, queue.tail_from)


def _write(disk: QueueDisk, key: FileKey, position: int, entries: bytes) -> None:
    file = disk.open_file(key)
    try:
        file.pwrite(entries, position)
        file.datasync()
    finally:
        file.close()
