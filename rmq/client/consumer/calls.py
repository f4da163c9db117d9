"""Calls of listeners side by side, on threads or on the loop; what comes after them is the services' business."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from rmq.client.consumer.listeners import ConsumeContext, Listener, Outcome
from rmq.client.consumer.service import Listening
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import ConsumeResult
from rmq.client.settings import PushConsumerSettings
from rmq.runtime import patience
from rmq.runtime.aside import logger

__all__ = ["Calls", "Held", "Job"]

log = logger(__name__)


class Held(Protocol):
    """A queue whose messages are held here, as far as calls need to know it."""

    shown: MessageQueue
    dropped: bool
    last_consume_ms: int


Q = TypeVar("Q", bound=Held)


class Job(Generic[Q]):
    """One call of a listener."""

    __slots__ = ("context", "duration", "expired", "messages", "pq", "started")

    def __init__(self, pq: Q, messages: list[MessageExt]) -> None:
        self.pq = pq
        self.messages = messages
        self.context = ConsumeContext(pq.shown)
        #: When the listener was called; None while it waits for its turn.
        self.started: float | None = None
        self.duration = 0.0
        #: It takes too long, and its messages were given up: what it says in the end does not count.
        self.expired = False


class Calls(ABC, Generic[Q]):
    """Calls listeners, as many at a time as the settings say.

    Services say what comes of it: of what succeeded (:meth:`_settle`), of what failed (:meth:`_failed`), and of what
    no listener is called for any more (:meth:`_passed_over`).
    """

    #: The limit of a call, in words.
    _too_late: str

    def __init__(self, listening: Listening, settings: PushConsumerSettings) -> None:
        self._clock = listening.clock
        self._tasks = listening.tasks
        self._pool = listening.pool
        self._pick = listening.pick
        self._on_consume = listening.on_consume
        self._on_failed = listening.on_failed
        self._batch_max = settings.consume_message_batch_max_size
        #: Listener calls at the same time, for coroutine listeners; plain ones are bounded by the pool.
        self._limit = settings.consume_thread_max
        self._waiting: deque[tuple[Job[Q], Listener]] = deque()
        self._workers = 0
        #: Calls that succeeded since the last settling, by queue: settled together at the end of the loop's turn.
        self._succeeded: dict[Q, list[Job[Q]]] = {}
        self._under_way: set[Job[Q]] = set()
        #: Coroutine listeners under way.
        self.listener_tasks: set[asyncio.Task[object]] = set()
        self._stopping = False
        self._idle = asyncio.Event()

    # -- what a service says ------------------------------------------------------------------------------------------

    @abstractmethod
    def _settle(self, pq: Q, messages: Sequence[MessageExt]) -> None:
        """Listeners are done with these messages."""

    @abstractmethod
    def _failed(self, job: Job[Q], failed: list[MessageExt]) -> None:
        """These messages of a call failed; :meth:`_over` is called when that is seen to."""

    def _late(self, job: Job[Q]) -> bool:
        """Its messages were given up: the call is not made, or what it says does not count."""
        return job.expired

    def _passed_over(self, job: Job[Q]) -> None:
        """A call was not made, or came to no result that counts: its messages stay as they are."""

    @property
    def busy(self) -> int:
        """Listener calls under way."""
        return sum(job.started is not None for job in self._under_way)

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

    def _over(self, job: Job[Q]) -> None:
        self._under_way.discard(job)
        if not self._under_way:
            self._idle.set()

    def submit(self, pq: Q, messages: list[MessageExt]) -> None:
        size = self._batch_max
        if size == 1:
            jobs = [Job(pq, [message]) for message in messages]
        else:
            jobs = [Job(pq, messages[at : at + size]) for at in range(0, len(messages), size)]
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

    def _work(self, job: Job[Q], listener: Listener) -> Callable[[], Outcome | None]:
        def work() -> Outcome | None:
            if self._stopping or job.pq.dropped or self._late(job):
                return None
            self._begin(job)
            return listener.call(job.messages, job.context)

        return work

    def _done(self, job: Job[Q]) -> Callable[[Outcome | None, BaseException | None], None]:
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
                if job.pq.dropped or self._late(job):
                    self._passed_over(job)
                    continue
                self._under_way.add(job)
                outcome: Outcome | None = None
                try:
                    self._begin(job)
                    outcome = await listener.call_async(
                        self._pool, job.messages, job.context, stopping=self._is_stopping
                    )
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

    def _begin(self, job: Job[Q]) -> None:
        job.started = self._clock.monotonic()
        now_ms = self._clock.now_ms()
        job.pq.last_consume_ms = now_ms
        stamp = str(now_ms)
        for message in job.messages:
            message.properties["CONSUME_START_TIME"] = stamp

    def _end(self, job: Job[Q], outcome: Outcome | None) -> None:
        """Back on the loop. ``outcome`` is None for a job that was not begun: its messages stay as they are."""
        if outcome is None or job.started is None:
            self._passed_over(job)
            self._over(job)
            return
        self._finish(job, outcome, self._clock.monotonic() - job.started)

    def _finish(self, job: Job[Q], outcome: Outcome, duration: float) -> None:
        late = self._late(job)
        if not outcome.failed and not late:
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
        if late:
            log.warning(
                "a listener ended after %.1f s, over %s: its message was given up meanwhile, "
                "its result does not count: %r",
                duration,
                self._too_late,
                job.messages[0],
            )
            self._passed_over(job)
            self._over(job)
            return
        self._failed(job, failed)

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
