"""Scheduled pulls (Java: MQPullConsumerScheduleService): a function is called for each queue of ours, over and over."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar, Unpack

from rmq.client.application import call_on
from rmq.client.checks import check_topic, seconds, typed
from rmq.client.consumer.listeners import ends_task
from rmq.client.consumer.pull import PullConsumer
from rmq.client.consumer.rebalance import HANDOVER
from rmq.client.life import ends, starts
from rmq.client.message import MessageQueue
from rmq.client.settings import (
    Duration,
    ScheduledPullConsumerOptions,
    ScheduledPullConsumerSettings,
    lists_options,
)
from rmq.client.shown import shown
from rmq.protocol.errors import ClientError, WrongType
from rmq.runtime import patience
from rmq.runtime.aside import logger
from rmq.runtime.world import World

__all__ = ["P", "PullCallback", "ScheduledPullConsumer"]

log = logger(__name__)

#: Seconds until the next call when the last one did not say, when it raised, and at least.
_DELAY = 0.2
_AFTER_ERROR = 1.0
_LEAST = 0.001

#: Told a queue that is ours; gives how long to wait before its next call, None = 200 ms.
PullCallback = Callable[[MessageQueue], Duration | Awaitable[Duration | None] | None]
P = TypeVar("P", bound=PullCallback)


@lists_options(ScheduledPullConsumerSettings)
@typed()
class ScheduledPullConsumer(PullConsumer):
    """A pull consumer that calls a function for each queue of its share, when that function says.

    A queue's calls come one after the other. One that raises is logged, and called again after a second; one that does
    not return keeps its own queue.

    :param options: see :class:`~rmq.client.settings.ScheduledPullConsumerOptions`.

    ::

        consumer = ScheduledPullConsumer("reporting", namesrv="127.0.0.1:9876")

        @consumer.on("TopicTest")
        async def pull(queue):
            offset = max(0, await consumer.fetch_consume_offset(queue))
            result = await consumer.pull(queue, "*", offset)
            ...
            consumer.update_consume_offset(queue, result.next_begin_offset)
            return 0 if result.messages else 5  # seconds until the next call for this queue

        async with consumer:
            ...
    """

    _kind: ClassVar = ScheduledPullConsumerSettings
    _settings: ScheduledPullConsumerSettings  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, group: str, *, world: World | None = None, **options: Unpack[ScheduledPullConsumerOptions]
    ) -> None:
        super().__init__(group, world=world, **options)  # type: ignore[misc]
        self._callbacks: dict[str, PullCallback] = {}
        self._threads = self._settings.pull_thread_nums
        #: A task for each queue that is called for.
        self._calls: set[asyncio.Task[None]] = set()
        #: The queues that are called for, and what ends their pauses; one that is ours no more ends after its call.
        self._wakes: dict[MessageQueue, asyncio.Event] = {}
        self._stopping = False

    def _renew(self) -> ScheduledPullConsumer:
        """The same consumer with its callbacks, not started: for a forked child."""
        made = ScheduledPullConsumer(self.group, **self._options)
        made._callbacks = dict(self._callbacks)
        made._topics |= set(self._callbacks)
        return made

    def on(self, topic: str) -> Callable[[P], P]:
        """Have the decorated function called for each queue of a topic that is ours.

        It is told the queue, and returns how long to wait before its next call (seconds, or a timedelta); nothing means
        200 ms. A coroutine function runs on the loop, a plain one on a thread.

        :raises ClientError: the topic cannot be used, or has a function already; or the consumer is started.
        """
        check_topic(topic)
        wire_topic = self._names.wrap(topic)

        def register(function: P) -> P:
            if not callable(function):
                raise WrongType(f"the callback is {shown(function)}: give a function of a queue")
            if self._membership is not None:
                raise ClientError(f"the consumer {self.group} is started: say what it calls before")
            if wire_topic in self._callbacks:
                raise ClientError(f"the topic {topic} has a callback in this consumer already").about(topic=topic)
            self._callbacks[wire_topic] = function
            self._topics.add(wire_topic)
            return function

        return register

    @starts
    async def start(self) -> None:
        """Join the group and begin to call. Starting a started consumer does nothing.

        :raises ClientError: no callback, no name server is known, or the group has a consumer in this client already.
        """
        if self._membership is not None:
            return
        if not self._callbacks:
            raise ClientError(f"the consumer {self.group} calls nothing: use @consumer.on(topic)")
        self._stopping = False
        await super().start()

    @ends
    async def shutdown(self) -> None:
        """Call no more, wait for the calls under way (``await_termination_when_shutdown``), keep the offsets, leave."""
        self._stopping = True
        for wake in self._wakes.values():
            wake.set()
        limit = self._settings.await_termination_when_shutdown
        try:
            if self._calls and (await asyncio.wait(self._calls, timeout=limit))[1]:
                text = "group %s: calls still run after %g s, the shutdown goes on without them"
                log.warning(text, self.group, limit)
        finally:
            await super().shutdown()

    async def _forget(self) -> None:
        self._calls.clear()
        self._wakes.clear()
        await super()._forget()

    async def _rebalance(self) -> None:
        await super()._rebalance()
        membership = self._membership
        if membership is None or membership.tasks.closed or self._stopping:
            return
        store = membership.store
        for queue, wake in list(self._wakes.items()):
            if not self._ours(queue):
                # What the call under way notes is its next owner's to read again.
                wake.set()
                await store.persist([queue])
                store.remove(queue)
        for topic in self._callbacks:
            for queue in self._balanced.get(topic, ()):
                if queue not in self._wakes:
                    self._wakes[queue] = asyncio.Event()
                    task = membership.tasks.spawn(self._go_on(queue), f"pull {queue}")
                    self._calls.add(task)
                    task.add_done_callback(self._calls.discard)

    def _ours(self, queue: MessageQueue) -> bool:
        return not self._stopping and queue in self._balanced.get(queue.topic, ())

    async def _go_on(self, queue: MessageQueue) -> None:
        wake = self._wakes[queue]
        try:
            # Its last owner has heard of it when we have: what that one notes now is where we go on.
            await asyncio.sleep(HANDOVER)
            while self._ours(queue):
                delay = await self._call(queue)
                wake.clear()
                try:
                    async with patience.timeout(max(_LEAST, delay)):
                        if self._ours(queue):
                            await wake.wait()
                except TimeoutError:
                    pass
        finally:
            del self._wakes[queue]
            if not self._stopping and self._membership is not None:
                self._membership.store.remove(queue)

    async def _call(self, queue: MessageQueue) -> float:
        """Call the callback once; never raises. :returns: seconds until the next call."""
        callback, shown = self._callbacks[queue.topic], self._names.queue(queue)
        try:
            said: Any
            if inspect.iscoroutinefunction(callback):
                said = await callback(shown)
            else:
                said = await call_on(self._joined.pool, lambda: callback(shown))
            return _DELAY if said is None else seconds(said, "what the callback returned")
        except BaseException as error:
            if ends_task(error):
                raise
            log.error(
                "group %s: the callback for %s raised, and is called again in %g s",
                self.group,
                queue,
                _AFTER_ERROR,
                exc_info=error,
            )
            return _AFTER_ERROR
