"""Messages for whoever asks for them: what a lite pull consumer has in place of listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.service import Service
from rmq.client.hooks import ConsumeHookContext, Hooks
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import ConsumeResult
from rmq.runtime import patience
from rmq.runtime.world import Clock

__all__ = ["Loop", "PollService"]


class PollService(Service):
    """Keeps what pulls bring until it is asked for; queues take turns.

    What a reader was handed is consumed when it asks again. What another one left unfinished, a loop that was broken
    off, is handed out once more.

    :param most: messages held of all queues, handed out and not consumed included, beyond which nothing is pulled.
    :param closing: told a queue that is not ours any more, and where it is to go on.
    :param hooks: told of what is handed out, and of what became of it.
    """

    def __init__(self, clock: Clock, most: int, closing: Callable[[ProcessQueue, int], None], hooks: Hooks) -> None:
        self._clock = clock
        self._most = most
        self._closing = closing
        self._hooks = hooks
        self.listener_tasks: set[asyncio.Task[object]] = set()
        #: Where each queue goes on, behind all that was consumed; those of which nothing was are not here.
        self.positions: dict[MessageQueue, int] = {}
        #: Queues with messages to hand out, in their turn.
        self._ready: dict[ProcessQueue, None] = {}
        #: Those with messages that were handed out and are not consumed, and what hooks know of that.
        self._out: dict[ProcessQueue, ConsumeHookContext | None] = {}
        #: To whom: None is not a loop.
        self._reader: object | None = None
        #: Messages of each queue when last counted, and of all.
        self._counts: dict[ProcessQueue, int] = {}
        self._held = 0
        self._arrived = asyncio.Event()
        self.stopped = False

    @property
    def busy(self) -> int:
        return 0

    @property
    def full(self) -> bool:
        return self._held >= self._most

    # -- from pulls ---------------------------------------------------------------------------------------------------

    def open(self, pq: ProcessQueue) -> None:
        self._counts[pq] = 0

    def submit(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        self._count(pq)
        self._ready[pq] = None
        self._arrived.set()

    def passed(self, pq: ProcessQueue, offset: int) -> None:
        self.positions[pq.queue] = offset

    def close(self, pq: ProcessQueue) -> None:
        self._held -= self._counts.pop(pq, 0)
        self._ready.pop(pq, None)
        self._tell_end(self._out.pop(pq, None), ConsumeResult.RECONSUME_LATER)
        position = self.positions.pop(pq.queue, None)
        if position is not None and not pq.void:
            self._closing(pq, position)

    def _count(self, pq: ProcessQueue) -> None:
        if pq in self._counts:
            self._held += pq.count - self._counts[pq]
            self._counts[pq] = pq.count

    async def drain(self, limit: float) -> int:
        self.stopped = True
        self._arrived.set()
        for told in self._out.values():
            self._tell_end(told, ConsumeResult.RECONSUME_LATER)
        self._out = dict.fromkeys(self._out)
        return 0

    def resize(self, most: int) -> None:
        return None

    # -- to readers ---------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """A queue goes on that was paused."""
        self._arrived.set()

    async def take(self, count: int, reader: object | None, limit: float | None) -> list[MessageExt]:
        """Messages of one queue, once there are some.

        :param count: messages at most. :param reader: the loop that asks, or None.
        :param limit: seconds after which there are none; None = it waits until there are some, or the end.
        """
        messages = self._take(count, reader)
        if messages or self.stopped or limit == 0:
            return messages
        try:
            async with patience.timeout(limit):
                while not messages and not self.stopped:
                    self._arrived.clear()
                    await self._arrived.wait()
                    messages = self._take(count, reader)
        except TimeoutError:
            pass
        return messages

    def _take(self, count: int, reader: object | None) -> list[MessageExt]:
        if self._reader is None or self._reader is reader:
            self.consumed()
        else:
            self._put_back()
        self._reader = reader
        pq = next((pq for pq in self._ready if not pq.paused and pq.messages), None)
        if pq is None or self.stopped:
            return []
        messages = pq.take(count)
        del self._ready[pq]
        if pq.messages:
            self._ready[pq] = None
        self._out[pq] = self._hooks.begin_consume(messages, messages[0].message_queue) if self._hooks.consumes else None
        pq.last_consume_ms = self._clock.now_ms()
        return messages

    def consumed(self, queues: Collection[MessageQueue] | None = None) -> None:
        """What was handed out (of these queues) is consumed."""
        for pq in list(self._out):
            if queues is None or pq.queue in queues:
                self.positions[pq.queue] = pq.commit()
                self._count(pq)
                self._tell_end(self._out.pop(pq), ConsumeResult.SUCCESS)

    def _put_back(self) -> None:
        for pq, told in self._out.items():
            pq.put_back()
            self._tell_end(told, ConsumeResult.RECONSUME_LATER)
        self._ready = {**dict.fromkeys(self._out), **self._ready}
        self._out.clear()

    def _tell_end(self, told: ConsumeHookContext | None, result: ConsumeResult) -> None:
        if told is not None:
            self._hooks.end_consume(told, result, () if result is ConsumeResult.SUCCESS else told.messages, None)


class Loop:
    """``async for`` over what a service has: each step consumes the message of the one before."""

    def __init__(self, service: PollService) -> None:
        self._service = service

    def __aiter__(self) -> Loop:
        return self

    async def __anext__(self) -> MessageExt:
        message = await self.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def next(self) -> MessageExt | None:
        """The next message; None = the consumer is shut down."""
        messages = await self._service.take(1, self, None)
        return messages[0] if messages else None
