"""Orderly consumption: messages of a queue one after the other (Java: ConsumeMessageOrderlyService)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rmq.client.consumer.listeners import ConsumeContext, Outcome
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.service import Listening, Service
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import ConsumeResult
from rmq.client.settings import PushConsumerSettings
from rmq.runtime import patience
from rmq.runtime.aside import logger

__all__ = ["OrderlyService"]

log = logger(__name__)

_LEAST_PAUSE, _MOST_PAUSE = 0.01, 30.0
_LOCK_AGAIN = 0.1


class OrderlyService(Service):
    """One worker a queue; it calls the listener only while the queue is locked for this client.

    :param relock: asks the broker for the lock of one queue again, and says whether it is ours; None where queues need
        not be locked.
    :param bury: sends a message that was tried too often to the retry topic, whose broker rule makes it a dead letter.
    """

    def __init__(
        self,
        listening: Listening,
        settings: PushConsumerSettings,
        bury: Callable[[MessageExt], Awaitable[bool]],
        relock: Callable[[MessageQueue], Awaitable[bool]] | None,
    ) -> None:
        self._clock = listening.clock
        self._tasks = listening.tasks
        self._pool = listening.pool
        self._pick = listening.pick
        self._bury = bury
        self._relock = relock
        self._settled = listening.settled
        self._on_consume = listening.on_consume
        self._on_failed = listening.on_failed
        self._batch_max = settings.consume_message_batch_max_size
        self._suspend = settings.suspend_current_queue_time
        #: -1 = tried for ever.
        self._max_reconsume_times = settings.max_reconsume_times
        self._workers: dict[MessageQueue, tuple[asyncio.Event, asyncio.Task[None]]] = {}
        self._busy = 0
        #: Workers: they call coroutine listeners.
        self.listener_tasks: set[asyncio.Task[object]] = set()
        self._stopping = False

    @property
    def busy(self) -> int:
        return self._busy

    async def drain(self, limit: float) -> int:
        self._stopping = True
        for wake, _ in self._workers.values():
            wake.set()
        if self.listener_tasks:
            await asyncio.wait(self.listener_tasks, timeout=limit)
        return self._busy

    def resize(self, most: int) -> None:
        return None  # one call a queue; those on threads are bounded by the pool

    def submit(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        found = self._workers.get(pq.queue)
        if found is not None:
            found[0].set()

    def open(self, pq: ProcessQueue) -> None:
        self._begin(pq, asyncio.Event())

    def _begin(self, pq: ProcessQueue, wake: asyncio.Event, pause: float = 0.0) -> None:
        task = self._tasks.spawn(self._worker(pq, wake, pause), f"orderly {pq.queue}")
        self._workers[pq.queue] = (wake, task)
        self.listener_tasks.add(task)
        task.add_done_callback(self.listener_tasks.discard)

    def passed(self, pq: ProcessQueue, offset: int) -> None:
        self._settled(pq, offset)

    def close(self, pq: ProcessQueue) -> asyncio.Task[None] | None:
        found = self._workers.pop(pq.queue, None)
        if found is None:
            return None
        found[0].set()
        return found[1]

    async def _worker(self, pq: ProcessQueue, wake: asyncio.Event, pause: float) -> None:
        await self._rest(pq, wake, pause)
        while not pq.dropped and not self._stopping:
            if not pq.messages:
                wake.clear()
                await wake.wait()
                continue
            if self._relock is not None and not pq.lock_valid(self._clock.monotonic()):
                if not await self._relock(pq.queue):
                    await asyncio.sleep(_LOCK_AGAIN)
                continue
            messages = pq.take(self._batch_max)
            outcome = await self._call(pq, messages)
            pause = await self._settle(pq, messages, outcome)
            if outcome.cancelled:
                if not pq.dropped and not self._is_stopping():
                    self._begin(pq, wake, pause)
                return
            await self._rest(pq, wake, pause)

    def _is_stopping(self) -> bool:
        return self._stopping or self._tasks.closed

    async def _rest(self, pq: ProcessQueue, wake: asyncio.Event, pause: float) -> None:
        """Pause, but not beyond the end of the queue's or the consumer's time here."""
        deadline = self._clock.monotonic() + pause
        while not pq.dropped and not self._stopping and (rest := deadline - self._clock.monotonic()) > 0:
            wake.clear()
            try:
                async with patience.timeout(rest):
                    await wake.wait()
            except TimeoutError:
                return

    async def _call(self, pq: ProcessQueue, messages: list[MessageExt]) -> Outcome:
        context = ConsumeContext(pq.shown)
        listener = self._pick(messages[0].topic)
        if listener is None:
            log.error("no listener for topic %s: its queue waits", messages[0].topic)
            return Outcome(ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT, messages, context)
        began = self._clock.monotonic()
        pq.last_consume_ms = now_ms = self._clock.now_ms()
        for message in messages:
            message.properties["CONSUME_START_TIME"] = str(now_ms)
        pq.running += 1
        self._busy += 1
        try:
            if listener.is_coroutine:
                outcome = await listener.call_async(
                    self._pool, messages, context, in_order=True, stopping=self._is_stopping
                )
            else:
                outcome = await listener.call_on(self._pool, messages, context, in_order=True)
        finally:
            pq.running -= 1
            self._busy -= 1
        if outcome.result is ConsumeResult.RECONSUME_LATER:
            outcome.result = ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT
        if outcome.error is not None:
            self._on_failed(outcome.error)
        failed = len(outcome.failed)
        self._on_consume(messages[0].topic, len(messages) - failed, failed, self._clock.monotonic() - began)
        return outcome

    async def _settle(self, pq: ProcessQueue, messages: list[MessageExt], outcome: Outcome) -> float:
        """Commit or put back. :returns: seconds to pause before the next call."""
        context = outcome.context or ConsumeContext(pq.shown)
        pause = self._suspend if context.suspend_current_queue_time is None else context.suspend_current_queue_time
        pause = min(max(pause, _LEAST_PAUSE), _MOST_PAUSE)
        offset = -1
        rest = 0.0
        match outcome.result:
            case ConsumeResult.SUCCESS:
                if context.auto_commit:
                    offset = pq.commit()
            case ConsumeResult.COMMIT:
                offset = pq.commit()
            case ConsumeResult.ROLLBACK:
                pq.put_back()
                rest = pause
            case _:
                again = await self._count_up(outcome.failed or messages)
                done = [message for message in messages if message not in again]
                if again:
                    pq.put_back(again)
                    rest = pause
                if done and context.auto_commit:
                    offset = pq.commit()
        # A queue that is taken from us stays locked for us until the call under way has ended: its result counts.
        if offset >= 0 and not pq.void:
            self._settled(pq, offset)
        return rest

    async def _count_up(self, failed: Sequence[MessageExt]) -> list[MessageExt]:
        """Count one more try of each; those over the limit become dead letters. :returns: those to try again."""
        again: list[MessageExt] = []
        for message in failed:
            if 0 <= self._max_reconsume_times <= message.reconsume_times and await self._bury(message):
                continue
            message.reconsume_times += 1
            again.append(message)
        return again
