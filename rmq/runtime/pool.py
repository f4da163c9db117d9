"""Threads that users' functions run on, and how any thread hands its results to a loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from rmq.runtime.aside import logger
from rmq.runtime.world import Pool

__all__ = ["Post", "ThreadPool", "on_pool"]

log = logger(__name__)

T = TypeVar("T")


class Post:
    """Hands calls from any thread to one loop, waking it once for as many as come meanwhile.

    Right at whatever instruction a signal handler interrupts it, to raise or to hand over calls of its own: that the
    loop is awake is noted after it was woken, and with the turn that was the last one before.
    """

    __slots__ = ("_calls", "_loop", "_turn", "_woken_after")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        #: Turns the loop has begun, and the one after which it was woken last.
        self._turn = 0
        self._woken_after = -1

    def __call__(self, what: Callable[..., object], *args: Any) -> None:
        """Have ``what(*args)`` called on the loop. :raises RuntimeError: the loop is closed."""
        self._calls.append((what, args))
        turn = self._turn
        if self._woken_after != turn:
            self._loop.call_soon_threadsafe(self._drain)
            self._woken_after = turn

    def _drain(self) -> None:
        # Counted before draining, never after: what is appended from here on either is drained or wakes the loop.
        self._turn += 1
        calls = self._calls
        try:
            for _ in range(len(calls)):  # what comes meanwhile has woken the loop again: other work gets its turn
                what, args = calls.popleft()
                try:
                    what(*args)
                except Exception:
                    log.exception("a call handed to the loop failed")
        except BaseException:
            # The end of a program, or a signal handler: the calls behind it are others'.
            self._loop.call_soon_threadsafe(self._drain)
            raise


#: Seconds without work after which threads beyond the number to keep end.
_IDLE = 60.0


class ThreadPool:
    """A bounded pool of threads for listeners; threads are made when they are needed.

    Created on the loop that gets the results; :meth:`submit` is called there, too.

    :param most: threads at most.
    """

    def __init__(self, most: int, name: str = "listener") -> None:
        self._most = most
        #: So many stay when nothing is to do; None: all.
        self._least: int | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._post = Post(asyncio.get_running_loop())
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]] | None] = (
            queue.SimpleQueue()
        )
        self._threads = 0
        self._pending = 0
        self._closed = False
        self._idents: set[int] = set()

    def inside(self) -> bool:
        """The calling thread is one of this pool."""
        return threading.get_ident() in self._idents

    @property
    def most(self) -> int:
        return self._most

    @property
    def threads(self) -> int:
        return self._threads

    def resize(self, most: int) -> None:
        """Another number of threads at most; surplus ones end when they are done with what they do."""
        self._most = most
        self._end(self._threads - most)
        while self._threads < min(most, self._pending) and not self._closed:
            self._add()

    def keep(self, least: int) -> None:
        """Threads beyond so many end when nothing is to do for a minute."""
        self._least = least

    def _end(self, surplus: int) -> None:
        for _ in range(surplus):
            self._threads -= 1
            self._work.put(None)

    def _end_idle(self) -> None:
        self._ending = None
        if not self._pending and self._least is not None and not self._closed:
            self._end(self._threads - self._least)

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run ``work`` on a thread; ``done(result, error)`` is called on the loop afterwards.

        :raises RuntimeError: the pool is closed.
        """
        if self._closed:
            raise RuntimeError(f"the pool {self._name} is closed")
        self._pending += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._pending > self._threads and self._threads < self._most:
            self._add()
        self._work.put((work, done))

    def _add(self) -> None:
        self._threads += 1
        threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()

    def close(self) -> None:
        """Take no more work; threads end after the work they have."""
        self._closed = True
        if self._ending is not None:
            self._ending.cancel()
        for _ in range(self._threads):
            self._work.put(None)
        self._threads = 0

    def _run(self) -> None:
        post, get = self._post, self._work.get
        self._idents.add(threading.get_ident())
        while (item := get()) is not None:
            work, done = item
            try:
                result, error = work(), None
            except BaseException as raised:  # a listener's sys.exit ends no pool thread
                result, error = None, raised
            try:
                post(self._finish, done, result, error)
            except RuntimeError:
                break  # the loop is closed: nobody is left to tell
        self._idents.discard(threading.get_ident())

    def _finish(
        self, done: Callable[[Any, BaseException | None], None], result: Any, error: BaseException | None
    ) -> None:
        self._pending -= 1
        if self._least is not None and not self._pending and self._threads > self._least:
            self._ending = self._loop.call_later(_IDLE, self._end_idle)
        done(result, error)


async def on_pool(pool: Pool, work: Callable[[], T]) -> T:
    """What ``work()`` returns or raises, on a thread of a pool.

    :raises RuntimeError: the pool is closed.
    """
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: T | None, error: BaseException | None) -> None:
        if future.done():  # cancelled: nobody waits for it any more
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):  # no future takes one
            future.set_exception(RuntimeError("a function raised StopIteration"))
        else:
            future.set_exception(error)

    pool.submit(work, done)
    return await future  # type: ignore[no-any-return]
