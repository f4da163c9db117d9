"""What the queues that are made anew knew of places of the log that the disk does not give: nothing else knows it.

So no offset is used twice, and what can be read one day is served then, as after a start (``start/kept_entries.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from rmq.broker.store.log.append import pack_entries
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.ext_queues import UnitReader
from rmq.broker.store.queues.ext_units import ExtDisk, QueueExt, is_address, position_of
from rmq.broker.store.queues.files import QueueDisk, is_blank
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.refusal import SPOILT
from rmq.broker.store.start.kept_entries import KeptEntries
from rmq.broker.store.start.queue_loader import segment_size
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Queue
from rmq.broker.store.stopped.findings import within
from rmq.runtime.world import Files, Offload

__all__ = ["keep_old_entries"]

_entries = ENTRY.iter_unpack

#: Topic, queue id, index, commit-log offset, size and tags code.
_Old = tuple[str, int, int, int, int, int]


async def keep_old_entries(
    offload: Offload, files: Files, root: str, ext_file_size: int, queues: QueueTable, deletions: Deletions,
    unread: Sequence[Damage], log_file_size: int,
) -> None:  # fmt: skip
    """Put the entries of a store's queues that point into some parts of its log into queues that were made anew.

    :param root: the store with the old queues.
    :param queues: the new ones, filled from the log.
    :param unread: the parts, ascending.
    :raises OSError: a queue may not be read, or cannot be written.
    """
    disk = QueueDisk(files, root, queues.file_size)
    kept = KeptEntries(queues, offload, segment_size(log_file_size))
    units = ExtDisk(files, root, ext_file_size)
    readers: dict[Queue, UnitReader] = {}
    firsts: dict[Queue, int] = {}
    for topic in await offload(_topics, disk):
        for name, queue_id, index, offset, size, code in await offload(_pointing, disk, topic, unread):
            if deletions.is_dead(name, offset):
                continue
            queue = queues.get_or_create(name, queue_id)
            if is_address(code):
                # Its unit is not made anew with it: the entry has the code itself.
                reader = readers.get(queue)
                if reader is None:
                    ext = QueueExt(f"{units.root}/{name}/{queue_id}")
                    ext.starts = await offload(_starts, units, ext.directory)
                    reader = readers[queue] = UnitReader(offload, units, ext)
                code = await _tags_code(reader, position_of(code))
            firsts.setdefault(queue, index)
            kept.keep(queue, index, pack_entries([offset, size, code]))
    for queue, first in firsts.items():
        if queue.next == queue.min:
            await queues.restart(queue, first)
    await kept.put_back()


def _topics(disk: QueueDisk) -> list[str]:
    try:
        return disk.topics()
    except OSError as error:
        if error.errno not in SPOILT:
            raise
        return []


def _pointing(disk: QueueDisk, topic: str, unread: Sequence[Damage]) -> list[_Old]:
    """The entries of a topic's queues that point into some parts of the log; none of what is bad itself."""
    found: list[_Old] = []
    try:
        listed = disk.list_queues([topic])
    except OSError as error:
        if error.errno not in SPOILT:
            raise
        return []
    for name, queue_id, starts, _ in listed:
        for start in starts:
            (data,) = disk.read_files([(disk.directory(name, queue_id), start)])
            whole = data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]
            for index, (offset, size, code) in enumerate(_entries(whole), start // ENTRY_SIZE):
                if size > 0 and not is_blank(offset, size) and within(unread, offset):
                    found.append((name, queue_id, index, offset, size, code))
    return found


def _starts(units: ExtDisk, directory: str) -> list[int]:
    try:
        return units.starts(directory)
    except OSError as error:
        if error.errno not in SPOILT:
            raise
        return []


async def _tags_code(reader: UnitReader, position: int) -> int:
    try:
        known = await reader.unit(position)
    except OSError as error:
        if error.errno not in SPOILT:
            raise
        known = None
    return 0 if known is None else known[0].tags_code
