"""Pulling from the queues that are ours: one task each, no more than may be held (Java: PullMessageService)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from rmq.client.consumer.member import Member
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.puller import Puller
from rmq.client.consumer.service import Service
from rmq.client.message import MessageQueue
from rmq.client.results import PullResult, PullStatus
from rmq.client.settings import PushConsumerSettings
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError
from rmq.protocol.names import is_retry_topic
from rmq.protocol.pop import topic_of_pop_retry
from rmq.runtime.aside import logger

__all__ = ["Fetch", "Limits"]

log = logger(__name__)

_FULL = 0.05
_PAUSED = 1.0
_UNLOCKED = 0.1
_FLOW_CONTROL = 0.02


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be held before pulling waits: messages and bytes, of a queue and of all queues of a topic here.

    :param span: from the first to the last offset held of a queue; None = as far as it goes.
    """

    count: int
    size: int
    topic_count: int
    topic_size: int
    span: int | None

    @classmethod
    def of(cls, settings: PushConsumerSettings) -> Limits:
        return cls(
            settings.pull_threshold_for_queue,
            settings.pull_threshold_size_for_queue,
            settings.pull_threshold_for_topic,
            settings.pull_threshold_size_for_topic,
            # In order, the span tells nothing: what is behind the first message waits for it anyway.
            None if settings.orderly else settings.consume_concurrently_max_span,
        )

    @property
    def by_topic(self) -> bool:
        return self.topic_count > 0 or self.topic_size > 0

    def exceeded(self, pq: ProcessQueue, sharing: int) -> bool:
        """Whether a queue holds too much; ``sharing`` queues of its topic are pulled here."""
        count = max(1, self.topic_count // sharing) if self.topic_count > 0 else self.count
        size = max(1, self.topic_size // sharing) if self.topic_size > 0 else self.size
        return pq.count > count or pq.size > size or (self.span is not None and pq.span > self.span)


class Fetch:
    """Pulls and hands over what comes.

    :param service: given the messages that a queue has taken in; nothing is pulled while it is full.
    :param locks: nothing is pulled from a queue while it is not locked for us.
    """

    def __init__(self, member: Member, limits: Limits, service: Service, *, locks: bool) -> None:
        self._instance = instance = member.instance
        self._group = member.group
        self._settings = member.settings
        self._limits = limits
        self._store = member.store
        self._subscriptions = member.subscriptions
        self._statistics = member.statistics
        self._tasks = member.tasks
        self._service = service
        self._locks = locks
        self._clock = instance.world.clock
        self._puller = Puller(instance, member.group, member.settings.hooks)
        self._pulls: dict[ProcessQueue, asyncio.Task[None]] = {}
        #: Queues whose last pull failed, and how many did in a row: said once while it lasts.
        self._failing: dict[MessageQueue, int] = {}
        #: Nothing is pulled at all; ``ProcessQueue.paused`` is one queue's.
        self.paused = False

    def start(self) -> None:
        """Heed that brokers move, until :meth:`stop`."""
        self._instance.on_moved.append(self._brokers_moved)

    def begin(self, pq: ProcessQueue) -> None:
        """Pull from a queue that is ours."""
        if pq not in self._pulls:
            self._pulls[pq] = self._tasks.spawn(self._pull_loop(pq), f"pull {pq.queue}")

    def ended(self, pq: ProcessQueue) -> bool:
        """Nothing pulls from it: it was not begun, or came to its end by itself."""
        task = self._pulls.get(pq)
        return task is None or task.done()

    def end(self, pq: ProcessQueue) -> None:
        """The queue is no longer ours; a pull under way is given up."""
        task = self._pulls.pop(pq, None)
        if task is not None:
            task.cancel()
        self._puller.forget(pq.queue)

    def stop(self) -> None:
        """No more pulls."""
        if self._brokers_moved in self._instance.on_moved:
            self._instance.on_moved.remove(self._brokers_moved)
        for task in self._pulls.values():
            task.cancel()
        self._pulls.clear()

    def _brokers_moved(self) -> None:
        """A pull that waits at the last leader of a group is made anew at the next: one that stands still ends none."""
        for pq, task in list(self._pulls.items()):
            if self._puller.waits_in_vain(pq.queue):
                task.cancel()
                self._pulls[pq] = self._tasks.spawn(self._pull_loop(pq), f"pull {pq.queue}")

    def _goes_on(self, pq: ProcessQueue) -> bool:
        return pq in self._pulls and not pq.dropped

    def _wait_before_pull(self, pq: ProcessQueue) -> float:
        """Seconds to wait before the next pull; 0 = pull now."""
        if self.paused or pq.paused:
            return _PAUSED
        sharing = sum(other.queue.topic == pq.queue.topic for other in self._pulls) if self._limits.by_topic else 1
        if self._service.full or self._limits.exceeded(pq, sharing):
            return _FULL
        return _UNLOCKED if self._locks and not pq.locked else 0.0

    async def _pull_loop(self, pq: ProcessQueue) -> None:
        queue = pq.queue
        settings = self._settings
        while self._goes_on(pq):
            # Waiting because of a limit, a pause or a lock is not being dead (field case B040).
            pq.last_pull_ms = self._clock.now_ms()
            wait = self._wait_before_pull(pq)
            if wait > 0:
                await asyncio.sleep(wait)
                continue
            subscription = self._subscriptions.get(queue.topic)
            if subscription is None:
                return
            began = self._clock.monotonic()
            try:
                result = await self._puller.pull(
                    queue,
                    subscription,
                    pq.next_offset,
                    max_nums=settings.pull_batch_size,
                    timeout=settings.consumer_timeout_when_suspend,
                    suspend=settings.broker_suspend_max_time,
                    commit_offset=0 if settings.broadcasting else max(0, self._store.known(queue)),
                    post_subscription=settings.post_subscription_when_pull,
                    max_bytes=settings.pull_batch_size_in_bytes,
                )
            except RMQError as error:
                await self._pull_failed(queue, error)
                continue
            if not self._goes_on(pq):
                return
            if self._subscriptions.get(queue.topic) is not subscription:
                continue  # it brings what nobody wants any more, or what is wanted otherwise now
            self._failing.pop(queue, None)
            if result.status is PullStatus.OFFSET_ILLEGAL:
                await self._offset_illegal(pq, result)
                return
            if result.status is PullStatus.FOUND:
                now = self._clock.monotonic()
                self._statistics(queue.topic).on_pull(len(result.messages), now - began, now)
            self._take_in(pq, result)
            if settings.pull_interval > 0:
                await asyncio.sleep(settings.pull_interval)

    def _take_in(self, pq: ProcessQueue, result: PullResult) -> None:
        pq.next_offset = result.next_begin_offset
        pq.broker_end = result.max_offset
        messages = result.messages
        if messages:
            if is_retry_topic(pq.queue.topic):
                popped = topic_of_pop_retry(self._group, pq.queue.topic)
                for message in messages:
                    message.topic = message.properties.get("RETRY_TOPIC") or popped or message.topic
                    self._instance.namespace.message(message)
            pq.put(messages)
            self._service.submit(pq, messages)
        elif pq.count == 0:
            # Nothing matched and nothing waits: the offset moves all the same (field case B030).
            self._service.passed(pq, pq.next_offset)

    async def _pull_failed(self, queue: MessageQueue, error: RMQError) -> None:
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(_FLOW_CONTROL)
            return
        expected = isinstance(error, ResponseError) and error.code in (
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
        )
        if expected:
            self._instance.beats.soon()
        failures = self._failing[queue] = self._failing.get(queue, 0) + 1
        # Who has no such message was the master until a moment ago, most often, and the next try finds the one that is.
        moved = isinstance(error, ResponseError) and error.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        told = failures == (2 if moved else 1) and not expected
        log.log(
            self._instance.outages.level(error) if told else logging.DEBUG,
            "group %s: pull from %s failed, tried again every %g s: %s",
            self._group,
            queue,
            self._settings.pull_time_delay_when_exception,
            error,
        )
        await asyncio.sleep(self._settings.pull_time_delay_when_exception)

    async def _offset_illegal(self, pq: ProcessQueue, result: PullResult) -> None:
        """The broker has no such offset: go where it says (21), once, and keep that."""
        queue = pq.queue
        log.warning(
            "group %s: %s has offsets %d to %d, not %d: goes on at %d",
            self._group,
            queue,
            result.min_offset,
            result.max_offset,
            pq.next_offset,
            result.next_begin_offset,
        )
        self._store.update(queue, result.next_begin_offset, increase_only=False)
        await self._store.persist([queue], wait=True)
        pq.dropped = pq.void = True
        self._instance.spawn_rebalance()
