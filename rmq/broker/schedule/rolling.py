"""Stores old messages that still wait anew, so that neither their file is deleted nor a start reads far back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.broker.schedule.rebuild import rebuild
from rmq.broker.schedule.timing import encode_code, wait_in
from rmq.broker.store.aside import SetAside
from rmq.broker.store.queues.deletions import TopicDeleted
from rmq.protocol.names import TIMER_TOPIC
from rmq.protocol.numbers import INT_MAX, whole

if TYPE_CHECKING:
    from rmq.broker.schedule.done import DoneMap
    from rmq.broker.schedule.timer_queue import TimerQueue
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.state import Put, Queue
    from rmq.broker.store.store import Store
    from rmq.runtime.world import Clock

__all__ = ["Rolling"]

log = logging.getLogger(__name__)

#: Messages stored anew with one append.
_BATCH = 128
_HOUR_MS = 3_600_000


class Rolling:
    """Those of one timer queue.

    :param settle: stores messages, and with them that those of the indexes are dealt with.
    """

    def __init__(
        self,
        clock: Clock,
        settings: BrokerSettings,
        store: Store,
        waiting: TimerQueue,
        settle: Callable[[list[Put], list[int]], object],
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._store = store
        self._waiting = waiting
        self._settle = settle
        self._unrolled: SetAside[int] = SetAside(clock, log, "storing a timer message anew")

    async def roll(self, done: DoneMap, seen: int) -> None:
        """Those that have waited for a third of the time that files are kept.

        :param seen: the first index that is not known here.
        """
        queue = self._waiting.queue
        if queue is None or self._store.log.gate:
            return
        age = max(1, self._settings.file_reserved_time) * _HOUR_MS // 3
        if done.floor >= queue.visible:
            return
        before = self._clock.now_ms() - age
        oldest = await self._store.search.time_at(queue, max(done.floor, queue.min))
        if oldest < 0 or oldest >= before:
            return
        end = await self._store.search.first_since(queue, queue.min, seen, before)
        batch: list[int] = []
        for index in done.missing(queue.min, end):
            batch.append(index)
            if len(batch) == _BATCH:
                await self._again(queue, batch, done)
                batch = []
        if batch:
            await self._again(queue, batch, done)

    async def _again(self, queue: Queue, indexes: list[int], done: DoneMap) -> None:
        puts: list[tuple[int, Put | None]] = []
        for index in indexes:
            try:
                put = await self._anew(queue, index)
            except TopicDeleted:
                puts.append((index, None))
                continue
            except Exception as error:
                self._unrolled.failed(index, f"{TIMER_TOPIC}-0 at {index}", error)
                continue
            if put is not None:
                self._unrolled.done(index)
                puts.append((index, put))
        kept = [(index, put) for index, put in puts if index not in done]
        if kept:
            self._settle([put for _, put in kept if put is not None], [index for index, _ in kept])
        await asyncio.sleep(0)

    async def _anew(self, queue: Queue, index: int) -> Put | None:
        """The message as it is to wait again; None when nobody can read for what."""
        position, size, _ = await self._waiting.place(queue, index)
        raw = await self._waiting.raw(index, position, size)
        known = wait_in(raw)
        if known is None:
            return None
        moved = rebuild(raw, lambda topic, queue_id: self._store.destination(topic, queue_id, position), _rolled)
        return moved._replace(queue=queue, tags_code=encode_code(known._replace(deletes=False)))


def _rolled(table: dict[str, str], stored: int) -> None:
    table["TIMER_ROLL_TIMES"] = str((whole(table.get("TIMER_ROLL_TIMES"), INT_MAX - 1) or 0) + 1)
