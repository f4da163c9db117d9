"""Queues whose entries point to units in ``consumequeue_ext`` (``enableConsumeQueueExt``).

Units are written when the option is on; those that are there, Java's or our own, are read in any case. Whoever reads
entries finds plain tags codes in them. Units are derived data like the entries: what a crash has left of them is
checked, and entries without a good unit are built anew from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmq.broker.store.open_files import open_aside
from rmq.broker.store.queues.ext_units import ExtDisk, ExtUnit, QueueExt, is_address, position_of, unit_at
from rmq.broker.store.queues.files import FileKey
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.refusal import SPOILT, told
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, PLACE, Put, Queue
from rmq.protocol.names import is_lmq
from rmq.runtime.world import Offload, World

__all__ = ["BitMap", "ExtQueueTable", "ExtUnits", "UnitReader", "queue_table"]

log = logging.getLogger(__name__)

_entries = ENTRY.iter_unpack
_entry = ENTRY.pack
#: What is read of one unit at first: with the bit maps of a few hundred filters it is all of it.
_UNIT = 128
_LARGEST = 0x7FFF
#: Bytes read for a pull: its units follow each other.
_READ = 64 << 10

#: Makes the bit map of a message of its topic and its property string as stored; b"" for none.
BitMap = Callable[[str, bytes], bytes]


class _Place(NamedTuple):
    """An entry, and where its unit is."""

    #: First byte of its file, and its number there.
    start: int
    number: int
    position: int


class ExtUnits:
    """The units of all queues.

    :param enabled: ``enableConsumeQueueExt``: messages get units.
    """

    def __init__(self, world: World, settings: StoreSettings) -> None:
        self.disk = ExtDisk(world.files, settings.root, settings.ext_file_size, mends=True)
        self.enabled = settings.ext_enable
        #: Makes bit maps, or None: units have none.
        self.bit_map: BitMap | None = None
        self._queues: dict[Queue, QueueExt] = {}
        self._ends: dict[Queue, int] = {}

    def of(self, queue: Queue) -> QueueExt:
        """A queue's units."""
        ext = self._queues.get(queue)
        if ext is None:
            ext = self._queues[queue] = QueueExt(f"{self.disk.root}/{queue.topic}/{queue.id}")
        return ext

    def forget(self, queue: Queue) -> None:
        self._queues.pop(queue, None)

    def code(self, queue: Queue, tags_code: int, store_timestamp: int, properties: bytes) -> int:
        """Keep a unit for a message; the tags code of its entry."""
        if not self.enabled:
            return tags_code
        bits = b"" if self.bit_map is None else self.bit_map(queue.topic, properties)
        return self.of(queue).put(ExtUnit(tags_code, store_timestamp, bits), self.disk.file_size)

    def puts(self, puts: Sequence[Put], stamp: int) -> Sequence[Put]:
        """The messages of one append, each with its unit; :meth:`take_back` when it fails."""
        if not self.enabled:
            return puts
        # The lane gives plain tuples.
        messages = list(map(Put._make, puts))
        self._ends = {put.queue: self.of(put.queue).end for put in messages}
        return [put._replace(tags_code=self.code(put.queue, put.tags_code, stamp, put.properties)) for put in messages]

    def take_back(self) -> None:
        """The append for which :meth:`puts` was called last has failed."""
        for queue, end in self._ends.items():
            self.of(queue).cut(end)
        self._ends = {}


