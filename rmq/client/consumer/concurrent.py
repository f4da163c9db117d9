"""Concurrent consumption: messages of a queue side by side (Java: ConsumeMessageConcurrentlyService)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rmq.client.consumer.calls import Calls, Job
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.service import Listening, Service
from rmq.client.message import MessageExt
from rmq.client.settings import PushConsumerSettings
from rmq.runtime.aside import logger

__all__ = ["ConcurrentService"]

log = logger(__name__)

_LOCAL_RETRY = 5.0
_TIMEOUT_LEVEL = 3


class ConcurrentService(Calls[ProcessQueue], Service):
    """Calls listeners, settles what succeeded, sends back what failed.

    :param give_back: sends a failed message back (message, delay level); says whether that worked.
    """

    _too_late = "the consume timeout"

    def __init__(
        self,
        listening: Listening,
        settings: PushConsumerSettings,
        give_back: Callable[[MessageExt, int], Awaitable[bool]],
    ) -> None:
        super().__init__(listening, settings)
        self._give_back = give_back
        self._settled = listening.settled
        self._broadcasting = settings.broadcasting
        self._timeout = timeout = settings.consume_timeout
        if timeout > 0:
            # Looked at often, so that the limit is the limit and not twice that (field case B044).
            self._tasks.every(min(60.0, max(0.05, timeout / 10)), self.expire, "consume timeout")

    def open(self, pq: ProcessQueue) -> None:
        return None

    def passed(self, pq: ProcessQueue, offset: int) -> None:
        self._settled(pq, offset)

    def close(self, pq: ProcessQueue) -> None:
        return None  # its next owner may begin: what the calls under way still settle is not committed

    def _failed(self, job: Job[ProcessQueue], failed: list[MessageExt]) -> None:
        if self._broadcasting:
            for message in failed:
                log.warning("broadcasting: %r failed and is not tried again", message)
            self._over(job)
            self._settle(job.pq, job.messages)
        elif self._tasks.closed:
            self._over(job)  # after the end: its messages come again
        else:
            self._tasks.spawn(self._send_back(job, failed), "send back")

    async def _send_back(self, job: Job[ProcessQueue], failed: list[MessageExt]) -> None:
        kept: list[MessageExt] = []
        try:
            for message in failed:
                if job.pq.dropped:
                    return  # its next owner gets it again: nothing was committed
                if not await self._give_back(message, job.context.delay_level_when_next_consume):
                    message.reconsume_times += 1
                    kept.append(message)
            stay = {message.queue_offset for message in kept}
            self._settle(job.pq, [message for message in job.messages if message.queue_offset not in stay])
        finally:
            self._over(job)
        if kept:
            self._tasks.spawn(self._again(job.pq, kept), "local retry")

    async def _again(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        await asyncio.sleep(_LOCAL_RETRY)
        if not pq.dropped and not self._stopping:
            self.submit(pq, messages)

    def _settle(self, pq: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        offset = pq.remove(messages)
        if offset >= 0 and not pq.dropped:
            self._settled(pq, offset)

    async def expire(self) -> None:
        """Send back what listeners have held for too long (protocol.md 7.5)."""
        now = self._clock.monotonic()
        for job in list(self._under_way):
            if job.started is None or job.expired or job.pq.dropped or now - job.started < self._timeout:
                continue
            job.expired = True
            messages = job.messages
            if self._broadcasting:
                log.warning("broadcasting: %r takes over %g s and is not waited for", messages[0], self._timeout)
                sent = messages  # nobody subscribes a retry topic
            else:
                sent = [message for message in messages if await self._give_back(message, _TIMEOUT_LEVEL)]
            self._settle(job.pq, sent)
            if len(sent) < len(messages):
                # Tried again with the next look, or at leisure when the listener has ended meanwhile.
                job.messages = [message for message in messages if message not in sent]
                job.expired = False
                if job not in self._under_way and not self._tasks.closed:
                    self._tasks.spawn(self._again(job.pq, job.messages), "local retry")
