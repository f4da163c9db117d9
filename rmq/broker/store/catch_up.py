"""Brings queues and index up to what was appended without them: bytes of another broker's log.

They come in pieces of any size, cut where the network cut them. Whole records are dispatched as soon as they are there,
and become visible when the log is as durable as configured; half a record waits for its rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.log.durability import Durability
from rmq.broker.store.log.reader import LogReader
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.state import Queue
from rmq.broker.store.trouble import Trouble
from rmq.protocol.record import store_time

__all__ = ["CatchUp"]

log = logging.getLogger(__name__)

#: Bytes dispatched in one go.
_STEP = 4 << 20
#: Seconds for which what arrives is gathered, and the bytes that do not wait for that: a record dispatched alone
#: costs as much as many together, and its master waits for no more than that it is stored.
_GATHER = 0.005
_ENOUGH = 128 << 10


class CatchUp:
    """The task behind replicated bytes; there is none while nothing is behind.

    :param went_back: told of a record (commit-log offset, store time) that is older than the one before it.
    """

    def __init__(
        self,
        ground: StoreGround,
        disk: OnDisk,
        dispatcher: Dispatcher,
        durability: Durability,
        writer: QueueWriter,
        went_back: Callable[[int, int], None],
    ) -> None:
        self._log = disk.log
        self._dispatcher = dispatcher
        self._durability = durability
        self._writer = writer
        self._tasks = ground.tasks
        self._damaged = disk.damaged
        self._went_back = went_back
        self.reader = LogReader(ground.world, disk.log, crc=ground.settings.check_crc_on_recover)
        self.reader.follows = True
        self._busy = False
        #: Held while records are dispatched: who cuts the log waits for it.
        self.lock = asyncio.Lock()
        self._trouble = Trouble(
            ground.world.clock, log, "reading replicated messages from the commit log", "consumers do not see them yet"
        )

    def wake(self) -> None:
        """There is more to dispatch."""
        if not self._busy and not self._tasks.closed:
            self._busy = True
            self._tasks.spawn(self._run(), "dispatch")

    async def _run(self) -> None:
        try:
            if self._dispatcher.behind < _ENOUGH:
                await asyncio.sleep(_GATHER)
            while self._dispatcher.behind:
                end = self._log.end
                try:
                    async with self.lock:
                        passed = await self._dispatcher.advance(self.reader, _STEP, self._dispatched)
                        if touched := await self._dispatcher.settle(self.reader.damages, final=False):
                            self._durability.on_dispatched(self._dispatcher.position, touched)
                except OSError as error:
                    self._trouble.failed(error)
                    await asyncio.sleep(1)
                    continue
                self._trouble.over()
                await self._keep_damage()
                if not passed and self._log.end == end:
                    return  # half a record, or nothing good: what comes next wakes us
        finally:
            self._busy = False

    async def _keep_damage(self) -> None:
        """What was found on the way is known to whoever serves, and to the next start."""
        found = [*self.reader.damages, *self._dispatcher.damages]
        self.reader.damages.clear()
        self._dispatcher.damages.clear()
        if found and self._damaged.add(found, self._log.start):
            await self._damaged.save()

    def _dispatched(self, run: Run, touched: list[Queue]) -> None:
        """Records are in their queues: stamps follow, and what is durable is visible."""
        commit_log = self._log
        for at, *_ in run.records:
            stamp = store_time(run.data, at)
            if stamp < commit_log.stamp:
                self._went_back(run.base + at, stamp)
            commit_log.stamp = stamp
        commit_log.checksums.dispatched(run)
        self._writer.check()
        self._durability.on_dispatched(run.base + run.end, touched)
