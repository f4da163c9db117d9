"""Concurrent consumption: messages of a queue side by side (Java: ConsumeMessageConcurrentlyService)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from rmq.client.consumer.listeners import ConsumeContext, Listener, Outcome
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.service import Listening, Service
from rmq.client.message import MessageExt
from rmq.client.results import ConsumeResult
from rmq.client.settings import PushConsumerSettings
from rmq.runtime import patience
from rmq.runtime.aside import logger

__all__ = ["ConcurrentService"]

log = logger(__name__)

_LOCAL_RETRY = 5.0
_TIMEOUT_LEVEL = 3


class _Job:
    """One call of a listener."""

    __slots__ = ("context", "duration", "expired", "messages", "pq", "started")

    def __init__(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        self.pq = pq
        self.messages = messages
        self.context = ConsumeContext(pq.shown)
        #: When the listener was called; None while it waits for its turn.
        self.started: float | None = None
        self.duration = 0.0
        #: Its messages were sent back because it takes too long: what it says in the end does not count.
        self.expired = False


class ConcurrentService(Service):
    """Calls listeners, settles what succeeded, sends back what failed.

    :param give_back: sends a failed message back (message, delay level); says whether that worked.
    """

    def __init__(
        self,
        listening: Listening,
        settings: PushConsumerSettings,
        give_back: Callable[[MessageExt, int], Awaitable[bool]],
    ) -> None:
        self._clock = listening.clock
        self._tasks = listening.tasks
        self._pool = listening.pool
        self._pick = listening.pick
        self._give_back = give_back
        self._settled = listening.settled
        self._on_consume = listening.on_consume
        self._on_failed = listening.on_failed
        self._broadcasting = settings.broadcasting
        self._batch_max = settings.consume_message_batch_max_size
        #: Listener calls at the same time, for coroutine listeners; plain ones are bounded by the pool.
        self._limit = settings.consume_thread_max
        self._timeout = timeout = settings.consume_timeout
        self._waiting: deque[tuple[_Job, Listener]] = deque()
        self._workers = 0
        #: Calls that succeeded since the last settling, by queue: settled together at the end of the loop's turn.
        self._succeeded: dict[ProcessQueue, list[_Job]] = {}
        self._under_way: set[_Job] = set()
        #: Coroutine listeners under way.
        self.listener_tasks: set[asyncio.Task[object]] = set()
        self._stopping = False
        self._idle = asyncio.Event()
        if timeout > 0:
            # Looked at often, so that the limit is the limit and not twice that (field case B044).
            self._tasks.every(min(60.0, max(0.05, timeout / 10)), self.expire, "consume timeout")

    @property
    def busy(self) -> int:
        """Listener calls under way."""
        return sum(job.started is not None for job in self._under_way)

    def open(self, pq: ProcessQueue) -> None:
        return None

    def passed(self, pq: ProcessQueue, offset: int) -> None:
        self._settled(pq, offset)

    def close(self, pq: ProcessQueue) -> None:
        return None  # its next owner may begin: what the calls under way still settle is not committed

    def resize(self, most: int) -> None:
        self._limit = most
        self._pump()

    async def drain(self, limit: float) -> int:
        self._stopping = True
        self._waiting.clear()
        try:
            async with patience.timeout(limit):
                while self._under_way:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            pass
        return self.busy

    def _over(self, job: _Job) -> None:
        self._under_way.discard(job)
        if not self._under_way:
            self._idle.set()

    def submit(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        size = self._batch_max
        if size == 1:
            jobs = [_Job(pq, [message]) for message in messages]
        else:
            jobs = [_Job(pq, messages[at : at + size]) for at in range(0, len(messages), size)]
        listener: Listener | None = None
        topic = None
        for job in jobs:
            first = job.messages[0]
            if first.topic != topic:
                topic = first.topic
                listener = self._pick(topic)
            if listener is None:
                log.error("no listener for topic %s: its message is tried again later", topic)
                self._under_way.add(job)
                self._finish(job, Outcome(ConsumeResult.RECONSUME_LATER, job.messages, job.context), 0.0)
            elif listener.is_coroutine:
                self._waiting.append((job, listener))
            else:
                self._under_way.add(job)
                self._pool.submit(self._work(job, listener), self._done(job))
        if self._waiting:
            self._pump()

    # -- plain listeners: on a thread --------------------------------------------------------------------------------

    def _work(self, job: _Job, listener: Listener) -> Callable[[], Outcome | None]:
        def work() -> Outcome | None:
            if self._stopping or job.pq.dropped or job.expired:
                return None
            self._begin(job)
            return listener.call(job.messages, job.context)

        return work

    def _done(self, job: _Job) -> Callable[[Outcome | None, BaseException | None], None]:
        def done(outcome: Outcome | None, error: BaseException | None) -> None:
            if error is not None:
                log.error("a listener ended its thread for %r", job.messages[0], exc_info=error)
                outcome = Outcome(ConsumeResult.RECONSUME_LATER, job.messages, job.context, error)
            self._end(job, outcome)

        return done

    # -- coroutine listeners: on the loop ----------------------------------------------------------------------------

    def _pump(self) -> None:
        while self._workers < min(self._limit, self._workers + len(self._waiting)) and not self._tasks.closed:
            self._workers += 1
            task = self._tasks.spawn(self._worker(), "listener")
            self.listener_tasks.add(task)
            task.add_done_callback(self.listener_tasks.discard)

    async def _worker(self) -> None:
        """Calls coroutine listeners one after the other while there is something to consume."""
        try:
            while self._waiting and not self._stopping and self._workers <= self._limit:
                job, listener = self._waiting.popleft()
                if job.pq.dropped:
                    continue
                self._under_way.add(job)
                outcome: Outcome | None = None
                try:
                    self._begin(job)
                    outcome = await listener.call_async(job.messages, job.context, stopping=self._is_stopping)
                finally:
                    self._end(job, outcome)
                if outcome.cancelled:  # pyright: ignore[reportOptionalMemberAccess]
                    break
        finally:
            self._workers -= 1
        if not self._stopping:
            self._pump()

    def _is_stopping(self) -> bool:
        return self._stopping or self._tasks.closed

    # -- both ---------------------------------------------------------------------------------------------------------

    def _begin(self, job: _Job) -> None:
        job.started = self._clock.monotonic()
        now_ms = self._clock.now_ms()
        job.pq.last_consume_ms = now_ms
        stamp = str(now_ms)
        for message in job.messages:
            message.properties["CONSUME_START_TIME"] = stamp

    def _end(self, job: _Job, outcome: Outcome | None) -> None:
        """Back on the loop. ``outcome`` is None for a job that was not begun: its messages stay as they are."""
        if outcome is None or job.started is None:
            self._over(job)
            return
        self._finish(job, outcome, self._clock.monotonic() - job.started)

    def _finish(self, job: _Job, outcome: Outcome, duration: float) -> None:
        if not outcome.failed and not job.expired:
            job.duration = duration
            succeeded = self._succeeded
            if not succeeded:
                asyncio.get_running_loop().call_soon(self._settle_succeeded)
            succeeded.setdefault(job.pq, []).append(job)
            return
        failed = list(outcome.failed)
        self._on_consume(job.messages[0].topic, len(job.messages) - len(failed), len(failed), duration)
        if outcome.error is not None:
            self._on_failed(outcome.error)
        if job.expired:
            log.warning(
                "a listener ended after %.1f s, over the consume timeout: its message was given up meanwhile, "
                "its result does not count: %r",
                duration,
                job.messages[0],
            )
            self._over(job)
            return
        if self._broadcasting:
            for message in failed:
                log.warning("broadcasting: %r failed and is not tried again", message)
            self._over(job)
            self._settle(job.pq, job.messages)
            return
        if self._tasks.closed:
            self._over(job)  # after the end: its messages come again
            return
        self._tasks.spawn(self._send_back(job, failed), "send back")

    def _settle_succeeded(self) -> None:
        table, self._succeeded = self._succeeded, {}
        for pq, jobs in table.items():
            counted: dict[str, list[float]] = {}
            messages: list[MessageExt] = []
            for job in jobs:
                messages += job.messages
                count = counted.setdefault(job.messages[0].topic, [0, 0.0])
                count[0] += len(job.messages)
                count[1] += job.duration
            for topic, (ok, duration) in counted.items():
                self._on_consume(topic, int(ok), 0, duration)
            self._settle(pq, messages)
            for job in jobs:
                self._over(job)

    async def _send_back(self, job: _Job, failed: list[MessageExt]) -> None:
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

    def _settle(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
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
