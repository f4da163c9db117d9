"""Tries again where the system does not let the broker write to its commit log, until it does."""

from __future__ import annotations

import asyncio
from math import inf

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.gate import Gate
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Clock

__all__ = ["FIRST_PAUSE", "ForbiddenWrites", "Pauses"]

#: Seconds between the first tries, and between the later ones.
FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
#: Who is refused again so soon after a try, seconds, was not allowed to write in between.
_SOON = 5.0


class Pauses:
    """Seconds until the next try: 1, 2, 4 ... 30 while tries fail, and 1 again when a failure comes after a while."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._pause = FIRST_PAUSE
        self._failed = -inf

    def next(self) -> float:
        """A try has just failed."""
        now = self._monotonic()
        again = now - self._failed < self._pause + _SOON
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if again else FIRST_PAUSE
        self._failed = now
        return self._pause


class ForbiddenWrites:
    """A file system that was mounted read-only, or a limit of the size of files (RLIMIT_FSIZE), lasts until somebody
    sees to it. Then what refused messages have left behind the end of the log becomes zeros, and messages are taken.

    After a flush that failed nothing is tried again: what the kernel did with those pages nobody knows.
    """

    def __init__(self, clock: Clock, commit_log: CommitLog, tasks: TaskOwner) -> None:
        self._log = commit_log
        self._tasks = tasks
        self._pauses = Pauses(clock)
        self._pause = FIRST_PAUSE
        self._trying = False
        commit_log.on_closed.append(self._closed)

    def _closed(self, bit: int) -> None:
        if bit != Gate.WRITE_FORBIDDEN or self._tasks.closed:
            return
        self._pause = self._pauses.next()
        if not self._trying:
            self._trying = True
            self._tasks.spawn(self._try(), "forbidden writes")

    async def _try(self) -> None:
        commit_log = self._log
        try:
            while commit_log.gate & Gate.WRITE_FORBIDDEN:
                await asyncio.sleep(self._pause)
                if commit_log.gate & (Gate.FSYNC_FAILED | Gate.NOT_WRITABLE):
                    return
                if await commit_log.clear():
                    commit_log.open_gate(Gate.WRITE_FORBIDDEN)
                else:
                    self._pause = self._pauses.next()
        finally:
            self._trying = False
