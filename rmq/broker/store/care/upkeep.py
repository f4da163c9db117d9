"""What runs behind a store that is served: queues, index and the next log file get to disk, and the checkpoint follows.

The checkpoint's times never pass what is on disk; its notes of how far the log was forced count for one boot only.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine

from rmq.broker.store.care.ownership import Ownership
from rmq.broker.store.care.retention import Retention
from rmq.broker.store.care.scrub import Scrub
from rmq.broker.store.index.build import IndexBuild
from rmq.broker.store.index.putting import IndexStopped
from rmq.broker.store.log.files import SyncFailed
from rmq.broker.store.log.flush import LogFlusher
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.refusal import FORBIDDEN, told
from rmq.broker.store.trouble import Trouble

__all__ = ["Upkeep"]

log = logging.getLogger(__name__)

#: Seconds between two looks whether the log is to be checked again.
_SCRUB_PAUSE = 10.0
#: Seconds between two looks how full the disks are.
_LOOK_PAUSE = 10.0
#: Bytes of the log forced to disk between two notes of how far it is.
_NOTE_EVERY = 64 << 20
#: What a stop may take for queues, which are made of the log: a daemon is killed 28 s after SIGTERM.
_STOP_SECONDS = 15


class Upkeep:
    """The rhythms of one store, and its checkpoint.

    :param index_build: None without an index.
    """

    def __init__(
        self,
        ground: StoreGround,
        disk: OnDisk,
        writer: QueueWriter,
        index_build: IndexBuild | None,
        flusher: LogFlusher,
        retention: Retention,
        scrub: Scrub,
        ownership: Ownership,
    ) -> None:
        world, self._settings, self._tasks = ground.world, ground.settings, ground.tasks
        self._world = world
        self._offload = world.offload
        self._log = disk.log
        self._queues = disk.queues
        self._writer = writer
        self._index = disk.index
        self._index_build = index_build
        self._flusher = flusher
        self._retention = retention
        self._scrub = scrub
        self._checkpoint = disk.checkpoint
        self._ownership = ownership
        self._boot = world.identity.boot_id()
        self._noted = 0
        self._builds = False
        clock = world.clock
        self._making = Trouble(clock, log, "making the next commit-log file", "it is tried again")
        self._noting = Trouble(clock, log, "writing the checkpoint", "a start after a kill has more to recover")
        self._forcing = Trouble(
            clock, log, "forcing queues and index to disk", "a start after a kill makes them from the commit log"
        )
        self._building = Trouble(clock, log, "building the index", "until then not every message is found by key")
        retention.before_delete = self._before_delete
        disk.log.on_roll.append(lambda _: self._rolled())

    async def begin(self) -> None:
        """Write what a running store has: the next log file first, since that is what fails where nothing can be made.

        :raises OSError: it cannot be written, and waiting would not help.
        """
        self._flusher.begin(self._log.end, self._log.stamp)
        await self._prepare(first=True)
        self._checkpoint.log_start = self._log.start
        self._checkpoint.steps.forget(self._log.start, self._log.end)
        self._checkpoint.forget_indexed()
        self._note_forced()
        build = self._index_build
        if build is not None and not build.complete:
            # Java dispatches from these times on: it has to put the keys, should it open this store next.
            self._checkpoint.logics = min(self._checkpoint.logics, build.stamp)
            self._checkpoint.index = min(self._checkpoint.index, build.stamp)
        await self._offload(self._checkpoint.save)

    def run(self) -> None:
        """Begin the rhythms of a store that takes messages."""
        settings, tasks = self._settings, self._tasks
        if self._queues.pending:
            # Entries that were lost are in memory again; Java would have to make them, should it open this store next.
            self._checkpoint.logics = 0
        self.build_index()
        tasks.every(lambda: settings.queue_flush_interval_ms / 1000, self._owned(self._interval), "queues")
        tasks.every(lambda: settings.queue_thorough_interval_ms / 1000, self._owned(self.force), "checkpoint")
        tasks.every(lambda: settings.clean_interval_ms / 1000, self._owned(self._retention.run), "clean", first=60)
        tasks.every(_SCRUB_PAUSE, self._owned(self._scrub.run), "scrub", first=60)
        tasks.every(_LOOK_PAUSE, self._retention.check_disk, "disk")

    def build_index(self) -> None:
        """Have the index brought up to the log, where it is not."""
        build = self._index_build
        if build is not None and not build.complete and not self._builds and not self._tasks.closed:
            self._builds = True
            self._tasks.spawn(self._build_index(build), "index")

    def _owned(self, work: Callable[[], Awaitable[None]]) -> Callable[[], Coroutine[None, None, None]]:
        """What writes files by their names, while these are this broker's. The next start does it anew."""

        async def run() -> None:
            if await self._ownership.look():
                await work()

        return run

    async def finish(self, *, dispatched: bool) -> bool:
        """Bring everything to disk, when nothing is appended any more; whether the next start may find it clean.

        :param dispatched: whether all of the log is in queues and index.
        """
        until = self._world.clock.monotonic() + _STOP_SECONDS
        flushed = await self._flusher.flush_all()
        if not await self._ownership.look():
            return False
        clean = await self._log.clear() and flushed
        await self._log.checksums.write(self._flusher.flushed, everything=True)
        try:
            if not await self._finish_queues(until):
                clean = False
            if self._index is not None:
                await self._index.writer.force()
            if self.indexed and dispatched:
                self._checkpoint.note_indexed(
                    *(self._index.position if self._index is not None else (-1, 0)), self._log.end
                )
            if flushed:
                self._checkpoint.physic = self._log.stamp
                self._note_forced()
            if clean:
                self._checkpoint.logics = self._dispatched_stamp(self._log.stamp)
            await self._offload(self._checkpoint.save)
        except OSError as error:
            log.error("the store could not be stopped cleanly (%s); the next start recovers it", error)
            clean = False
        return clean

    async def _finish_queues(self, until: float) -> bool:
        """Bring queues to disk; whether they are there. What is not costs the stop nothing else."""
        try:
            try:
                written = await self._writer.write(everything=True, until=until)
            finally:
                await self._writer.sweep()
                forced = await self._writer.sync(until=until)
        except OSError as error:
            log.error(
                "queues could not be brought to disk: %s; the next start makes them from the commit log", told(error)
            )
            return False
        if not (written and forced):
            log.warning(
                "not all consume queues are on disk %d s after the stop began; the next start makes them from the "
                "commit log", _STOP_SECONDS,
            )  # fmt: skip
        return written and forced

    def flushed(self, to: int) -> None:
        """The log is on disk up to ``to``."""
        if to - self._noted >= _NOTE_EVERY and not self._tasks.closed:
            self._note_forced()
            self._tasks.spawn(self._save_notes(), "note")

    async def note_cut(self, to: int) -> None:
        """The log was cut back to ``to``: what is noted of it goes back, too, and its check.

        :raises OSError: the checkpoint could not be written.
        """
        self._scrub.log_ends(to)
        self._note_forced()
        await self._offload(self._checkpoint.save)

    def flush_failed(self) -> None:
        """What was noted of this boot does not hold any more."""
        self._checkpoint.forget_forced()
        if not self._tasks.closed:
            self._tasks.spawn(self._save_notes(), "note")

    def _note_forced(self) -> None:
        self._noted = self._flusher.flushed
        files = {file.start: file.path for file in self._log.segments if file.start < self._log.end}
        self._checkpoint.note_forced(self._boot, min(self._noted, self._log.end), files)

    async def _save_notes(self) -> None:
        """The times stay as they are: nothing has to be forced for what is of use in this boot only."""
        if self._ownership.lost:
            return
        try:
            await self._offload(functools.partial(self._checkpoint.save, force=False))
        except OSError as error:
            self._noting.failed(error)
        else:
            self._noting.over()

    def _rolled(self) -> None:
        if not self._tasks.closed and not self._log.gate & Gate.SHUT_DOWN:
            self._flusher.request()
            self._tasks.spawn(self._owned(self._prepare)(), "prepare")
            # Who removes the file that is full now takes no queue's end along.
            if len(self._log.segments) > 1:
                self._tasks.spawn(self._owned(self._write_queues)(), "queues at a roll")

    async def _write_queues(self) -> None:
        with contextlib.suppress(OSError):  # the next interval tries it again, and tells
            await self._writer.write(everything=True)

    async def _prepare(self, *, first: bool = False) -> None:
        try:
            await self._log.prepare()
        except SyncFailed as error:
            self._flusher.fail(str(error.filename), error)
        except OSError as error:
            if first and error.errno in FORBIDDEN:
                raise
            self._making.failed(error)
        else:
            self._making.over()

    async def _interval(self) -> None:
        await self._writer.interval()
        await self._log.checksums.write(self._flusher.flushed)
        if self._index is not None:
            await self._index.writer.try_write()
        if not self._log.prepared and not self._flusher.failed:
            await self._prepare()

    @property
    def indexed(self) -> bool:
        """Whether no key is missing in the index, or there is none."""
        return self._index_build is None or self._index_build.complete

    def _dispatched_stamp(self, stamp: int) -> int:
        """Store time up to which no queue entry and no key is missing, when queues have those up to ``stamp``."""
        build = self._index_build
        return stamp if build is None or build.complete else min(stamp, build.stamp)

    async def _build_index(self, build: IndexBuild) -> None:
        try:
            while not build.complete:
                try:
                    await build.run()
                except (OSError, IndexStopped) as error:
                    self._building.failed(error)
                    await asyncio.sleep(10)
            self._building.over()
        finally:
            self._builds = False

    async def _before_delete(self) -> None:
        """The next start is not to miss the file that goes now."""
        self._checkpoint.log_start = self._log.start + self._log.file_size
        await self.force()

    async def force(self) -> None:
        """Bring queues to disk and move the checkpoint: its times never pass what is not on disk."""
        stamp = self._dispatched_stamp(self._log.stamp)
        failed: OSError | None = None
        for part in (functools.partial(self._writer.write, everything=True), self._writer.sync, self._force_index):
            try:
                await part()
            except OSError as error:
                failed = error
        if not self._flusher.failed:
            self._note_forced()
        # Store times may have gone back meanwhile.
        newest = self._log.stamp
        self._checkpoint.physic = min(max(self._checkpoint.physic, self._flusher.flushed_stamp), newest)
        # What is missing in a queue or in the index is behind the last time when nothing was.
        self._checkpoint.logics = min(max(self._checkpoint.logics, 0 if failed else stamp), newest)
        try:
            await self._offload(self._checkpoint.save)
        except OSError as error:
            failed = error
        if failed is None:
            self._forcing.over()
        else:
            self._forcing.failed(failed)

    async def _force_index(self) -> None:
        if self._index is not None:
            await self._index.writer.force()
