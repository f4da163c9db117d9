"""Popping from the queues that the broker gave us: one request each at a time (Java: popMessage)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from rmq.client.consumer.member import Member
from rmq.client.consumer.pop.acks import Acks
from rmq.client.consumer.pop.popper import Popped, Popper
from rmq.client.consumer.pop.queue import Open, PopQueue
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.settings import ConsumeFromWhere, PushConsumerSettings
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ClientError, ResponseError, RMQError
from rmq.runtime.aside import logger

__all__ = ["PopService", "Pops"]

log = logger(__name__)

_FULL = 0.05
_PAUSED = 1.0
#: How long the end waits for the brokers to hear what is done.
_TELL = 3.0


class PopService(Protocol):
    """Hands popped messages to listeners."""

    @property
    def listener_tasks(self) -> set[asyncio.Task[object]]: ...

    def submit(self, pq: PopQueue, messages: list[MessageExt]) -> None:
        """Messages came, and stand in the queue already."""

    def close(self, pq: PopQueue) -> None:
        """A queue is no longer ours (``dropped`` is set)."""

    def resize(self, most: int) -> None:
        """Another number of calls at a time."""

    async def drain(self, limit: float) -> int:
        """Call no listener any more, wait for the calls under way. :returns: how many still run after ``limit`` s."""
        ...


class Pops:
    """The queues that we pop from.

    :param settings: of the consumer: batch size, invisible time, how many may be open.
    """

    def __init__(self, member: Member, settings: PushConsumerSettings, service: PopService, acks: Acks) -> None:
        self._instance = member.instance
        self._group = member.group
        self._subscriptions = member.subscriptions
        self._statistics = member.statistics
        self._tasks = member.tasks
        self._settings = settings
        self.service = service
        self._acks = acks
        self._clock = member.instance.world.clock
        self._popper = Popper(member.instance, member.group, settings.hooks, order=settings.orderly)
        self.queues: dict[MessageQueue, PopQueue] = {}
        self._new: list[PopQueue] = []
        self._loops: dict[PopQueue, asyncio.Task[None]] = {}
        #: Queues whose last pop failed: said once while it lasts.
        self._failing: set[MessageQueue] = set()
        self._attempts = 0
        #: Nothing is popped at all.
        self.paused = False
        self._stopped = False

    def assign(self, topic: str, mine: set[MessageQueue]) -> bool:
        """Of a topic, pop from these queues and no others, after :meth:`begin`. :returns: whether anything changed."""
        changed = False
        for queue, pq in list(self.queues.items()):
            if queue.topic == topic and queue not in mine:
                self._give_up(pq)
                changed = True
        for queue in sorted(mine - self.queues.keys()):
            if not self._stopped:
                self.queues[queue] = pq = PopQueue(queue, self._instance.namespace.queue(queue))
                self._new.append(pq)
                changed = True
        return changed

    def begin(self) -> None:
        """Pop from the new queues, after the brokers were told of the new subscription version."""
        new, self._new = self._new, []
        for pq in new:
            if not pq.dropped:
                self._loops[pq] = self._tasks.spawn(self._loop(pq), f"pop {pq.queue}")

    def start(self) -> None:
        """Heed that brokers move, until :meth:`stop`."""
        self._instance.on_moved.append(self._brokers_moved)

    def _brokers_moved(self) -> None:
        """A pop that waits at the last leader of a group is made anew at the next: one that stands still ends none."""
        for pq, task in list(self._loops.items()):
            if self._popper.waits_in_vain(pq.queue):
                task.cancel()
                self._loops[pq] = self._tasks.spawn(self._loop(pq), f"pop {pq.queue}")

    def _give_up(self, pq: PopQueue) -> None:
        """The request under way goes to its end: what it brings would be nobody's until its invisible time is over."""
        pq.dropped = True
        self.queues.pop(pq.queue, None)
        self._loops.pop(pq, None)
        self.service.close(pq)

    def stop(self) -> None:
        """No more pops and no more queues."""
        self._stopped = True
        if self._brokers_moved in self._instance.on_moved:
            self._instance.on_moved.remove(self._brokers_moved)

    async def drain(self, limit: float) -> int:
        """Wait for the listeners' calls under way, and until the brokers know what came of them.

        :returns: how many calls still run after ``limit`` seconds: their messages come again.
        """
        left = await self.service.drain(limit)
        await self._acks.drain(_TELL)
        for pq in list(self.queues.values()):
            self._give_up(pq)
        return left

    async def change_invisible_time(self, message: MessageExt, seconds: float) -> None:
        """:raises ClientError: the message is not open here. :raises RMQError: the broker does not say yes."""
        now = self._clock.monotonic()
        for pq in self.queues.values():
            held = pq.find(message)
            if held is not None and not pq.late(message, now):
                await self._acks.change(held, seconds)
                return
        raise ClientError(f"{message!r} is not popped, or not by this consumer, or settled, or its time is over")

    async def _loop(self, pq: PopQueue) -> None:
        queue, settings = pq.queue, self._settings
        attempt: str | None = None
        while not pq.dropped and not self._stopped:
            pq.last_pop_ms = self._clock.now_ms()
            if self.paused or pq.count > settings.pop_threshold_for_queue:
                await asyncio.sleep(_PAUSED if self.paused else _FULL)
                continue
            subscription = self._subscriptions.get(queue.topic)
            if subscription is None:
                return
            if settings.orderly and attempt is None:
                self._attempts += 1
                attempt = f"{self._instance.client_id}@{self._attempts}"
            began = self._clock.monotonic()
            try:
                popped = await self._popper.pop(
                    queue,
                    subscription,
                    max_nums=settings.pop_batch_nums,
                    invisible=settings.pop_invisible_time,
                    poll=settings.broker_suspend_max_time,
                    timeout=settings.consumer_timeout_when_suspend,
                    from_max=settings.consume_from_where is not ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                    attempt=attempt,
                )
            except RMQError as error:
                await self._pop_failed(queue, error)
                continue
            attempt = None
            self._failing.discard(queue)
            if popped.messages or popped.unwanted:
                now = self._clock.monotonic()
                self._statistics(queue.topic).on_pull(len(popped.messages), now - began, now)
                await self._take_in(pq, popped, now)
            elif popped.full:
                await asyncio.sleep(settings.pull_time_delay_when_exception)
            if settings.pull_interval > 0:
                await asyncio.sleep(settings.pull_interval)

    async def _take_in(self, pq: PopQueue, popped: Popped, now: float) -> None:
        for message, handle in (*popped.messages, *popped.unwanted):
            pq.put(message, handle, now + handle.invisible / 1000)
        self._acks.ack(pq.settle(message for message, _ in popped.unwanted))
        messages = [message for message, _ in popped.messages]
        if pq.dropped or self._stopped:
            await self._release(pq.settle(messages))
        elif messages:
            self.service.submit(pq, messages)

    async def _release(self, brought: Sequence[Open]) -> None:
        """Messages of a queue that is no longer ours: others may have them now."""
        for held in brought:
            try:
                await self._acks.change(held, 0.0)
            except RMQError as error:
                log.info("%r comes again after its invisible time: %s", held.message, error)
                return

    async def _pop_failed(self, queue: MessageQueue, error: RMQError) -> None:
        if isinstance(error, ResponseError) and error.code in (
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ):
            self._instance.beats.soon()
        first = queue not in self._failing
        self._failing.add(queue)
        log.log(
            self._instance.outages.level(error) if first else logging.DEBUG,
            "group %s: pop from %s failed, tried again every %g s: %s",
            self._group, queue, self._settings.pull_time_delay_when_exception, error,
        )  # fmt: skip
        await asyncio.sleep(self._settings.pull_time_delay_when_exception)
