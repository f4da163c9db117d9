"""Looks at a full disk again and again, until there is room for messages."""

from __future__ import annotations

import asyncio
from math import inf

from rmq.broker.store.commit_log import CommitLog
from rmq.broker.store.gate import Gate
from rmq.broker.store.retention import Retention
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Clock

__all__ = ["FullDisk"]

#: Seconds between looks, and between tries where the disk refuses though it does not look full.
_LOOK_EVERY = 1.0
_LONGEST_PAUSE = 30.0
#: A disk that refuses again so soon after it was tried, seconds, has not got room in between.
_SOON = 5.0


class FullDisk:
    """From the first refusal on the disk is looked at every second, so that refusals tell how full it is now, and
    messages are taken as soon as there is room.

    A write may be refused where there seems to be room: a quota, blocks kept for root, a file system with fewer inodes
    than files. Then messages are tried again, more and more seldom while that fails.
    """

    def __init__(self, clock: Clock, commit_log: CommitLog, retention: Retention, tasks: TaskOwner) -> None:
        self._monotonic = clock.monotonic
        self._log = commit_log
        self._retention = retention
        self._tasks = tasks
        self._watching = False
        self._pause = _LOOK_EVERY
        self._refused = -inf
        commit_log.on_closed = self._closed

    def _closed(self, bit: int) -> None:
        if bit != Gate.DISK_FULL or self._tasks.closed:
            return
        retention = self._retention
        if not retention.full:
            # A write failed, here on the loop: who is refused for it shall be told how full the disk is.
            retention.look()
        if retention.full:
            self._pause = _LOOK_EVERY
        else:
            now = self._monotonic()
            again = now - self._refused < self._pause + _SOON
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if again else _LOOK_EVERY
            self._refused = now
            retention.may_open = False
        if not self._watching:
            self._watching = True
            self._tasks.spawn(self._watch(), "full disk")

    async def _watch(self) -> None:
        try:
            while self._log.gate & Gate.DISK_FULL:
                await asyncio.sleep(self._pause)
                self._retention.may_open = True
                await self._retention.check_disk()
        finally:
            self._watching = False
