"""Looks at a full disk again and again, until there is room for messages."""

from __future__ import annotations

import asyncio

from rmq.broker.store.care.forbidden import FIRST_PAUSE, Pauses
from rmq.broker.store.care.retention import Retention
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.gate import Gate
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Clock

__all__ = ["FullDisk"]


class FullDisk:
    """From the first refusal on the disk is looked at every second, so that refusals tell how full it is now, and
    messages are taken as soon as there is room.

    A write may be refused where there seems to be room: a quota, blocks kept for root, a file system with fewer inodes
    than files. Then messages are tried again, more and more seldom while that fails.
    """

    def __init__(self, clock: Clock, commit_log: CommitLog, retention: Retention, tasks: TaskOwner) -> None:
        self._log = commit_log
        self._retention = retention
        self._tasks = tasks
        self._watching = False
        self._pauses = Pauses(clock)
        self._pause = FIRST_PAUSE
        commit_log.on_closed.append(self._closed)

    def _closed(self, bit: int) -> None:
        if bit != Gate.DISK_FULL or self._tasks.closed:
            return
        retention = self._retention
        if not retention.full:
            # A write failed, here on the loop: who is refused for it shall be told how full the disk is.
            retention.look()
        if retention.full:
            self._pause = FIRST_PAUSE
        else:
            self._pause = self._pauses.next()
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
