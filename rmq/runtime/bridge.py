"""How the blocking clients' calls get from any thread to a loop, and wait there for what comes of them.

Which loop, and how a thread waits for it, is the world's: a thread of its own for a process
(:mod:`rmq.runtime.thread_bridge`), or one in virtual time that runs while somebody waits
(:mod:`rmq.runtime.lockstep_bridge`).
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Generic, TypeVar, cast

from rmq.protocol.errors import ClientError
from rmq.runtime.aside import logger
from rmq.runtime.callbacks import Callbacks
from rmq.runtime.pool import Post
from rmq.runtime.world import Pool

__all__ = ["Bridge", "Waiter"]

log = logger(__name__)

#: Seconds between two looks whether what is under way can still end.
_LOOK_SECONDS = 5.0

T = TypeVar("T")


class Waiter(Generic[T]):
    """What a thread waits on: one for each call.

    A call may be interrupted anywhere by a signal handler, which may raise or make calls of its own: what comes late
    for one that was given up finds this, and nothing of the next.
    """

    __slots__ = ("done", "error", "given_up", "lock", "result", "task")

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.lock.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None
        #: Answered: the lock is or will be released.
        self.done: bool = False
        self.given_up: bool = False
        self.task: asyncio.Task[T] | None = None


class Bridge(ABC):
    """The way to one loop and back; any thread may use it.

    :param pool: makes the threads for callbacks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Callable[[int, str], Pool]) -> None:
        self.post: Post = Post(loop)
        self._loop = loop
        self._pool = pool
        #: Results that callers wait for in their own way; they fail when the loop ends.
        self.futures: set[Future[Any]] = set()
        #: One at a time: whoever renews a client that a fork brought here.
        self.renewing: threading.RLock = threading.RLock()
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Given the chance to stop when the loop ends, by key: whether it comes first, and what to await.
        self._at_exit: dict[object, tuple[bool, Callable[[], Coroutine[Any, Any, object]]]] = {}
        #: What a forked child closes, by key.
        self._descriptors: dict[object, Callable[[], list[int]]] = {}
        #: Why no call can be made any more.
        self._stopped = ""
        self._callbacks: Callbacks | None = None

    #: The loop runs by itself, whether anybody waits or not.
    runs = True

    # -- waiting ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """:raises ClientError: the loop ended: nothing would come back from it."""
        if self._stopped:
            raise ClientError(self._stopped)

    @property
    @abstractmethod
    def inside(self) -> bool:
        """Whether this thread is one that the loop runs on, and so cannot wait for it."""

    def waiter(self) -> Waiter[Any]:
        """What this call of this thread waits on.

        :raises ClientError: waiting would be for ever: the loop runs on this thread, or it ended.
        """
        self.check()
        if self.inside:
            raise ClientError(
                "a blocking call from the SDK's own loop thread would never return: use rmq.aio in coroutines"
            )
        return Waiter()

    def wait(self, waiter: Waiter[T], seconds: float | None = None) -> T:
        """Wait until the waiter is answered; its result, or its error raised.

        :param seconds: after which the loop ends the call. None: the loop knows when. When it does not get to it, the
            call ends here: no thread waits for a loop that stands still.
        :raises RequestTimeout: the loop stands still.
        """
        self._wait(waiter, seconds)
        if waiter.error is not None:
            raise waiter.error
        return cast(T, waiter.result)

    @abstractmethod
    def _wait(self, waiter: Waiter[Any], seconds: float | None) -> None:
        """:meth:`wait`, until it is answered."""

    @abstractmethod
    def release(self, waiter: Waiter[Any]) -> None:
        """Let a thread go on. On the loop only."""

    def pass_time(self, future: Future[Any], seconds: float | None) -> float | None:
        """Let time pass until a future has ended, where it does not pass by itself.

        :returns: how many of the seconds are left to be waited for; None = any number.
        """
        return seconds

    def until_ended(self, futures: Iterable[Future[Any]]) -> None:
        """Wait for futures of this loop. :raises RequestTimeout: it does not turn."""
        while wait(list(futures), _LOOK_SECONDS).not_done:
            self.run(asyncio.sleep(0))

    def run(self, coro: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Run a coroutine on the loop and wait for it.

        An interrupt (Ctrl-C) while waiting cancels it.

        :param seconds: the coroutine's own limit, see :meth:`wait`.
        """
        try:
            waiter = self.waiter()
        except ClientError:
            coro.close()
            raise
        try:
            self.post(self._start, coro, waiter)
            result: T = self.wait(waiter, seconds)
            return result
        except BaseException:
            if not waiter.done:
                self.post(self._give_up, waiter)
            raise

    def answer(self, waiter: Waiter[Any], result: object) -> None:
        """Let a thread go on with a result. On the loop only."""
        waiter.result = result
        self.release(waiter)

    def callbacks(self) -> Callbacks:
        """The threads for callbacks of asynchronous calls. On the loop only."""
        if self._callbacks is None:
            self._callbacks = Callbacks(self._pool)
        return self._callbacks

    @property
    def callback_here(self) -> int | None:
        """The callback that calls this, if one does."""
        return None if self._callbacks is None else self._callbacks.here

    async def until_called(self, numbers: Collection[int] | None = None, here: int | None = None) -> int:
        """Wait for callbacks, all by default, see :meth:`Callbacks.until_returned`. On the loop only."""
        return 0 if self._callbacks is None else await self._callbacks.until_returned(numbers, here)

    async def elsewhere(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await what a coroutine function of an application gives, where it may block without standing in the way of
        other clients. On the loop only.
        """
        return await function()

    @property
    def elsewhere_inside(self) -> bool:
        """This thread is the one on which such functions run."""
        return False

    def spawn(self, coro: Coroutine[Any, Any, Any], finish: Callable[[Any], object]) -> None:
        """Run a coroutine as a task; ``finish`` is told its result or its error. On the loop only."""
        task = self._loop.create_task(coro)
        self._tasks.add(task)

        def done(ended: asyncio.Task[Any]) -> None:
            self._tasks.discard(ended)
            if ended.cancelled():
                finish(ClientError("the call was cancelled"))
            else:
                finish(ended.exception() or ended.result())

        task.add_done_callback(done)

    def _start(self, coro: Coroutine[Any, Any, Any], waiter: Waiter[Any]) -> None:
        if waiter.given_up:
            coro.close()
            return
        waiter.task = task = self._loop.create_task(coro)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, waiter))

    def _ended(self, waiter: Waiter[Any], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            waiter.error = ClientError("the call was cancelled")
        else:
            waiter.error = task.exception()
            if waiter.error is None:
                waiter.result = task.result()
        self.release(waiter)

    def _give_up(self, waiter: Waiter[Any]) -> None:
        """Whoever waited does not any more."""
        waiter.given_up = True
        if waiter.task is not None:
            waiter.task.cancel()

    # -- the end ------------------------------------------------------------------------------------------------------

    def stop_at_exit(
        self, key: object, stop: Callable[[], Coroutine[Any, Any, object]], *, first: bool = False
    ) -> None:
        """Have ``stop`` awaited when the loop ends without a shutdown.

        :param first: before those without it, which listeners may still be using.
        """
        self._at_exit[key] = (first, stop)

    def forget(self, key: object) -> None:
        self._at_exit.pop(key, None)
        self._descriptors.pop(key, None)

    def close_in_children(self, key: object, descriptors: Callable[[], list[int]]) -> None:
        """Name descriptors that a forked child closes, until :meth:`forget`."""
        self._descriptors[key] = descriptors

    async def _stop_all(self) -> None:
        stops = list(self._at_exit.values())
        self._at_exit.clear()
        for turn in (True, False):
            chosen = [stop() for first, stop in stops if first is turn]
            for outcome in await asyncio.gather(*chosen, return_exceptions=True):
                if isinstance(outcome, Exception):
                    log.warning("a client did not stop cleanly at exit: %s", outcome)
        await self.until_called()
