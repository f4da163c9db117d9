"""Forces the commit log to disk: one flush at a time, off the loop, the older file first (store-and-broker.md 2.9).

What a flush covers is noted before it is handed to the thread; bytes written meanwhile belong to the next one, so
that all who wait while one is under way share the next (group commit).
"""

from __future__ import annotations

import logging

from rmq.broker.store.events import StoreEvents
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.settings import StoreSettings
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["LogFlusher"]

log = logging.getLogger(__name__)

_PAGE = 4096


class LogFlusher:
    """The flush service of the commit log.

    With SYNC_FLUSH every append asks for a flush. Without, a timer does; unlike Java's it takes what there is, however
    little, so that a power cut loses at most one interval (reliability.md A.1, W1). ``flushCommitLogLeastPages`` only
    starts a flush before its time, when ``flushCommitLogTimed`` is off.

    :param events: told how far the log is on disk, and of the first failure. Nothing is flushed after it.
    """

    def __init__(
        self,
        world: World,
        commit_log: CommitLog,
        settings: StoreSettings,
        tasks: TaskOwner,
        events: StoreEvents,
    ) -> None:
        self._offload = world.offload
        self._monotonic = world.clock.monotonic
        self._log = commit_log
        self._settings = settings
        self._tasks = tasks
        self._events = events
        self._wanted = 0
        #: What the flush that is under way covers.
        self._until = 0
        self._busy = False
        #: When the flush that is under way began, monotonic seconds; None between flushes.
        self.since: float | None = None
        #: Everything before it is on disk.
        self.flushed = 0
        #: Store time of the newest record that is, ms.
        self.flushed_stamp = 0
        #: A flush failed.
        self.failed = False

    def begin(self, flushed: int, stamp: int) -> None:
        """Start from a log that is on disk up to ``flushed``."""
        self.flushed = self._wanted = flushed
        self.flushed_stamp = stamp
        if not self._settings.sync_flush:
            self._tasks.every(lambda: self._settings.flush_interval_ms / 1000, self.request, "flush")

    def appended(self) -> None:
        """Bytes were appended."""
        settings = self._settings
        if settings.sync_flush or (
            not settings.flush_timed and self._log.end - self.flushed >= settings.flush_least_pages * _PAGE
        ):
            self.request()

    def request(self) -> None:
        """See to it that everything appended so far gets to disk soon."""
        end = self._log.end
        if end > self._wanted:
            self._wanted = end
        if not self._busy and not self.failed and self._wanted > self.flushed and not self._tasks.closed:
            self._busy = True
            self._tasks.spawn(self._work(), "flush-now")

    async def _work(self) -> None:
        try:
            # The log may have been cut back meanwhile.
            while self.flushed < min(self._wanted, self._log.end) and not self.failed:
                await self._flush_once()
        finally:
            self._busy = False

    async def _flush_once(self) -> None:
        commit_log = self._log
        end = self._until = commit_log.end
        stamp = commit_log.stamp
        size = commit_log.file_size
        for file in [f for f in commit_log.segments if f.start + size > self.flushed and f.start < end]:
            file.shared.pin()
            self.since = self._monotonic()
            try:
                await self._offload(commit_log.files.sync, file)
            except OSError as error:
                self.fail(file.path, error)
                return
            finally:
                self.since = None
                file.shared.unpin()
            # The log may have been cut back, and have other bytes there now.
            to = min(self._until, file.start + size)
            if to > self.flushed:
                self.flushed = to
                if to == end:
                    self.flushed_stamp = stamp
                for tell in self._events.flushed:
                    tell(to)

    def log_ends(self, to: int) -> None:
        """The log is cut back to ``to``: what comes there is not on disk, whatever a flush under way says."""
        self.flushed, self._wanted, self._until = (min(at, to) for at in (self.flushed, self._wanted, self._until))

    async def force_cut(self) -> None:
        """See to it that what was cut off does not come back with a power cut.

        :raises OSError: that is not sure; messages are refused from now on.
        """
        for file in self._log.segments[-1:]:
            try:
                await self._offload(self._log.files.sync, file)
            except OSError as error:
                self.fail(file.path, error)
                raise

    def fail(self, path: str, error: OSError) -> None:
        """Something of the log could not be forced to disk: refuse messages from now on."""
        if self.failed:
            return
        # The kernel may have dropped the pages and forgotten the error: a later success would prove nothing.
        self.failed = True
        log.critical("%s could not be forced to disk (%s); nothing is acknowledged from now on", path, error)
        self._log.close_gate(Gate.FSYNC_FAILED)
        for tell in self._events.flush_failed:
            tell()

    async def flush_all(self) -> bool:
        """Flush what there is (at stop, when no task of this service runs any more); whether everything is on disk."""
        while self.flushed < self._log.end and not self.failed:
            await self._flush_once()
        return not self.failed
