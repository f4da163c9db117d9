"""Walks the commit log record by record, says where it is damaged, and where it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.files import LogFile
from rmq.broker.store.log.record_runs import Run, Topics, take
from rmq.broker.store.log.records import check
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.refusal import BAD_PLACE
from rmq.protocol.record import FIXED_SIZE, MAGIC_V1, MAGIC_V2, is_blank, store_time
from rmq.runtime.world import World

__all__ = ["Damage", "LogReader"]

log = logging.getLogger(__name__)

_CHUNK = 2 << 20
_ZEROS = bytes(_CHUNK)
_MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))


class Damage(NamedTuple):
    """Bytes that are no record although good records follow."""

    start: int
    end: int


class LogReader:
    """Reads records in order over all files.

    :param crc: whether bodies' checksums are compared.
    """

    def __init__(self, world: World, commit_log: CommitLog, *, crc: bool = True) -> None:
        self._world = world
        self._offload = world.offload
        self._log = commit_log
        self._crc = crc
        #: Bytes read at a time.
        self.chunk = _CHUNK
        #: Behind the last good record, or at the start of the file behind a blank one.
        self.position = 0
        #: What was skipped; what is in here already is not reported again.
        self.damages: list[Damage] = []
        #: Set by who goes on behind what the disk does not give; without it, that is an error of :meth:`runs`.
        self.unreadable: UnreadablePlaces | None = None
        #: From the last good record before such a place to the first behind it: no damage is told of what is between.
        self.passed_over: list[Damage] = []
        #: Where checksums are compared, those of what stands beside the bodies are, too.
        self.beside = True
        #: What the log still has in memory is taken from there: who follows it does not ask what became of it on disk.
        self.follows = False
        #: Checksums are compared in files from here on only.
        self.crc_from = 0
        #: Where the last clean stop left the log, or -1: nothing is looked for behind that.
        self.clean_end = -1
        #: Behind the last good record; where a blank one begins if it is the last thing in the log.
        self.end = 0
        #: The log ends in the middle of the record at ``position``: the rest is still to come.
        self.half = False
        #: Nothing is to come: what reaches beyond the end of the log has a wrong size.
        self.at_rest = False
        #: Store time of the last good record, ms.
        self.stamp = 0
        self._topics: Topics = {}

    def lost_end(self, log_end: int) -> list[Damage]:
        """What the disk did not give behind the last good record, if anything: everything up to ``log_end``."""
        lost = self.unreadable is not None and self.unreadable.touch(self.end, log_end)
        return [Damage(self.end, log_end)] if lost else []

    async def records(self, start: int, stop: int) -> AsyncIterator[tuple[bytes, list[tuple[int, int, int]]]]:
        """:meth:`runs` as bytes, and (position in them, commit-log offset, size) of each record."""
        async for run in self.runs(start, stop):
            yield run.data, [(at, run.base + at, size) for at, size, *_ in run.records]

    async def runs(self, start: int, stop: int) -> AsyncIterator[Run]:
        """Good records from ``start`` on, which is a record's or a file's start, in slices.

        Nothing is read behind the end of the log, and what is cut off by it is no damage: see ``half``.

        :param stop: the last record begins before it.
        :raises OSError: a file could not be read.
        """
        self.position = self.end = start
        self.half = False
        size = self._log.file_size
        while self.position < min(stop, self._log.end):
            file = self._log.segment_of(self.position)
            if file is None:
                return
            file_end = file.start + size
            async for run in self._in_file(file, file_end, stop):
                yield run
            if self.half:
                return
            if self.position >= stop or self.position >= file_end:
                continue
            # No good record here.
            if self.end == self.clean_end or (following := await self._resume(self.position)) < 0:
                return
            damage = Damage(self.position, following)
            if self.unreadable is not None and self.unreadable.touch(*damage):
                if damage not in self.passed_over:
                    self.passed_over.append(damage)
            elif damage not in self.damages:
                self.damages.append(damage)
                log.error(
                    "commit log is damaged from %d to %d (%s): records there are lost, those behind it are kept",
                    damage.start, damage.end, file.path,
                )  # fmt: skip
            self.position = self.end = following

    async def _in_file(self, file: LogFile, file_end: int, stop: int) -> AsyncIterator[Run]:
        """Records of one file, until there is none at ``self.position`` or the next file has been reached."""
        want = self.chunk
        while self.position < (log_end := min(file_end, self._log.end)) and self.position < stop:
            base = self.position
            asked = min(want, log_end - base)
            data = await self._read(file, base, asked)
            want = self.chunk
            at = 0
            verdict = 1
            while verdict > 0 and base + at < stop:
                compares = self._crc and file.start >= self.crc_from
                run = take(data, at, base, stop, file_end, self._topics, crc=compares)
                if compares and self.beside and (wrong := await self._first_wrong(run)) >= 0:
                    run = run.up_to(wrong)
                verdict = run.verdict
                at = run.end
                if run.records:
                    self.position = self.end = base + at
                    self.stamp = store_time(data, run.records[-1][0])
                    yield run
                    await asyncio.sleep(0)
            if verdict > 0:
                return
            if is_blank(data, at, file_end - base - at):
                self.position = file_end
                return
            if verdict < 0:
                if base + at - verdict > log_end:
                    if self.at_rest:
                        return
                    self.half = base + at < log_end
                    return
                want = max(self.chunk, -verdict)
                # A file that was cut short gives no more, however much is asked for.
                if at == 0 and (len(data) < asked or len(data) >= -verdict):
                    return
                continue
            if len(data) - at < 8 and base + len(data) < log_end and at > 0:
                # Too little of it to tell.
                continue
            return

    async def _first_wrong(self, run: Run) -> int:
        """Position of the first record in which something beside the body changed, or -1."""
        checksums = self._log.checksums
        look = await checksums.look(run)
        if not look.wrong:
            return -1
        first = look.wrong[0]
        if look.fitting > first or await checksums.is_last(run, first) or await self._any_fits(run.base + run.end):
            return first
        checksums.forget(run.base + run.records[first][0])
        return -1

    async def _any_fits(self, start: int) -> bool:
        """Whether a record from ``start`` on has the checksum that is kept of it."""
        checksums = self._log.checksums
        behind = LogReader(self._world, self._log)
        behind.beside = False
        behind.unreadable = UnreadablePlaces(self._log.file_size)
        if not await checksums.reaches(start):
            return False
        async for run in behind.runs(start, self._log.end):
            if (await checksums.look(run)).fitting >= 0:
                return True
            if not await checksums.reaches(run.base + run.end):
                return False
        return False

    async def _read(self, file: LogFile, offset: int, size: int) -> bytes:
        """Bytes of a file; fewer where it ends, or before a place that is to be passed over."""
        if self.follows and (data := self._log.written(offset, size)) is not None:
            return data
        if self.unreadable is None:
            return await self._read_all(file, offset, size)
        return await self.unreadable.read_up_to(self._read_all, file, offset, size)

    async def _read_all(self, file: LogFile, offset: int, size: int) -> bytes:
        shared = file.shared
        try:
            return await self._offload(shared.pin().pread, size, offset - file.start)
        finally:
            shared.unpin()

    async def _resume(self, offset: int) -> int:
        """Offset of the next good record behind ``offset``, or -1 when there is none: then the log ends here."""
        size = self._log.file_size
        for file in self._log.segments:
            file_end = file.start + size
            if file_end <= offset:
                continue
            base = max(file.start, offset + 1)
            while base < (log_end := min(file_end, self._log.end)):
                # Behind the end there may be a gigabyte that was never written: it is not read.
                base = min(max(base, await self._data_from(file, base) - FIXED_SIZE), log_end)
                data = await self._read(file, base, min(self.chunk, log_end - base))
                behind = base + len(data)
                following = behind if self.unreadable is None else self.unreadable.end_at(behind)
                if not data and following == base:
                    break
                for at in self._candidates(data):
                    found = base + at
                    verdict = check(data, at, found, file_end - found, crc=True)
                    if verdict < 0:
                        whole = await self._read(file, found, min(-verdict, log_end - found))
                        verdict = check(whole, 0, found, file_end - found, crc=True)
                        if verdict < 0:
                            whole = await self._read(file, found, min(-verdict, log_end - found))
                            verdict = check(whole, 0, found, file_end - found, crc=True)
                    if verdict > 0:
                        return found
                if following > behind:
                    base = following
                    continue
                if len(data) < self.chunk:
                    break
                base = behind - FIXED_SIZE
                await asyncio.sleep(0)
        return -1

    async def _data_from(self, file: LogFile, offset: int) -> int:
        try:
            return file.start + await self._offload(file.file.data_from, offset - file.start)
        except OSError as error:
            if self.unreadable is None or error.errno not in BAD_PLACE:
                raise
            return offset

    @staticmethod
    def _candidates(data: bytes) -> list[int]:
        """Where the magic says that a record may begin."""
        # Comparing zeros is much faster than searching them.
        if data == _ZEROS[: len(data)]:
            return []
        found: list[int] = []
        for magic in _MAGICS:
            at = data.find(magic)
            while at >= 0:
                if at >= 4:
                    found.append(at - 4)
                at = data.find(magic, at + 1)
        return sorted(found)