class ExtQueueTable(QueueTable):
    """A queue table that knows units."""

    ext: ExtUnits

    def __init__(self, world: World, settings: StoreSettings) -> None:
        super().__init__(world, settings)
        self.ext = ExtUnits(world, settings)
        self.unit_code = self.ext.code
        self.before_write = self.write_ext

    # -- start -----------------------------------------------------------------------------------------------------

    async def load_ext(self, *, clean: bool) -> None:
        """Find the units there are; before the entries are loaded, since those without a good unit are taken away.

        :param clean: the last stop was clean: units are trusted.
        :raises StoreError: files of another size.
        """
        self.ext.disk.sizes.whole = clean
        unlisted: list[str] = []
        topics = await self._offload(self.disk.topics, unlisted)
        for topic in topics:
            for name, queue_id, starts, _ in await self._offload(self.disk.list_queues, [topic], unlisted):
                queue = self.get_or_create(name, queue_id)
                try:
                    await self._load_queue(queue, starts, clean=clean)
                except OSError as error:
                    if error.errno not in SPOILT:
                        raise
                    ext = self.ext.of(queue)
                    log.error("%s; its queue is made of the commit log again", told(error, ext.directory))
                    await self._offload(self.ext.disk.free_names, ext.directory)
                    for directory in (ext.directory, queue.files.directory):
                        self._bury(directory)
                    ext.starts, ext.end = [], 0
        for directory in unlisted:
            # Entries are made anew, and with them their units.
            for gone in (self.ext.disk.root + directory.removeprefix(self.disk.root), directory):
                self._bury(gone)

    async def _load_queue(self, queue: Queue, starts: list[int], *, clean: bool) -> None:
        ext = self.ext.of(queue)
        disk = self.ext.disk
        ext.starts = await self._offload(disk.starts, ext.directory)
        units = UnitReader(self._offload, disk, ext)
        end = ext.starts[0] if ext.starts else 0
        newest: _Place | None = None
        bad: _Place | None = None
        for start in starts:
            (data,) = await self._offload(self.disk.read_files, [(queue.files.directory, start)])
            for number, (_, _, code) in enumerate(_entries(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE])):
                if not is_address(code):
                    continue
                place = _Place(start, number, position_of(code))
                if not clean:
                    size = await units.size(place.position) if place.position >= end else 0
                    if not size:
                        # Of the one before it the second half may be lost, too.
                        bad = newest or place._replace(position=end)
                        break
                    end = place.position + size
                newest = place
            if bad is not None:
                break
        if newest is not None and bad is None:
            if clean:
                end = newest.position + await units.size(newest.position)
                if end == newest.position:
                    await self._load_queue(queue, starts, clean=False)
                    return
            else:
                # A power cut may have lost the second half of the newest unit, and nothing behind it tells.
                bad = newest
        if bad is not None:
            end = bad.position
            await self._take_away(queue, starts, bad)
        if self.ext.enabled:
            ext.end = end
            ext.starts = await self._offload(disk.cut, ext.directory, ext.starts, end)

    async def _take_away(self, queue: Queue, starts: list[int], first: _Place) -> None:
        """Have the entries from one on built anew from the log."""
        directory = queue.files.directory
        log.info(
            "%s: entries from %d on are built anew for their units", directory, first.start // ENTRY_SIZE + first.number
        )
        if is_lmq(queue.topic):
            # No sum of sizes tells where these are lacking: the start has to look at the log from there on.
            (data,) = await self._offload(self.disk.read_files, [(directory, first.start)])
            offset, _ = PLACE.unpack_from(data, first.number * ENTRY_SIZE)
            self.light_lacks(offset)
        await self._offload(self.disk.remove_files, [(directory, start) for start in starts if start > first.start])
        await self._offload(self.disk.cut, (directory, first.start), first.number * ENTRY_SIZE)

    # -- writing ---------------------------------------------------------------------------------------------------

    async def write_ext(self, queue: Queue) -> list[tuple[FileKey, bool]]:
        """Write the waiting units of a queue, before the entries that point to them.

        :returns: the files that were written to, and whether they are new.
        :raises OSError: what could not be written is kept.
        """
        ext = self.ext.of(queue)
        if not ext.pieces or queue.files.dropped:
            return []
        pieces = [(position, bytes(piece)) for position, piece in ext.pieces]
        touched = await self._offload(self.ext.disk.write, ext.directory, pieces)
        if queue.files.dropped:
            # Deleted meanwhile, and perhaps made anew by this write.
            if self.get(queue.topic, queue.id) is None:
                self.bury_leftover(ext.directory)
            return []
        ext.written(pieces)
        written = [((ext.directory, start), start not in ext.starts) for start in touched]
        ext.starts = sorted({*ext.starts, *touched})
        return written

    # -- reading ---------------------------------------------------------------------------------------------------

    def entries(self, queue: Queue, index: int, count: int) -> bytes | None:
        data = super().entries(queue, index, count)
        if not data or not _has_address(data):
            return data
        units = self._hot_units(queue, data)
        return None if units is None else _plain(data, units)

    async def entries_cold(self, queue: Queue, index: int, count: int) -> bytes:
        data = await self._raw(queue, index, count)
        return _plain(data, await self._units(queue, data)) if _has_address(data) else data

    def units(self, queue: Queue, index: int, count: int) -> list[ExtUnit | None] | None:
        """The units of up to ``count`` entries, None for an entry without; None when any is cold."""
        data = super().entries(queue, index, count)
        return None if data is None else self._hot_units(queue, data)

    async def units_cold(self, queue: Queue, index: int, count: int) -> list[ExtUnit | None]:
        """The same from wherever they are."""
        return await self._units(queue, await self._raw(queue, index, count))

    async def _raw(self, queue: Queue, index: int, count: int) -> bytes:
        """Entries as they are on disk, addresses and all."""
        data = super().entries(queue, index, count)
        return data if data is not None else await self._from_disk(queue, index, count)

    def _hot_units(self, queue: Queue, data: bytes) -> list[ExtUnit | None] | None:
        ext = self.ext.of(queue)
        found: list[ExtUnit | None] = []
        for _, _, code in _entries(data):
            unit: ExtUnit | None = None
            if is_address(code):
                position = position_of(code)
                known = ext.waiting(position)
                if known is None:
                    shared = self.open_files.get(self._key(ext, position))
                    if shared is None:
                        return None
                    at = position % self.ext.disk.file_size
                    piece = shared.file.pread_hot(_UNIT, at)
                    if piece is None:
                        return None
                    known = unit_at(piece, 0)
                    if known is None:
                        piece = shared.file.pread_hot(_LARGEST, at)
                        if piece is None:
                            return None
                        known = unit_at(piece, 0)
                unit = None if known is None else known[0]
            found.append(unit)
        return found

    async def _units(self, queue: Queue, data: bytes) -> list[ExtUnit | None]:
        ext = self.ext.of(queue)
        reader = UnitReader(self._offload, self.ext.disk, ext, _READ)
        found: list[ExtUnit | None] = []
        for _, _, code in _entries(data):
            known = None
            if is_address(code):
                position = position_of(code)
                known = ext.waiting(position) or await reader.unit(position)
                key = self._key(ext, position)
                if key[1] in ext.starts and self.open_files.get(key) is None:
                    file = await open_aside(self._offload, self.ext.disk.open_file, key)
                    self.open_files.put(key, file)
            found.append(None if known is None else known[0])
        return found

    def _key(self, ext: QueueExt, position: int) -> FileKey:
        return ext.directory, position - position % self.ext.disk.file_size

    # -- changing what is on disk ----------------------------------------------------------------------------------

    async def cut(self, queue: Queue, index: int) -> None:
        if index < queue.next:
            data = await self._raw(queue, max(index, queue.min), 1)
            code = int.from_bytes(data[12:20], "big", signed=True)
            if len(data) == ENTRY_SIZE and is_address(code):
                await self._cut_units(queue, position_of(code))
        await super().cut(queue, index)

    async def _cut_units(self, queue: Queue, position: int) -> None:
        ext = self.ext.of(queue)
        if not self.ext.enabled or position > ext.end:
            return
        ext.cut(position)
        self._close(ext, [start for start in ext.starts if start + self.ext.disk.file_size > position])
        ext.starts = await self._offload(self.ext.disk.cut, ext.directory, ext.starts, position)

    async def trim(self, queue: Queue) -> None:
        """Delete the files of units that entries before the first readable one had."""
        ext = self.ext.of(queue)
        data = await self._raw(queue, queue.min, 1) if queue.min < queue.next else b""
        code = int.from_bytes(data[12:20], "big", signed=True)
        least = position_of(code) if len(data) == ENTRY_SIZE and is_address(code) else ext.end
        gone = [start for start in ext.starts[:-1] if start + self.ext.disk.file_size <= least]
        if gone:
            ext.starts = ext.starts[len(gone) :]
            self._close(ext, gone)
            await self._offload(self.ext.disk.remove, ext.directory, gone)

    def _close(self, ext: QueueExt, starts: Sequence[int]) -> None:
        for start in starts:
            self.open_files.close((ext.directory, start))

    def drop(self, topic: str) -> None:
        queues = self.all(topic)
        super().drop(topic)
        for queue in queues:
            self._forget_units(queue)
        self._bury(f"{self.ext.disk.root}/{topic}")

    def drop_queue(self, queue: Queue) -> None:
        # The last queue of a topic goes with the topic.
        stays = self.get(queue.topic, queue.id) is queue and len(self.all(queue.topic)) > 1
        super().drop_queue(queue)
        if stays:
            self._bury(self.ext.of(queue).directory)
            self._forget_units(queue)

    def _forget_units(self, queue: Queue) -> None:
        ext = self.ext.of(queue)
        self._close(ext, ext.starts)
        self.ext.forget(queue)


