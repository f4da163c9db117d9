"""Reads every consume queue at start and says which part of the commit log they cover.

Queues are derived data: they are used as far as they agree with the log and built anew from there. Two things are
checked. Within a queue, entries must follow each other in the log without overlapping; the first that does not ends it.
Over all queues, the sizes of the entries that point into a segment of the log must add up to what records there are in
it; if they do not, some queue lacks entries (a lost file, a hole after a power cut), and dispatch begins again there.

Names of directories and files say whose entries are in them. The last message of each queue is asked, and the first one
where that says something else: files that have got other names are made anew, as if they were lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_left
from collections.abc import Callable
from operator import add, le
from struct import Struct
from typing import NamedTuple

from rmq.broker.store.log.records import check
from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.files import BLANK_ENTRY_SIZE, FileKey, QueueFiles, is_blank
from rmq.broker.store.queues.fitting import fits, is_size
from rmq.broker.store.queues.misfits import Former
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.start.evidence import Claim
from rmq.broker.store.start.lost_tail import used_entries
from rmq.broker.store.state import ENTRY_SIZE, PLACE, Queue
from rmq.protocol.errors import StoreError
from rmq.protocol.names import is_lmq
from rmq.protocol.record import fields, topic_of
from rmq.runtime.world import World

__all__ = ["QueueLoader", "segment_size"]

log = logging.getLogger(__name__)

_BLOCK = 1024
_OFFSETS = Struct(">" + "q12x" * _BLOCK).unpack_from
_SIZES = Struct(">" + "8xi8x" * _BLOCK).unpack_from
_entry = PLACE.unpack_from
_owner = fields("queue_id", "queue_offset")
_TOPICS_AT_ONCE = 64
_FILES_AT_ONCE = 16
_SEGMENT = 64 << 20
_NO_END = 1 << 62
#: Bytes of a record that is read to learn whose it is.
_LONGEST = 64 << 10
#: Bytes of entries that are cut off and kept.
_MOST_KEPT = 64 << 20


def segment_size(file_size: int) -> int:
    """Bytes of the log over which entries are added up: finer than a file where files are large."""
    return _SEGMENT if file_size > _SEGMENT and file_size % _SEGMENT == 0 else file_size


class _Listed(NamedTuple):
    topic: str
    queue_id: int
    #: First bytes of its files, and names that are none.
    starts: list[int]
    foreign: list[str]
    #: The beginning of the first file.
    head: bytes


class QueueLoader:
    """Fills a :class:`QueueTable` from disk.

    :param deletions: entries before them are of no use, either.
    :param log_start: first byte of the commit log; entries before it point to nothing.
    :param log_file_size: bytes of a commit-log file.
    :param read: so many bytes of the log from an offset on, none when they cannot be had. Blocks.
    """

    def __init__(
        self,
        world: World,
        table: QueueTable,
        deletions: Deletions,
        log_start: int,
        log_file_size: int,
        read: Callable[[int, int], bytes],
    ) -> None:
        self._offload = world.offload
        self._table = table
        self._deletions = deletions
        self._log_start = log_start
        self._segment = segment_size(log_file_size)
        self._read = read
        #: Segment start -> bytes of records that entries point to.
        self.covered: dict[int, int] = {}
        #: The same by light message queues, which hold records that other queues hold, too.
        self.light: dict[int, int] = {}
        #: Directories that are bad themselves.
        self._unlisted: list[str] = []
        #: Of each queue the segments that it points to: segment, first entry, bytes of their records.
        self._boundaries: dict[Queue, list[tuple[int, int, int]]] = {}
        #: Of those with a bad entry, behind the last one that there is.
        self._reached: dict[Queue, int] = {}
        #: Behind the last good entry of each.
        self.ends: dict[Queue, int] = {}
        #: Index of the last entry of each, and where it points to.
        self._last: dict[Queue, tuple[int, int, int]] = {}
        #: What queues were, for who makes them anew.
        self.former: dict[Queue, Former] = {}
        #: Where the last entries of queues point to.
        self.claims: list[Claim] = []
        #: Topic and queue id -> behind the last entry that was found in another queue's place.
        self._owned: dict[tuple[str, int], int] = {}
        self._kept = 0

    async def load(self) -> None:
        """Read every queue there is.

        :raises StoreError: files of another size than the one that is set.
        :raises OSError: a file that cannot be read.
        """
        table = self._table
        table.graves = await self._offload(table.disk.trash)
        unlisted = self._unlisted
        topics = await self._offload(table.disk.topics, unlisted)
        groups = [topics[at : at + _TOPICS_AT_ONCE] for at in range(0, len(topics), _TOPICS_AT_ONCE)]
        found: list[_Listed] = []
        for group in [*groups, []]:
            # A thread reads the next group while this one is looked at.
            _, found = await asyncio.gather(self._take_group(found), self._offload(self._read_group, group))
        for directory in unlisted:
            table.bury_leftover(directory)
        self._note_owned()

    def _read_group(self, topics: list[str]) -> list[_Listed]:
        """The queues of some topics, each with the beginning of its first file. Blocks."""
        disk = self._table.disk
        listed = disk.list_queues(topics, self._unlisted)
        keys = [(disk.directory(topic, queue_id), starts[0]) for topic, queue_id, starts, _ in listed if starts]
        heads = iter(disk.read_files(keys, heads=True))
        return [_Listed(*one, next(heads) if one[2] else b"") for one in listed]

    async def _take_group(self, group: list[_Listed]) -> None:
        table = self._table
        files: list[tuple[Queue, int]] = []
        for topic, queue_id, starts, foreign, head in group:
            for name in foreign:
                log.warning("%s/%s/%s/%s is no queue file; it is left alone", table.disk.root, topic, queue_id, name)
            queue = table.get_or_create(topic, queue_id)
            usable = self._usable(queue, starts)
            if usable and not any(head[-ENTRY_SIZE:]):
                await self._take(queue, usable.pop(0), head)
            files += [(queue, start) for start in usable]
        for first in range(0, len(files), _FILES_AT_ONCE):
            some = files[first : first + _FILES_AT_ONCE]
            keys: list[FileKey] = [(queue.files.directory, start) for queue, start in some]
            for (queue, start), data in zip(some, await self._offload(table.disk.read_files, keys), strict=True):
                if queue.next * ENTRY_SIZE == start:
                    await self._take(queue, start, data)
                else:
                    self._note_reach(queue, start, data)
        queues = [table.get_or_create(topic, queue_id) for topic, queue_id, *_ in group]
        for queue, (_, _, starts, _, _) in zip(queues, group, strict=True):
            await self._finish(queue, starts)
        await self._compare(queues)

    def _usable(self, queue: Queue, starts: list[int]) -> list[int]:
        """Files that follow each other; what comes behind a missing one is built anew."""
        size = self._table.file_size
        usable: list[int] = []
        for start in starts:
            if usable and start != usable[-1] + size:
                log.warning("%s: file %020d does not follow the one before it", queue.files.directory, start)
                break
            usable.append(start)
        files: QueueFiles = queue.files
        files.starts = list(usable)
        if usable:
            queue.min = queue.next = usable[0] // ENTRY_SIZE
        return usable

    async def _take(self, queue: Queue, start: int, data: bytes) -> None:
        """Read one file's entries behind those known."""
        count = len(data) // ENTRY_SIZE
        at = 0
        behind = queue.max_phys
        index = start // ENTRY_SIZE
        fast = True
        while at < count:
            if count - at >= _BLOCK and fast:
                offsets = _OFFSETS(data, at * ENTRY_SIZE)
                sizes = _SIZES(data, at * ENTRY_SIZE)
                if (
                    offsets[0] >= behind
                    and min(sizes) > 0
                    and max(sizes) < BLANK_ENTRY_SIZE
                    and all(map(le, map(add, offsets, sizes), offsets[1:]))
                ):
                    self._tally(queue, index + at, offsets, sizes)
                    behind = offsets[-1] + sizes[-1]
                    at += _BLOCK
                    if not at % (16 * _BLOCK):
                        await asyncio.sleep(0)
                    continue
            # Entry by entry: a short rest, blank entries, or the end of what is good.
            stop = min(count, at + _BLOCK)
            while at < stop:
                offset, size = _entry(data, at * ENTRY_SIZE)
                if not is_blank(offset, size):
                    if size <= 0 or size == BLANK_ENTRY_SIZE or offset < behind:
                        break
                    self._tally(queue, index + at, (offset,), (size,))
                    behind = offset + size
                at += 1
            if at < stop:
                break
        queue.next = index + at
        queue.max_phys = behind
        if at < count and not data.endswith(bytes(len(data) - at * ENTRY_SIZE)):
            self._note_reach(queue, start, data)
            log.warning(
                "%s: entry %d is damaged; entries from there on are built anew from the commit log",
                queue.files.directory, queue.next,
            )  # fmt: skip
            await self._offload(self._table.disk.cut, (queue.files.directory, start), at * ENTRY_SIZE)

    def _note_reach(self, queue: Queue, start: int, data: bytes) -> None:
        """A file has entries behind one that ends what is good: no index of theirs is to be given to other messages."""
        if used := used_entries(data, _NO_END, queue.max_phys):
            self._reached[queue] = start // ENTRY_SIZE + used

    def _tally(self, queue: Queue, index: int, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> None:
        segment = self._segment
        boundaries = self._boundaries.setdefault(queue, [])
        first_alive = max(self._log_start, self._deletions.end_of(queue.topic))
        if offsets[0] < first_alive:
            gone = bisect_left(offsets, first_alive)
            queue.min = index + gone
            offsets = offsets[gone:]
            sizes = sizes[gone:]
            index += gone
            if not offsets:
                return
        elif not boundaries:
            queue.min = index
        self._last[queue] = index + len(offsets) - 1, offsets[-1], sizes[-1]
        first = 0
        covered = self.light if is_lmq(queue.topic) else self.covered
        while first < len(offsets):
            at = offsets[first] - offsets[first] % segment
            last = len(offsets) if offsets[-1] < at + segment else bisect_left(offsets, at + segment)
            size = sum(sizes[first:last])
            covered[at] = covered.get(at, 0) + size
            if boundaries and boundaries[-1][0] == at:
                boundaries[-1] = (at, boundaries[-1][1], boundaries[-1][2] + size)
            else:
                boundaries.append((at, index + first, size))
            first = last

    async def _finish(self, queue: Queue, starts: list[int]) -> None:
        """Let go of files behind the last good entry; the table's state is that of a queue just written."""
        files: QueueFiles = queue.files
        if not self._boundaries.get(queue):
            if 0 < queue.max_phys <= self._deletions.end_of(queue.topic):
                # Its topic was deleted, and a power cut or another broker has brought the directory back.
                self._table.drop_queue(queue)
                return
            # Nothing points into the log: what there is, is past.
            queue.min = queue.next
        end = queue.next * ENTRY_SIZE
        keep = [start for start in files.starts if start < end]
        gone = [(files.directory, start) for start in starts if start not in keep]
        files.starts = keep
        if gone and not await self._offload(self._table.disk.remove_files, gone):
            self._begin_anew(queue)
            keep = []
        if not keep:
            # A file without an entry says where it begins all the same.
            queue.min = queue.next
        queue.visible = queue.tail_from = queue.next
        if queue in self._last:
            self.claims.append(self._last[queue][1:])
        self.ends[queue] = queue.next
        if reach := max(queue.next, self._reached.get(queue, 0)):
            self.former[queue] = Former(reach)
        if queue in self._reached and is_lmq(queue.topic):
            self._table.light_lacks(queue.max_phys)

    async def _compare(self, queues: list[Queue]) -> None:
        """Whether the last entry of each queue is of that queue; where it is another's, or its record is none, whose.

        One record that says something else may be damaged itself. Where another one agrees with it, files have got
        other names, or those of another queue were put in their place.
        """
        asked = [(queue, *self._last[queue]) for queue in queues if self._boundaries.get(queue) and queue in self._last]
        records = await self._offload(self._read_records, [(offset, size) for _, _, offset, size in asked])
        for (queue, index, offset, size), record in zip(asked, records, strict=True):
            if self._whose(queue, index, offset, size, record) == (queue.topic, queue.id, 0):
                continue
            if (whose := await self._agreed(queue, index)) is not None:
                topic, queue_id, away = whose
                log.critical(
                    "%s holds other entries than its names say, those of %s-%d from %d on: its files are made anew "
                    "from the commit log; have the disk checked",
                    queue.files.directory, topic, queue_id, self._boundaries[queue][0][1] + away,
                )  # fmt: skip
                self._owned[topic, queue_id] = max(self._owned.get((topic, queue_id), 0), queue.next + away)
                self._begin_anew(queue)

    async def _agreed(self, queue: Queue, last: int) -> tuple[str, int, int] | None:
        """Whose entries a queue has, if two records say the same and it is another's; nearest to the end first."""
        first = self._boundaries[queue][0][1]
        said: tuple[str, int, int] | None = None
        steps = (last - ((1 << bit) >> 1) for bit in range(max(1, last - first).bit_length() + 1))
        for index in dict.fromkeys([*(index for index in steps if index > first), first]):
            offset, size = _entry(await self._table.entries_cold(queue, index, 1))
            (record,) = await self._offload(self._read_records, [(offset, size)])
            whose = self._whose(queue, index, offset, size, record)
            if whose == (queue.topic, queue.id, 0):
                return None
            if whose is not None and said is not None:
                return whose if whose == said else None
            said = whose or said
        return None

    def _note_owned(self) -> None:
        """Queues whose entries were in the place of others go on behind them, whatever the log still has of them."""
        for (topic, queue_id), end in self._owned.items():
            if not self._deletions.end_of(topic):
                with contextlib.suppress(StoreError):  # no queue can have that name
                    queue = self._table.get_or_create(topic, queue_id)
                    was = self.former.get(queue, Former())
                    self.former[queue] = was._replace(reach=max(was.reach, end))

    def _read_records(self, places: list[tuple[int, int]]) -> list[bytes]:
        """The records at some places, without those that are too long for this. Blocks."""
        return [self._read(offset, size) if is_size(size) and size <= _LONGEST else b"" for offset, size in places]

    @staticmethod
    def _whose(queue: Queue, index: int, offset: int, size: int, record: bytes) -> tuple[str, int, int] | None:
        """Of the message that an entry points to: topic, queue id, and how much higher its index is; None: of none."""
        if check(record, 0, offset, size, crc=False) != size:
            return None
        if fits(queue, index, offset, size, record, crc=False):
            return queue.topic, queue.id, 0
        queue_id, number = _owner(record, 0)
        return topic_of(record), queue_id, number - index

    def _begin_anew(self, queue: Queue) -> None:
        """Its files are of no use, or one is bad and keeps its name: the directory is moved away as a whole."""
        covered = self.light if is_lmq(queue.topic) else self.covered
        for segment, _, size in self._boundaries.pop(queue, []):
            covered[segment] -= size
        files: QueueFiles = queue.files
        self._table.bury_leftover(files.directory)
        files.starts = []
        self.former.pop(queue, None)
        self.ends.pop(queue, None)
        queue.min = queue.next = queue.visible = queue.tail_from = queue.max_phys = 0

    async def cut_from(self, segment: int, *, light: bool) -> None:
        """Take the entries that point to ``segment`` or behind it out of every queue.

        :param light: out of light message queues, too: dispatch fills them again.
        """
        for queue, boundaries in self._boundaries.items():
            if is_lmq(queue.topic) and not light:
                continue
            at = bisect_left(boundaries, (segment, -1, 0))
            if at < len(boundaries):
                await self._remember(queue, boundaries[at][1])
                await self._table.cut(queue, boundaries[at][1])
                del boundaries[at:]

    async def _remember(self, queue: Queue, index: int) -> None:
        """Keep what is cut off a queue, as evidence where records do not say it themselves."""
        former = self.former.get(queue, Former())
        if former.entries or self._kept + (queue.next - index) * ENTRY_SIZE > _MOST_KEPT:
            return
        kept = bytearray()
        while (at := index + len(kept) // ENTRY_SIZE) < queue.next:
            data = await self._table.entries_cold(queue, at, queue.next - at)
            if not data:
                break
            kept += data
        self._kept += len(kept)
        self.former[queue] = former._replace(first=index, entries=bytes(kept))

    async def cut_light(self, end: int) -> None:
        """Take the entries that point to ``end`` or behind it out of the light message queues."""
        for queue in [queue for queue in self._boundaries if is_lmq(queue.topic) and queue.max_phys > end]:
            index = queue.next
            while index > queue.min:
                offset, _ = _entry(await self._table.entries_cold(queue, index - 1, 1))
                if offset < end:
                    break
                index -= 1
            await self._table.cut(queue, index)
