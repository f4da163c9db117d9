"""Reads the whole commit log behind the running broker, slowly, and compares the checksums of bodies (I11).

A start checks what may have been lost just before it. A disk that loses something later is noticed here: the place is
told in the log and in the runtime information, and its messages are kept apart (:class:`DamagedParts`). What a consumer
asks for before the pass comes by is given as it is.

Only what has been forced to disk is read, for nothing changes there any more. It is read in small pieces and does not
push out of the page cache what consumers need. A pass goes on where an earlier process left it.

A place that the disk does not give is told, too, and passed over to the page. It is not damaged: the next pass, a pull
or a start may be able to read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from rmq.broker.store.care.damaged import DamagedParts
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.files import LogFile
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.log.reader import Damage, LogReader
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.open_files import open_aside
from rmq.broker.store.settings import StoreSettings
from rmq.runtime.world import File, World

__all__ = ["Scrub"]

log = logging.getLogger(__name__)

#: The loop checks so many bytes at a time, and between two pauses so many.
_CHUNK = 256 << 10
_STEP = 1 << 20
_MIB = 1 << 20
#: Share of the interval in which a pass is to be done: it is slowed down at times.
_IN_TIME = 0.8
#: How many times slower it goes while messages come in faster than it reads.
_BUSY = 4


class Scrub:
    """The check of one store's log.

    :param flushed: where the part that was forced to disk ends.
    """

    def __init__(
        self,
        world: World,
        commit_log: CommitLog,
        settings: StoreSettings,
        damaged: DamagedParts,
        flushed: Callable[[], int],
    ) -> None:
        self._world = world
        self._clock = world.clock
        self._log = commit_log
        self._settings = settings
        self._damaged = damaged
        self._flushed = flushed
        self._reader = _Aside(world, commit_log)
        #: What could not be read in this pass, between two good records; and in the last one, this, or the start.
        self._met: list[Damage] = []
        self.unreadable: list[Damage] = []
        #: Told of the good records that go by; none of them raises an error of the disk.
        self.compares: list[Callable[[Run], Awaitable[None]]] = []
        #: Called where a pass begins, or goes on; and where it ends, or is broken off.
        self.on_begin: list[Callable[[], None]] = []
        self.on_end: list[Callable[[], None]] = []
        #: Bytes checked by this process, and messages kept apart.
        self.checked = 0
        self.set_aside = 0
        #: A pass is under way.
        self.active = False
        self._saved_file = -1
        #: How often the log was cut back.
        self._cuts = 0

    def met_at_start(self, parts: Iterable[Damage]) -> None:
        """What a start could not read: known as what a pass meets."""
        for part in parts:
            self._tell_unreadable(part)
        self._met = []

    def log_ends(self, to: int) -> None:
        """The log was cut back to ``to``, within a record or behind one: where other bytes come, a pass begins anew."""
        self._cuts += 1
        self._reader.stale = True
        if self._damaged.position > to:
            self._damaged.position = to - to % self._log.file_size
        if self.active:
            for tell in (*self.on_end, *self.on_begin):
                tell()

    def progress(self) -> str:
        """How far it is and what it found, in a sentence."""
        parts = self._damaged.parts
        found = f"{len(parts)} damaged places, {self._damaged.bytes} bytes" if parts else "no damage known"
        if self.unreadable:
            found += f"; {len(self.unreadable)} places cannot be read, {self.unreadable_bytes} bytes"
        if not self._settings.scrub_rate_mib:
            return f"off; {found}"
        found = f"{self._duration()}; {found}"
        if not self._damaged.began_ms:
            return f"not begun yet; {found}"
        since = datetime.fromtimestamp(self._damaged.began_ms // 1000)
        if not self.active:
            return f"the pass of {since:%Y-%m-%d %H:%M:%S} is done; {found}"
        whole = max(1, self._log.end - self._log.start)
        done = 100 * max(0, self._damaged.position - self._log.start) / whole
        return f"{done:.1f} % checked since {since:%Y-%m-%d %H:%M:%S}; {found}"

    def _rate(self) -> float:
        """MiB a second at which a pass is done before the next is due, within the two limits."""
        settings = self._settings
        least = max(1, settings.scrub_rate_mib)
        seconds = settings.scrub_interval_hours * 3600 * _IN_TIME
        wanted = (self._log.end - self._log.start) / _MIB / seconds if seconds else 0.0
        return max(least, min(wanted, settings.scrub_most_mib))

    def _duration(self) -> str:
        """What a pass over the log as it is now takes, in words."""
        rate = self._rate()
        hours = (self._log.end - self._log.start) / _MIB / rate / 3600
        time = f"{hours:.1f} h" if hours >= 1 else f"{max(1, math.ceil(hours * 60))} min"
        return f"a pass takes {time} at {rate:.3g} MiB/s"

    @property
    def unreadable_bytes(self) -> int:
        """Bytes that could not be read when it came by."""
        return sum(part.end - part.start for part in self.unreadable)

    async def run(self) -> None:
        """One pass, or what is left of it; called again and again.

        :raises OSError: a file could not be read; the next call goes on behind it.
        """
        damaged, settings = self._damaged, self._settings
        if settings.scrub_rate_mib <= 0:
            return
        now = self._clock.now_ms()
        if damaged.position < 0:
            if damaged.began_ms and 0 <= now - damaged.began_ms < settings.scrub_interval_hours * 3_600_000:
                return
            damaged.began_ms = now
            damaged.position = self._log.start
        # An earlier process may have stopped within a record.
        damaged.position = max(self._log.start, damaged.position - damaged.position % self._log.file_size)
        self.active = True
        for begin in self.on_begin:
            begin()
        # Tried again from now on.
        self._reader.unreadable = UnreadablePlaces(self._log.file_size)
        try:
            await self._pass()
        finally:
            self.active = False
            for end in self.on_end:
                end()
            await self._reader.close()

    async def _pass(self) -> None:
        damaged = self._damaged
        known = len(damaged.parts)
        while self._settings.scrub_rate_mib > 0:
            damaged.position = max(damaged.position, self._log.start)
            stop = min(self._flushed(), self._log.end)
            if damaged.position >= stop:
                damaged.position = -1
                self.active = False
                self.unreadable, self._met = self._met, []
                log.info("the commit log was checked up to %d: %s", stop, self.progress())
                await damaged.save()
                return
            before, end = damaged.position, self._log.end
            await self._some(stop)
            file = damaged.position // self._log.file_size
            if file != self._saved_file or len(damaged.parts) != known:
                self._saved_file, known = file, len(damaged.parts)
                await damaged.save()
            passed = max(_CHUNK, damaged.position - before)
            slower = _BUSY if self._log.end - end > passed else 1
            await asyncio.sleep(slower * passed / (self._rate() * _MIB))

    async def _some(self, stop: int) -> None:
        """Check the next records, which end before ``stop``."""
        damaged, reader = self._damaged, self._reader
        start, cuts = damaged.position, self._cuts
        found: list[Damage] = []
        reader.damages = list(damaged.parts)
        reader.passed_over = []
        try:
            async for run in reader.runs(start, min(stop, start + _STEP)):
                for compare in self.compares:
                    await compare(run)
                if cuts != self._cuts:
                    return  # what was read may not be there any more
                damaged.position = run.base + run.end
                self.checked += run.end - run.records[0][0]
        except OSError as error:
            if start < self._log.start or cuts != self._cuts:
                return  # retention took the file, or a cut
            size = self._log.file_size
            damaged.position = reader.position - reader.position % size + size
            log.critical("the commit log cannot be read at %d (%s); its check goes on at %d",
                         reader.position, error, damaged.position)  # fmt: skip
            return
        if cuts != self._cuts:
            return
        damaged.position = max(damaged.position, reader.position)
        if damaged.position == start:
            if start < self._log.start or min(self._flushed(), self._log.end) < stop:
                return  # retention came by, or a failed append was taken back
            damaged.position = stop
            if reader.unreadable is not None and reader.unreadable.touch(start, stop):
                reader.passed_over.append(Damage(start, stop))
            elif not (reader.half and self._log.gate & Gate.SLAVE):
                # Another broker's log comes in pieces: the next pass has the rest of half a record.
                log.error("commit log is damaged from %d to %d, where it ends", start, stop)
                found.append(Damage(start, stop))
        for part in reader.passed_over:
            self._tell_unreadable(part)
        found += [part for part in reader.damages if part not in damaged.parts]
        for part in found:
            await self.tell(part)

    def _tell_unreadable(self, part: Damage) -> None:
        self._met.append(part)
        if any(known.start <= part.start and part.end <= known.end for known in self.unreadable):
            return
        self.unreadable = sorted({*self.unreadable, part})
        file = self._log.segment_of(part.start)
        log.critical(
            "%s cannot be read at %d, %d bytes from offset %d on: messages there cannot be had until it can; have the "
            "disk checked",
            "the commit log" if file is None else file.path, part.start % self._log.file_size, part.end - part.start,
            part.start,
        )  # fmt: skip

    async def tell(self, part: Damage) -> None:
        """A part of the log is damaged: told of once, and kept apart."""
        if self._damaged.bytes_in(part.start, part.end) == part.end - part.start:
            return
        self._damaged.add([part], self._log.start)
        count = await self._damaged.set_aside(part)
        self.set_aside += count
        file = self._log.segment_of(part.start)
        log.critical(
            "%s is damaged at %d, %d bytes from offset %d on: %d messages are lost, and their queue entries are blank "
            "from now on; have the disk checked",
            "the commit log" if file is None else file.path, part.start % self._log.file_size, part.end - part.start,
            part.start, count,
        )  # fmt: skip


class _Aside(LogReader):
    """Reads files of its own, past the page cache as far as that goes."""

    def __init__(self, world: World, commit_log: CommitLog) -> None:
        super().__init__(world, commit_log)
        self.chunk = _CHUNK
        self._open = world.files.open
        self._file: tuple[int, File] | None = None
        #: It may have been deleted, and another one be in its place.
        self.stale = False

    async def _read_all(self, file: LogFile, offset: int, size: int) -> bytes:
        if self._file is None or self._file[0] != file.start or self.stale:
            self.stale = False
            await self.close()
            opened = await open_aside(self._offload, self._open_file, file.path)
            self._file = (file.start, opened)
        return await self._offload(self._file[1].pread_aside, size, offset - file.start)

    def _open_file(self, path: str) -> File:
        return self._open(path, readonly=True)

    async def close(self) -> None:
        held, self._file = self._file, None
        if held is not None:
            with contextlib.suppress(OSError):
                held[1].close()
