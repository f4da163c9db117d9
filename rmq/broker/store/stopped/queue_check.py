"""Consume queues against the log: every record has its entry, and every entry its record.

Records come in the order of the log; for each the entry at its queue offset is looked at. Which entries were met is
kept as runs of numbers, one a queue as a rule; at the end the queues are read once more for entries that no record has
asked for.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence

from rmq.broker.store.log.files import file_name, offset_of
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.log.records import Derived, TagsRule
from rmq.broker.store.queues.ext_queues import UnitReader
from rmq.broker.store.queues.ext_units import ExtDisk, ExtUnit, QueueExt, is_address, position_of
from rmq.broker.store.queues.files import BLANK_ENTRY_SIZE, FileKey, is_blank
from rmq.broker.store.refusal import SPOILT
from rmq.broker.store.state import ENTRY, ENTRY_SIZE
from rmq.broker.store.stopped.findings import Finding, Progress, unreadable, within
from rmq.broker.store.stopped.pages import read_pages
from rmq.broker.store.stopped.runs import Runs
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.protocol.names import SCHEDULE_TOPIC, is_system_topic

__all__ = ["Codes", "QueueCheck"]

_entry = ENTRY.unpack_from
_entries = ENTRY.iter_unpack
#: Entries read at a time, and how many such blocks are kept: 40,000 queues take turns in the log.
_BLOCK = 512
_BLOCKS = 4096
#: Bytes of units read at a time; a block a queue is kept.
_UNITS = 4096
_NO_UNIT = ExtUnit(0, -1, b"")
#: Topic -> whether the entry of a record may have a code that is not its record's tags code: code, record.
Codes = Mapping[str, Callable[[int, bytes], bool]]


class _Queue:
    __slots__ = (
        "bad_units",
        "directory",
        "id",
        "lacking",
        "met",
        "next",
        "other_tags",
        "starts",
        "topic",
        "units",
        "unread",
    )

    def __init__(self, topic: str, queue_id: int, directory: str) -> None:
        self.topic = topic
        self.id = queue_id
        self.directory = directory
        #: First bytes of its files; empty for a queue that has no directory.
        self.starts: list[int] = []
        #: Numbers of entries that records have found, that they have looked for in vain, and of another tags code.
        self.met = Runs()
        self.lacking = Runs()
        self.other_tags = Runs()
        #: Numbers of entries whose unit in consumequeue_ext is not there or another's.
        self.bad_units = Runs()
        self.units: UnitReader | None = None
        #: Numbers of entries that the disk does not give.
        self.unread = Runs()
        #: The number that the next record should have.
        self.next = 0


class QueueCheck:
    """One check.

    :param add: gets what is found.
    :param codes: of topics whose tags code is not the hash of a tag, beside that of delay levels.
    """

    def __init__(self, store: StoppedStore, add: Callable[[Finding], None], progress: Progress, codes: Codes) -> None:
        self._store = store
        self._codes = codes
        self._add = add
        self._progress = progress
        self._size = store.settings.queue_file_size
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._ext = ExtDisk(store.files, store.root, store.settings.ext_file_size)
        self._blocks: OrderedDict[tuple[FileKey, int], bytes] = OrderedDict()
        self.entries = 0
        self.queues = 0
        #: (topic, queue id) -> behind its last entry.
        self.ends: dict[tuple[str, int], int] = {}

    @property
    def there(self) -> Collection[tuple[str, int]]:
        """The queues there are; (topic, queue id)."""
        return self._queues.keys()

    async def begin(self) -> None:
        """Find the queues there are."""
        store = self._store
        for topic, queue_id, starts, foreign in await store.world.offload(self._list):
            queue = self._queue(topic, queue_id)
            queue.starts = starts
            self.queues += 1
            for name in foreign:
                path = os.path.join(queue.directory, name)
                self._add(Finding("consumequeue", "foreign", path, "no queue file; Java refuses the directory", False))
            await store.world.offload(self._look_at_files, queue)

    def _list(self) -> list[tuple[str, int, list[int], list[str]]]:
        """:meth:`QueueDisk.list_queues` of every topic."""
        disk = self._store.disk
        found: list[tuple[str, int, list[int], list[str]]] = []
        path = disk.root
        try:
            for topic in disk.topics():
                path = f"{disk.root}/{topic}"
                try:
                    found += disk.list_queues([topic])
                except OSError as error:
                    self._add(unreadable("consumequeue", path, error))
        except OSError as error:
            self._add(unreadable("consumequeue", path, error))
        return found

    def _look_at_files(self, queue: _Queue) -> None:
        before = None
        for start in list(queue.starts):
            path = f"{queue.directory}/{file_name(start)}"
            try:
                file = self._store.disk.open_file((queue.directory, start))
                size = file.size()
                file.close()
                if self._store.files.is_dir(path):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            except OSError as error:
                self._add(unreadable("consumequeue", path, error))
                queue.starts.remove(start)
                continue
            if size != self._size or start % self._size:
                self._found(queue, "size", path, f"{size} bytes; mappedFileSizeConsumeQueue is {self._size}")
            if before is not None and start != before + self._size:
                self._found(queue, "missing", path, "the files before this one are missing")
            before = start

    def _queue(self, topic: str, queue_id: int) -> _Queue:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = _Queue(topic, queue_id, f"{self._store.disk.root}/{topic}/{queue_id}")
            self._queues[topic, queue_id] = queue
        return queue

    # -- records ---------------------------------------------------------------------------------------------------

    async def record(
        self, found: Derived, offset: int, data: bytes, begin: int, size: int, *, lacking: bool = True
    ) -> None:
        """A good record of the log: prepared and rolled-back messages are in no queue.

        :param begin: where in ``data`` it is.
        :param lacking: whether it is damage when it has no entry.
        """
        if found.sys_flag & 0xC not in (0, 8):
            return
        queue = self._queue(found.topic, found.queue_id)
        number = found.queue_offset
        again = number < queue.next
        queue.next = number + 1
        at = number * ENTRY_SIZE
        block = await self._block(queue, at)
        place = at % self._size % (_BLOCK * ENTRY_SIZE)
        physical, length, code = _entry(block, place) if len(block) >= place + ENTRY_SIZE else (-1, 0, 0)
        if physical != offset or length != size:
            if lacking and number not in queue.unread:
                queue.lacking.add(number)
            return
        if again:
            # The topic was deleted and made again: entries of its earlier life are not missing.
            queue.lacking.clear()
        queue.met.add(number)
        if is_address(code):
            unit = await self._unit(queue, position_of(code))
            if unit is not None and (
                unit.store_timestamp != found.store_timestamp
                or not self._may_be(unit.tags_code, found, data[begin : begin + size])
            ):
                queue.bad_units.add(number)
        elif code != found.tags_code and not self._may_be(code, found, data[begin : begin + size]):
            queue.other_tags.add(number)

    def _may_be(self, code: int, found: Derived, record: bytes) -> bool:
        """Whether an entry may have a code."""
        if code == found.tags_code:
            return True
        if found.topic == SCHEDULE_TOPIC:
            return TagsRule.may_be_due(code, found.tags_code, found.store_timestamp)
        return found.topic in self._codes and self._codes[found.topic](code, record)

    async def _unit(self, queue: _Queue, position: int) -> ExtUnit | None:
        """A unit, one of no message where there is none; None: the disk does not give it."""
        reader = queue.units
        if reader is None:
            ext = QueueExt(f"{self._ext.root}/{queue.topic}/{queue.id}")
            ext.starts = await self._store.world.offload(self._look_at_ext_files, queue, ext.directory)
            reader = queue.units = UnitReader(self._store.world.offload, self._ext, ext, _UNITS)
        try:
            known = await reader.unit(position)
        except OSError as error:
            if error.errno not in SPOILT:
                raise
            self._add(unreadable("consumequeue_ext", f"{self._ext.root}/{queue.topic}/{queue.id}", error))
            return None  # nobody knows
        return _NO_UNIT if known is None else known[0]

    def _look_at_ext_files(self, queue: _Queue, directory: str) -> list[int]:
        starts: list[int] = []
        try:
            self._look_at_each(queue, directory, starts)
        except OSError as error:
            if error.errno not in SPOILT:
                raise
            self._add(unreadable("consumequeue_ext", directory, error))
        return starts

    def _look_at_each(self, queue: _Queue, directory: str, starts: list[int]) -> None:
        for name in self._store.files.list(directory):
            path = f"{directory}/{name}"
            if (start := offset_of(name)) < 0:
                continue
            starts.append(start)
            if (size := self._store.files.size(path)) != self._ext.file_size:
                self._found(
                    queue, "size", path, f"{size} bytes; mappedFileSizeConsumeQueueExt is {self._ext.file_size}",
                    part="consumequeue_ext",
                )  # fmt: skip

    async def _block(self, queue: _Queue, at: int) -> bytes:
        start = at - at % self._size
        key = (queue.directory, start)
        first = (at - start) // (_BLOCK * ENTRY_SIZE)
        block = self._blocks.get((key, first))
        if block is None:
            block = b""
            if start in queue.starts:
                block = await self._store.world.offload(self._read, queue, start, first * _BLOCK * ENTRY_SIZE)
            self._blocks[key, first] = block
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return block

    def _read(self, queue: _Queue, start: int, position: int) -> bytes:
        """A block of one of its files, zeros for what the disk does not give."""
        file = self._store.disk.open_file((queue.directory, start))
        try:
            data, bad = read_pages(file, min(_BLOCK * ENTRY_SIZE, self._size - position), position)
        finally:
            file.close()
        for lo, hi in bad:
            for number in range((start + lo) // ENTRY_SIZE, -(-(start + hi) // ENTRY_SIZE)):
                queue.unread.add(number)
        return data

    # -- entries ---------------------------------------------------------------------------------------------------

    async def finish(self, unread: Sequence[Damage], topics: Collection[str] | None) -> None:
        """The log has been read.

        :param unread: what of it the disk did not give, ascending.
        :param topics: those in topics.json, or None when that cannot be read.
        """
        deleted: set[str] = set()
        for done, queue in enumerate(self._queues.values()):
            self._progress("consume queues", done, len(self._queues))
            if not queue.starts and topics is not None and not (queue.topic in topics or is_system_topic(queue.topic)):
                deleted.add(queue.topic)
                continue
            for lo, hi in queue.lacking:
                self._found(queue, "entry", queue.directory, "records of the log have no entry here", lo, hi)
            for lo, hi in queue.other_tags:
                self._found(queue, "tags", queue.directory, "the tags code is not that of the records", lo, hi)
            for lo, hi in queue.bad_units:
                self._found(
                    queue, "unit", f"{self._ext.root}/{queue.topic}/{queue.id}",
                    "the units that these entries point to are not there, or another message's", lo, hi,
                    part="consumequeue_ext",
                )  # fmt: skip
            await self._read_all(queue, unread)
            for lo, hi in queue.unread:
                self._found(
                    queue, "unreadable", queue.directory, "the disk does not give these entries: check it", lo, hi
                )
        for topic in sorted(deleted):
            self._add(
                Finding("consumequeue", "deleted", f"{self._store.disk.root}/{topic}",
                        "records of a topic that topics.json does not know have no queue", False, topic=topic)
            )  # fmt: skip

    async def _read_all(self, queue: _Queue, unread: Sequence[Damage]) -> None:
        store = self._store
        strange = Runs()
        damaged = Runs()
        end = 0
        for start in queue.starts:
            for position in range(0, self._size, _BLOCK * ENTRY_SIZE):
                data = await store.world.offload(self._read, queue, start, position)
                number = (start + position) // ENTRY_SIZE
                if not data or (data == bytes(len(data)) and number not in queue.unread):
                    break
                for physical, size, _ in _entries(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]):
                    if number in queue.unread:
                        end = number + 1 if number in queue.met else end
                    elif size > 0 and not is_blank(physical, size):
                        self.entries += 1
                        end = number + 1
                        if physical >= store.start and number not in queue.met and not within(unread, physical):
                            strange.add(number)
                    elif (physical or size) and size != BLANK_ENTRY_SIZE:
                        damaged.add(number)
                    number += 1
        self.ends[queue.topic, queue.id] = end
        for lo, hi in strange:
            self._found(queue, "dangling", queue.directory, "entries point to no record of this queue", lo, hi)
        for lo, hi in damaged:
            self._found(queue, "damaged", queue.directory, "these are no entries", lo, hi)

    def _found(
        self,
        queue: _Queue,
        kind: str,
        path: str,
        detail: str,
        start: int | None = None,
        end: int | None = None,
        *,
        part: str = "consumequeue",
    ) -> None:
        self._add(Finding(part, kind, path, detail, start=start, end=end, topic=queue.topic, queue_id=queue.id))
