"""Popped messages side by side (Java: ConsumeMessagePopConcurrentlyService)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rmq.client.consumer.calls import Calls, Job
from rmq.client.consumer.pop.acks import Acks
from rmq.client.consumer.pop.queue import PopQueue
from rmq.client.consumer.service import Listening
from rmq.client.message import MessageExt
from rmq.client.settings import PushConsumerSettings
from rmq.protocol.errors import RMQError
from rmq.runtime.aside import logger

__all__ = ["PopConcurrentService", "delay_of"]

log = logger(__name__)

#: Seconds until a message comes again that failed so many times (Java: popDelayLevel).
_DELAYS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


def delay_of(level: int) -> float:
    """Seconds that a failed message waits. :param level: what its listener asked for, or its tries so far."""
    return float(_DELAYS[min(max(level, 0), len(_DELAYS) - 1)])


class PopConcurrentService(Calls[PopQueue]):
    """Calls listeners, acknowledges what succeeded, puts off what failed.

    A message whose invisible time is over before its turn, or before its listener has ended, is another's by then:
    nothing is said about it.

    :param bury: makes a message that was tried too often a dead letter; says whether that worked.
    """

    _too_late = "the invisible time"

    def __init__(
        self,
        listening: Listening,
        settings: PushConsumerSettings,
        acks: Acks,
        bury: Callable[[MessageExt], Awaitable[bool]],
    ) -> None:
        super().__init__(listening, settings)
        self._acks = acks
        self._bury = bury
        self._most_tries = 16 if settings.max_reconsume_times < 0 else settings.max_reconsume_times

    def close(self, pq: PopQueue) -> None:
        """Jobs look at ``dropped``: what they still acknowledge is ours until its invisible time is over."""

    def _late(self, job: Job[PopQueue]) -> bool:
        now = self._clock.monotonic()
        return any(job.pq.late(message, now) for message in job.messages)

    def _passed_over(self, job: Job[PopQueue]) -> None:
        job.pq.settle(job.messages)

    def _settle(self, pq: PopQueue, messages: Sequence[MessageExt]) -> None:
        self._acks.ack(pq.settle(messages))

    def _failed(self, job: Job[PopQueue], failed: list[MessageExt]) -> None:
        if self._tasks.closed:
            self._passed_over(job)
            self._over(job)  # after the end: its messages come again
        else:
            self._tasks.spawn(self._put_off(job, failed), "put off")

    async def _put_off(self, job: Job[PopQueue], failed: list[MessageExt]) -> None:
        level = job.context.delay_level_when_next_consume
        bad = {id(message) for message in failed}
        try:
            self._settle(job.pq, [message for message in job.messages if id(message) not in bad])
            for message in failed:
                dead = level < 0 or message.reconsume_times >= self._most_tries
                if dead and await self._bury(message):
                    self._settle(job.pq, [message])
                    continue
                for held in job.pq.settle([message]):
                    try:
                        await self._acks.change(held, delay_of(level if level > 0 else message.reconsume_times))
                    except RMQError as error:
                        log.warning("%r failed, and comes again after its invisible time: %s", message, error)
        finally:
            self._passed_over(job)
            self._over(job)
