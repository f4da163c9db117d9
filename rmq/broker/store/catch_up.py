"""Brings queues and index up to what was appended without them: bytes of another broker's log.

They come in pieces of any size, cut where the network cut them. Whole records are dispatched as soon as they are there,
and become visible when the log is as durable as configured; half a record waits for its rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.log.durability import Durability
from rmq.broker.store.log.reader import LogReader
from rmq.broker.store.log.record_runs import Run, stored
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.state import Queue
from rmq.broker.store.told import Told
from rmq.broker.store.trouble import Trouble

__all__ = ["CatchUp"]

log = logging.getLogger(__name__)

#: Bytes dispatched in one go.
_STEP = 4 << 20
#: Seconds for which what arrives is gathered, and the bytes that do not wait for that: a record dispatched alone
#: costs as much as many together, and its master waits for no more than that it is stored.
_GATHER = 0.005
_ENOUGH = 128 << 10
#: The same of a member of a group. What a turn costs besides its records is a tenth of what a follower does, and hardly
#: anybody reads there.
_GATHER_AS_MEMBER = 0.02
_ENOUGH_AS_MEMBER = 1 << 20
#: A backlog is what comes at so many bytes a second, and was so many seconds old when it came. It goes first, since the
#: master has the only other copy of it: queues are filled in parts of so many bytes, and for this share of the time at
#: least, until they are so many bytes behind. What is left when the backlog is through comes at full speed. A part is
#: as long as what the master sends in one go: where master, slave and producers share two cores, a producer who finds
#: the slave at work waits for the end of it (with parts of 512 KiB, p99 was 2.6 times as long, not 1.6).
_DENSE = 128 << 20
_OLD = 3.0
_PART = 64 << 10
_SHARE = 1 / 32
_FARTHEST = 4 << 30
_MOST_NOTES = 1000
#: Seconds over which the speed is measured, at least; and between two notes of what has come when.
_MEASURED = 0.01
_NOTED = 0.05


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
        self._clock = ground.world.clock
        self._log = disk.log
        #: A group's follower may have to serve at once.
        self._may_trail = not ground.settings.group
        self._gather = _GATHER if self._may_trail else _GATHER_AS_MEMBER
        self._enough = _ENOUGH if self._may_trail else _ENOUGH_AS_MEMBER
        #: Where the log ended when its speed was measured last, and when that was; whether it was a backlog's.
        self._measured = (0, 0.0)
        self._dense = False
        #: Where the log ended, and when, of what is not in queues.
        self._came: deque[tuple[int, float]] = deque(maxlen=_MOST_NOTES)
        self._dispatcher = dispatcher
        self._durability = durability
        self._writer = writer
        self._tasks = ground.tasks
        self._damaged = disk.damaged
        self._went_back = went_back
        self.reader = LogReader(ground.world, disk.log, crc=ground.settings.check_crc_on_recover)
        self.reader.follows = True
        self._chunk = self.reader.chunk
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
            if self._dispatcher.behind < self._enough:
                await asyncio.sleep(self._gather)
            while self._dispatcher.behind:
                end, began = self._log.end, self._clock.monotonic()
                try:
                    async with self.lock:
                        self.reader.chunk = _PART if self._dense else self._chunk
                        step = _PART if self._dense else _STEP
                        passed = await self._dispatcher.advance(self.reader, step, self._dispatched)
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
                await self._let_a_backlog_go_first(began)
        finally:
            self._busy = False

    async def _let_a_backlog_go_first(self, began: float) -> None:
        """Rest while one comes in.

        :param began: when the last part did, monotonic seconds.
        """
        now = self._clock.monotonic()
        until = now + (now - began) * (1 / _SHARE - 1)
        while self._comes_fast(now) and now < until:
            await asyncio.sleep(min(until - now, _MEASURED))
            now = self._clock.monotonic()

    def _comes_fast(self, now: float) -> bool:
        """Whether the log grows as a backlog does."""
        end, at = self._measured
        if now - at >= _MEASURED:
            grows = self._log.end - end >= _DENSE * (now - at)
            few = self._dispatcher.behind < _FARTHEST
            self._dense = self._may_trail and few and self._age_on_arrival(now) >= _OLD and grows
            self._measured = self._log.end, now
        return self._dense

    def _age_on_arrival(self, now: float) -> float:
        """How many seconds the last message in a queue was old when it came; clocks of two machines decide."""
        came, position = self._came, self._dispatcher.position
        if not came or now - came[-1][1] >= _NOTED:
            came.append((self._log.end, now))
        while len(came) > 1 and came[0][0] < position:
            came.popleft()
        return (self._clock.now_ms() - self._log.stamp) / 1000 - (now - came[0][1])

    async def _keep_damage(self) -> None:
        """What was found on the way is known to whoever serves, and to the next start."""
        self._damaged.tell(self.reader.damages, self._log)  # of the others the dispatcher has told
        found = [*self.reader.damages, *self._dispatcher.damages]
        self.reader.damages.clear()
        self._dispatcher.damages.clear()
        if found and self._damaged.add(found, self._log.start):
            await self._damaged.save()

    def _dispatched(self, run: Run | Told, touched: list[Queue]) -> None:
        """Records are in their queues: stamps follow, and what is durable is visible."""
        if isinstance(run, Told):
            self._stamped(run.start, run.stamp)
            self._writer.check()
            self._durability.on_dispatched(run.end, touched)
            return
        commit_log = self._log
        stamps = stored(run)
        if stamps and stamps[0] >= commit_log.stamp and stamps == sorted(stamps):
            commit_log.stamp = stamps[-1]
        else:
            for (at, *_), stamp in zip(run.records, stamps, strict=True):
                self._stamped(run.base + at, stamp)
        commit_log.checksums.dispatched(run)
        self._writer.check()
        self._durability.on_dispatched(run.base + run.end, touched)

    def _stamped(self, offset: int, stamp: int) -> None:
        """The record at a commit-log offset has this store time, ms."""
        if stamp < self._log.stamp:
            self._went_back(offset, stamp)
        self._log.stamp = stamp
