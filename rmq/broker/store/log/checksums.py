"""Checksums of what stands beside the bodies in the commit log: for each file one in ``{root}/checksums``.

Java does not know the directory, and nobody needs it: without one of its files, or a part of one, what was in it is not
compared until the scrub has made it anew. A block (:mod:`.sums`) is believed only when its own checksum fits, and only
of the very log that it was made of. Another broker may have cut the log back and gone on, a backup may have brought
another one: then its records do not have these sums, and are good all the same. So a record is damaged only where

- its body has its checksum and its lengths add up, but none of the sums of its stretch is its own; and
- one behind it has one: who cuts the log back leaves no record behind the cut as it was; or it is the very last of all
  that have sums, and the block says that it has the body of before, and a time of before; and
- not both of its times are later than all of its block.

Otherwise the sums are those of another log, and are given up from there on (:meth:`Checksums.forget`).

Sums are made by those who read: recovery and the scrub; and where ``checksums_on_append`` is set by the append
(:func:`.sums.sums_of`) and by a slave that takes records in. They are
written seconds later, and only those of what was forced to disk; they are never forced themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rmq.broker.store.log.files import file_name, offset_of
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.log.sums import MOST, Block, Identity, decode, encode, identity, own_sum, sums_in
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.trouble import Trouble
from rmq.protocol.record import HEAD_SIZE, Buffer
from rmq.runtime.world import File, World

if TYPE_CHECKING:
    from rmq.broker.store.log.commit_log import CommitLog

__all__ = ["Checksums", "Look"]

log = logging.getLogger(__name__)

#: A stretch goes on for so many sums, or so many seconds; the sums of few messages share a block.
_ENOUGH = 4096
_LONGEST = 10.0
#: Sums that wait in memory for the flush of their records; beyond it, the oldest are left to the scrub.
_MOST_WAITING = 1 << 20
#: Files whose blocks are known.
_MOST_KNOWN = 4
#: Blocks whose sums are kept for those who read record by record.
_MOST_HELD = 16
#: Blocks taken in before the loop goes on.
_AT_ONCE = 256
_UNKNOWN = Identity(0, 0, 0)
#: Behind every offset.
_NEVER = 1 << 62


class Look(NamedTuple):
    """What the sums say of a run of good records."""

    #: Positions in it of records with another sum.
    wrong: list[int]
    #: Position of the last one that has its sum, or -1.
    fitting: int


class _Stretch:
    """Records side by side in one file, and their sums."""

    __slots__ = ("end", "last", "since", "start", "sums")

    def __init__(self, start: int, since: float) -> None:
        self.start = self.end = start
        self.last = -1
        self.since = since
        self.sums = array("I")


class _Known:
    """The blocks of one file."""

    def __init__(self) -> None:
        #: By where they begin.
        self.blocks: list[Block] = []
        #: Where the next one is written.
        self.size = 0
        self._longest = 0

    def add(self, block: Block) -> None:
        self.blocks.insert(bisect_left(self.blocks, block.start, key=_start), block)
        self.size = max(self.size, block.at + block.size)
        self._longest = max(self._longest, block.end - block.start)

    def touching(self, start: int, end: int) -> list[Block]:
        """Those whose stretch has a byte from one offset to another."""
        first = bisect_left(self.blocks, start - self._longest, key=_start)
        behind = bisect_left(self.blocks, end, key=_start)
        return [block for block in self.blocks[first:behind] if block.end > start]


def _start(block: Block) -> int:
    return block.start


def _is_later(who: Identity, block: Block) -> bool:
    """Whether a record says in two ways that it was not there yet when a block was made."""
    return block.last >= 0 and min(who.stamp, who.born) > block.identity.stamp


class Checksums:
    """The checksums of one store. All methods run on the loop; what may block is a coroutine.

    :param commit_log: whose records they are of.
    :param settings: the root, and whether sums are made.
    """

    def __init__(self, world: World, settings: StoreSettings, commit_log: CommitLog) -> None:
        self._files = world.files
        self._offload = world.offload
        self._monotonic = world.clock.monotonic
        self._settings = settings
        self._log = commit_log
        self._file_size = commit_log.file_size
        self.root = os.path.join(settings.root, "checksums")
        #: What grows with the appends, what was read, and those that are ready for their file.
        self._open = _Stretch(-1, 0.0)
        self._read = _Stretch(-1, 0.0)
        self._waiting: list[_Stretch] = []
        self._known: dict[int, _Known] = {}
        self._held: dict[Block, frozenset[int]] = {}
        #: From here on sums are of another log; the files that hold them go with the next write.
        self._stale = _NEVER
        self._lock = asyncio.Lock()
        self._writing = Trouble(
            world.clock, log, "writing checksums of the commit log",
            "the scrub makes them later; until then no change of what stands beside the bodies is noticed",
        )  # fmt: skip
        self._reading = Trouble(
            world.clock, log, "reading checksums of the commit log", "what stands beside the bodies is not compared"
        )

    # -- making ----------------------------------------------------------------------------------------------------

    def appended(self, at: int, pieces: Sequence[bytes], sums: Sequence[array[int]], last: int) -> None:
        """Records were appended.

        :param at: where the log ended before.
        :param pieces: their bytes, a piece a file, and
        :param sums: their sums, as many.
        :param last: where the last record begins.
        """
        size = self._file_size
        stretch = self._open
        for piece, made in zip(pieces, sums, strict=True):
            if made:
                if at != stretch.end or len(stretch.sums) >= _ENOUGH or not at % size:
                    stretch = self._open = self._begin(stretch, at)
                stretch.sums += made
                at += len(piece)
                stretch.end = at
                stretch.last = -1
            at += size - at % size
        stretch.last = last

    def _begin(self, before: _Stretch, at: int) -> _Stretch:
        """A stretch ends, and another one begins."""
        if 0 < len(before.sums) <= MOST:
            self._waiting.append(before)
            while sum(len(stretch.sums) for stretch in self._waiting) > _MOST_WAITING:
                del self._waiting[0]
        return _Stretch(at, self._monotonic())

    @property
    def of_new(self) -> bool:
        """Whether sums are made of what is new, and not by the check behind it."""
        return self._settings.checksums_on_append and self._settings.checksums

    def dispatched(self, run: Run) -> None:
        """Good records came from another broker."""
        if self.of_new and run.records:
            self._open = self._grown(self._open, run, 0, len(run.records), sums_in(run))

    async def cover(self, run: Run) -> None:
        """Make the sums of good records, where there are none."""
        if not self._settings.checksums or not run.records:
            return
        start, end = run.base + run.records[0][0], run.base + run.end
        touching = (await self._blocks(start)).touching(start, end)
        touching_stretches = [(block.start, block.end) for block in touching]
        touching_stretches += [(s.start, s.end) for s in (*self._waiting, self._open, self._read) if s.end > start]
        if any(first <= start and end <= behind for first, behind in touching_stretches):
            return
        sums = sums_in(run)
        lacking = [
            not any(first <= run.base + record[0] < behind for first, behind in touching_stretches)
            for record in run.records
        ]
        at = 0
        for lacks, group in groupby(lacking):
            behind = at + len(list(group))
            if lacks:
                self._read = self._grown(self._read, run, at, behind, sums)
            at = behind

    def _grown(self, stretch: _Stretch, run: Run, first: int, behind: int, sums: array[int]) -> _Stretch:
        """The stretch that has some records of a run, too."""
        at = run.base + run.records[first][0]
        if at != stretch.end or len(stretch.sums) >= _ENOUGH or not at % self._file_size:
            stretch = self._begin(stretch, at)
        stretch.sums += sums[first:behind]
        stretch.last = run.base + run.records[behind - 1][0]
        stretch.end = run.base + (run.records[behind][0] if behind < len(run.records) else run.end)
        return stretch

    # -- writing ---------------------------------------------------------------------------------------------------

    async def write(self, forced: int, *, everything: bool = False) -> None:
        """Write the sums of what was forced to disk, when they are many, or have waited; an error is told in the log.

        :param forced: commit-log offset up to which it was.
        :param everything: nothing is appended any more.
        """
        async with self._lock:
            try:
                await self._remove_stale()
                now = self._monotonic()
                for name in ("_open", "_read"):
                    stretch = getattr(self, name)
                    if everything or (stretch.sums and now - stretch.since >= _LONGEST):
                        setattr(self, name, self._begin(stretch, -1))
                ready = [stretch for stretch in self._waiting if stretch.end <= forced]
                self._waiting = [stretch for stretch in self._waiting if stretch.end > forced]
                ready.sort(key=lambda stretch: stretch.start)
                for start, group in groupby(ready, lambda stretch: stretch.start // self._file_size * self._file_size):
                    await self._write(start, list(group))
            except OSError as error:
                self._writing.failed(error)
            else:
                self._writing.over()

    async def _write(self, file: int, stretches: Iterable[_Stretch]) -> None:
        known = await self._load(file)
        blocks: list[Block] = []
        parts: list[bytes] = []
        at = known.size
        for stretch in stretches:
            block = Block(stretch.start, stretch.end, len(stretch.sums), *await self._last_of(stretch), at)
            blocks.append(block)
            parts.append(encode(block, stretch.sums))
            at += block.size
        await self._offload(self._put, self._path(file), b"".join(parts), known.size)
        for block in blocks:
            known.add(block)

    async def _last_of(self, stretch: _Stretch) -> tuple[int, Identity]:
        if stretch.last < 0:
            return -1, _UNKNOWN
        head = await self._log.read_cold(stretch.last, HEAD_SIZE)
        return (stretch.last, identity(head, 0)) if len(head) == HEAD_SIZE else (-1, _UNKNOWN)

    def _put(self, path: str, data: bytes, at: int) -> None:
        self._files.mkdir(self.root)
        file = self._files.open(path, create=True)
        try:
            file.pwrite(data, at)
        except OSError:
            if at == 0:
                with contextlib.suppress(OSError):
                    self._files.unlink(path)
            raise
        finally:
            file.close()

    # -- what becomes of the log -----------------------------------------------------------------------------------

    async def log_ends(self, to: int) -> None:
        """The log was cut back to ``to``: what comes there has other sums. An error is told in the log."""
        async with self._lock:
            self._waiting = [stretch for stretch in self._waiting if stretch.end <= to]
            self._open, self._read = (
                stretch if stretch.end <= to else _Stretch(-1, 0.0) for stretch in (self._open, self._read)
            )
            file = to - to % self._file_size
            try:
                for start in await self._offload(self._there):
                    if start >= to:
                        await self._remove(start)
                known = await self._load(file)
                kept = [block for block in known.blocks if block.end <= to]
                if len(kept) < len(known.blocks):
                    await self._keep(file, kept)
            except OSError as error:
                self._stale = min(self._stale, to)
                self._writing.failed(error)

    async def _keep(self, file: int, blocks: Sequence[Block]) -> None:
        """Leave these blocks only."""
        del self._known[file]
        self._held.clear()
        if not blocks:
            await self._remove(file)
            return
        path = self._path(file)
        data = await self._offload(self._read_all, path)
        rest = b"".join(data[block.at : block.at + block.size] for block in blocks)
        await self._offload(self._files.write_atomic, path, rest)

    async def log_begins(self, start: int) -> None:
        """The files of the log before ``start`` are gone. An error is told in the log."""
        async with self._lock:
            try:
                for file in await self._offload(self._there):
                    if file + self._file_size <= start:
                        await self._remove(file)
            except OSError as error:
                self._writing.failed(error)

    def forget(self, offset: int) -> None:
        """The sums are not of the log that is there, from ``offset`` on."""
        if offset < self._stale:
            self._stale = offset
            log.warning(
                "%s: checksums from commit-log offset %d on are of other messages than those that are there: another "
                "broker wrote to the log, or it was brought back from a backup; they are made anew by the scrub",
                self._path(offset - offset % self._file_size), offset,
            )  # fmt: skip

    async def _remove_stale(self) -> None:
        if (stale := self._stale) == _NEVER:
            return
        for start in await self._offload(self._there):
            if start + self._file_size > stale:
                await self._remove(start)
        self._stale = _NEVER

    async def _remove(self, start: int) -> None:
        self._known.pop(start, None)
        self._held.clear()
        await self._offload(self._files.unlink, self._path(start))

    # -- comparing -------------------------------------------------------------------------------------------------

    async def look(self, run: Run) -> Look:
        """What the sums say of good records; nothing where they have none."""
        wrong: list[int] = []
        fitting = -1
        if not run.records:
            return Look(wrong, fitting)
        start, end = run.base + run.records[0][0], run.base + run.end
        touching = [block for block in (await self._blocks(start)).touching(start, end) if block.end <= self._stale]
        if not touching:
            return Look(wrong, fitting)
        touching, known = await self._sums(start - start % self._file_size, touching)
        sums = sums_in(run)
        if known.issuperset(sums):
            return Look(wrong, len(sums) - 1)
        for number, made in enumerate(sums):
            if made in known:
                fitting = number
                continue
            offset = run.base + run.records[number][0]
            covering = [block for block in touching if block.start <= offset < block.end]
            who = identity(run.data, run.records[number][0])
            if covering and not any(_is_later(who, block) for block in covering):
                wrong.append(number)
        return Look(wrong, fitting)

    async def differing(self, offsets: Sequence[int], records: Sequence[Buffer]) -> list[int]:
        """Which of some good records, by their positions, do not have the sums that they had.

        They are damaged, unless the sums are of another log: a :class:`.reader.LogReader` tells.

        :param offsets: where each lies in the log.
        """
        found: list[int] = []
        covering: list[Block] = []
        sums: list[frozenset[int]] = []
        low = high = 0
        for number, (offset, record) in enumerate(zip(offsets, records, strict=True)):
            if not low <= offset < high:
                known = await self._blocks(offset)
                covering = [block for block in known.touching(offset, offset + 1) if block.end <= self._stale]
                low = max((block.start for block in covering), default=0)
                high = min((block.end for block in covering), default=0)
                sums = [await self._sums_of(block) for block in covering]
            if not any(sums):
                continue
            data = bytes(record)
            own = own_sum(data, 0, len(data))
            if not any(own in some for some in sums):
                who = identity(data, 0)
                if not any(_is_later(who, block) for block in covering):
                    found.append(number)
        return found

    async def _sums_of(self, block: Block) -> frozenset[int]:
        """The sums of a block, which are kept for a while; none when it is not there any more."""
        held = self._held.pop(block, None)
        if held is None:
            _, sums = await self._sums(block.start - block.start % self._file_size, [block])
            held = frozenset(sums)
            while len(self._held) >= _MOST_HELD:
                del self._held[next(iter(self._held))]
        self._held[block] = held
        return held

    async def is_last(self, run: Run, number: int) -> bool:
        """Whether a record is the last that has a sum, and the very message that it was."""
        at = run.records[number][0]
        offset = run.base + at
        who = identity(run.data, at)
        return any(
            block.last == offset
            and block.identity.body_crc == who.body_crc
            and (block.identity.stamp == who.stamp or block.identity.born == who.born)
            for block in (await self._blocks(offset)).touching(offset, offset + 1)
        )

    async def reaches(self, offset: int) -> bool:
        """Whether any record from ``offset`` on has a sum."""
        if any(block.end > offset for block in (await self._blocks(offset)).blocks):
            return True
        try:
            return any(start > offset for start in await self._offload(self._there))
        except OSError as error:
            self._reading.failed(error)
            return False

    async def _sums(self, file: int, blocks: list[Block]) -> tuple[list[Block], set[int]]:
        """Blocks of a file as they are there now, and their sums."""
        there: list[Block] = []
        known: set[int] = set()
        try:
            data = await self._offload(self._read_blocks, self._path(file), sorted(blocks, key=lambda block: block.at))
        except OSError as error:
            self._reading.failed(error)
            return there, known
        for block, piece in data:
            for found, sums in decode(piece):
                if found._replace(at=block.at) == block:
                    there.append(block)
                    known.update(sums)
        return there, known

    def _read_blocks(self, path: str, blocks: Iterable[Block]) -> list[tuple[Block, bytes]]:
        file = self._files.open(path, readonly=True)
        try:
            return [(block, file.pread(block.size, block.at)) for block in blocks]
        finally:
            file.close()

    async def _blocks(self, offset: int) -> _Known:
        async with self._lock:
            return await self._load(offset - offset % self._file_size)

    async def _load(self, file: int) -> _Known:
        """The blocks of a file, and no others; what is no block is passed over."""
        known = self._known.get(file)
        if known is not None:
            return known
        known = _Known()
        try:
            data = await self._offload(self._read_all, self._path(file))
        except FileNotFoundError:
            data = b""
        except OSError as error:
            self._reading.failed(error)
            data = b""
        for number, (block, _) in enumerate(decode(data)):
            if file <= block.start < block.end <= file + self._file_size:
                known.add(block)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        while len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[file] = known
        return known

    def _read_all(self, path: str) -> bytes:
        """No more than any file can have: no record is as small as its share of a block."""
        file: File = self._files.open(path, readonly=True)
        try:
            return file.pread(min(file.size(), self._file_size), 0)
        finally:
            file.close()

    def _there(self) -> list[int]:
        return [start for name in self._files.list(self.root) if (start := offset_of(name)) >= 0]

    def _path(self, file: int) -> str:
        return os.path.join(self.root, file_name(file))
