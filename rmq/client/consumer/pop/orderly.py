"""Popped messages of a queue one after the other (Java: ConsumeMessagePopOrderlyService)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from rmq.client.consumer.listeners import Outcome
from rmq.client.consumer.orderly import OrderlyService
from rmq.client.consumer.pop.acks import Acks
from rmq.client.consumer.pop.queue import PopQueue
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.service import Listening
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import ConsumeResult
from rmq.client.settings import PushConsumerSettings
from rmq.protocol.errors import RMQError
from rmq.runtime.aside import logger

__all__ = ["PopOrderlyService"]

log = logger(__name__)


class _Lanes(OrderlyService):
    """A worker for each queue that messages came from: one pop brings those of several.

    The broker gives out no more of a queue while messages of it are out, so one that fails is tried again here, and
    those behind it wait. All of them are kept for as long as that takes.
    """

    def __init__(
        self,
        listening: Listening,
        settings: PushConsumerSettings,
        acks: Acks,
        bury: Callable[[MessageExt], Awaitable[bool]],
    ) -> None:
        super().__init__(replace(listening, settled=self._acknowledge), settings, bury, None)
        self._acks = acks
        self._invisible = settings.pop_invisible_time
        self._popped: dict[ProcessQueue, PopQueue] = {}
        self._lanes: dict[MessageQueue, ProcessQueue] = {}

    def take_in(self, popped: PopQueue, queue: MessageQueue, messages: list[MessageExt]) -> None:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = ProcessQueue(queue, 0, _shown(popped, queue))
            self._popped[lane] = popped
            self.open(lane)
        # The broker gives out a queue's next messages once those before are done, or another's: ours are late.
        self._forget(lane, list(lane.messages.values()))
        lane.put(messages)
        self.submit(lane, messages)

    def leave(self, popped: PopQueue) -> None:
        """Nothing more comes of it."""
        for lane in [lane for lane, held in self._popped.items() if held is popped]:
            lane.dropped = True
            self._lanes.pop(lane.queue, None)
            self.close(lane)
        self._popped = {lane: held for lane, held in self._popped.items() if not lane.dropped or lane.running}

    def _forget(self, lane: ProcessQueue, messages: list[MessageExt]) -> None:
        """They are given out again: there are no results of them to tell."""
        lane.remove(messages)
        self._popped[lane].settle(messages)

    def _acknowledge(self, lane: ProcessQueue, offset: int) -> None:
        """What stands before ``offset`` is done."""
        popped = self._popped.get(lane)
        if popped is None:
            return
        done = [held for held in popped.held() if held.place == lane.queue and held.handle.offset < offset]
        now = self._clock.monotonic()
        self._acks.ack([held for held in popped.settle(held.message for held in done) if now < held.until])

    async def _call(self, pq: ProcessQueue, messages: list[MessageExt]) -> Outcome:
        mine = [*messages, *pq.messages.values()]
        if not await self._keep(pq, mine):
            pq.commit()
            self._forget(pq, mine)
            log.warning("%s: messages from %r on are over their invisible time: they come again", pq.queue, mine[0])
            return Outcome(ConsumeResult.ROLLBACK, [], None)  # nothing is left to put back
        return await super()._call(pq, messages)

    async def _keep(self, pq: ProcessQueue, mine: list[MessageExt]) -> bool:
        """Have messages ours for as long as a call may take. :returns: False when they are another's by now."""
        popped, now = self._popped[pq], self._clock.monotonic()
        if any(popped.late(message, now) for message in mine):
            return False
        ending = [held for message in mine if (held := popped.find(message)) and held.until - now < self._invisible / 2]
        try:
            await self._acks.change_all(ending, self._invisible)
        except RMQError as error:
            log.warning("%s: messages cannot be kept for longer: %s", pq.queue, error)
            return False
        return True


def _shown(popped: PopQueue, queue: MessageQueue) -> MessageQueue:
    return MessageQueue(popped.shown.topic, popped.shown.broker_name, queue.queue_id)


class PopOrderlyService:
    """Hands popped messages to listeners in the order of their queues."""

    def __init__(
        self,
        listening: Listening,
        settings: PushConsumerSettings,
        acks: Acks,
        bury: Callable[[MessageExt], Awaitable[bool]],
    ) -> None:
        self._lanes = _Lanes(listening, settings, acks, bury)

    @property
    def listener_tasks(self) -> set[asyncio.Task[object]]:
        return self._lanes.listener_tasks

    def submit(self, pq: PopQueue, messages: list[MessageExt]) -> None:
        lanes: dict[MessageQueue, list[MessageExt]] = {}
        for message in messages:
            held = pq.find(message)
            if held is not None:
                lanes.setdefault(held.place, []).append(message)
        for queue, of_queue in lanes.items():
            self._lanes.take_in(pq, queue, of_queue)

    def close(self, pq: PopQueue) -> None:
        self._lanes.leave(pq)

    def resize(self, most: int) -> None:
        self._lanes.resize(most)

    async def drain(self, limit: float) -> int:
        return await self._lanes.drain(limit)