def queue_table(world: World, settings: StoreSettings) -> QueueTable:
    """The table that a store needs: one that knows units when they are asked for, or there already."""
    if settings.ext_enable or ExtDisk(world.files, settings.root, settings.ext_file_size).exists():
        return ExtQueueTable(world, settings)
    return QueueTable(world, settings)


def _has_address(data: bytes) -> bool:
    return any(is_address(code) for _, _, code in _entries(data))


def _plain(data: bytes, units: Sequence[ExtUnit | None]) -> bytes:
    """Entries with the tags codes of their units; one whose unit is lost keeps its address, which no filter refuses."""
    return b"".join(
        _entry(offset, size, code if unit is None else unit.tags_code)
        for (offset, size, code), unit in zip(_entries(data), units, strict=True)
    )


class UnitReader:
    """Reads units one behind the other, a block at a time.

    :param block: bytes read at a time.
    """

    def __init__(self, offload: Offload, disk: ExtDisk, ext: QueueExt, block: int = 1 << 20) -> None:
        self._offload = offload
        self._disk = disk
        self._ext = ext
        self._block = block
        self._at = 0
        self._data = b""

    async def unit(self, position: int) -> tuple[ExtUnit, int] | None:
        found = unit_at(self._data, position - self._at) if position >= self._at else None
        if found is None:
            ext = self._ext
            self._at = position
            for size in (self._block, _LARGEST):
                self._data = await self._offload(self._disk.read, ext.directory, ext.starts, position, size)
                found = unit_at(self._data, 0)
                if found is not None or len(self._data) < size:
                    break
        return found

    async def size(self, position: int) -> int:
        """Bytes of the good unit at a position, 0 when there is none."""
        found = await self.unit(position)
        return 0 if found is None else found[1]
