"""Threads of the SDK: the loop thread behind the blocking API, and the bounded pool that listeners run on.

A call from another thread is appended to a deque; the loop is woken only when it is not awake already. What the loop
has finished by the end of a tick is handed back together: each waiting thread has one lock, released once.

After fork() the child has neither the thread nor its sockets: it forgets both (closing its copies of the descriptors
without a word to the other side) and starts anew at first use.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar, cast

from rmq.protocol.errors import ClientError
from rmq.runtime.loop import loop_factory

__all__ = [
    "Bridge",
    "ListenerPool",
    "Post",
    "Waiter",
    "bridge",
    "close_in_children",
    "forget_descriptors",
]

log = logging.getLogger(__name__)

#: What the end of a process waits for a coroutine that does not let the loop go.
_END_SECONDS = 1.0

T = TypeVar("T")


class Post:
    """Hands calls from any thread to one loop, waking it once for as many as come meanwhile."""

    __slots__ = ("_awake", "_calls", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._awake = False

    def __call__(self, what: Callable[..., object], *args: Any) -> None:
        """Have ``what(*args)`` called on the loop. :raises RuntimeError: the loop is closed."""
        self._calls.append((what, args))
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # Cleared before draining, never after: what is appended from here on either is drained or wakes the loop.
        self._awake = False
        calls = self._calls
        for _ in range(len(calls)):  # what comes meanwhile has woken the loop again: other work gets its turn
            what, args = calls.popleft()
            try:
                what(*args)
            except Exception:
                log.exception("a call handed to the loop failed")


class ListenerPool:
    """A bounded pool of threads for listeners; threads are made when they are needed.

    Created on the loop that gets the results; :meth:`submit` is called there, too.

    :param most: threads at most.
    """

    def __init__(self, most: int, name: str = "listener") -> None:
        self._most = most
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
        for _ in range(self._threads - most):
            self._threads -= 1
            self._work.put(None)

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run ``work`` on a thread; ``done(result, error)`` is called on the loop afterwards.

        :raises RuntimeError: the pool is closed.
        """
        if self._closed:
            raise RuntimeError(f"the pool {self._name} is closed")
        self._pending += 1
        if self._pending > self._threads and self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._work.put((work, done))

    def close(self) -> None:
        """Take no more work; threads end after the work they have."""
        self._closed = True
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
        done(result, error)


class Waiter(Generic[T]):
    """What a thread waits on; each thread keeps one and uses it again and again."""

    __slots__ = ("error", "lock", "result")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None


class Bridge:
    """An event loop on a daemon thread, for a process's blocking clients."""

    def __init__(self) -> None:
        self._loop = loop_factory()()
        self.post = Post(self._loop)
        self._local = threading.local()
        self._finished: list[Waiter[Any]] = []
        self._waiting: set[Waiter[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Given the chance to stop when the process ends, by key: whether it comes first, and what to await.
        self._at_exit: dict[object, tuple[bool, Callable[[], Coroutine[Any, Any, object]]]] = {}
        self._stopped = False
        self._callbacks: ListenerPool | None = None
        #: One at a time: whoever renews a client that a fork brought here.
        self.renewing = threading.RLock()
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), name="rmq", daemon=True)
        self._thread.start()
        started.wait()

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(started.set)
        try:
            self._loop.run_forever()
        finally:
            self._stopped = True

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    # -- waiting ------------------------------------------------------------------------------------------------------

    def waiter(self) -> Waiter[Any]:
        """This thread's waiter.

        :raises ClientError: waiting would be for ever: this thread is the loop's own, or the process ends.
        """
        local = self._local
        try:
            return local.waiter  # type: ignore[no-any-return]
        except AttributeError:
            if self._stopped:
                raise ClientError("the process ends: its clients are stopped") from None
            if threading.current_thread() is self._thread:
                raise ClientError(
                    "a blocking call from the SDK's own loop thread would never return: use rmq.aio in coroutines"
                ) from None
            made: Waiter[Any] = Waiter()
            local.waiter = made
            return made

    def wait(self, waiter: Waiter[T]) -> T:
        """Wait until :meth:`release` was called for this thread's waiter; its result, or its error raised."""
        try:
            waiter.lock.acquire()
        except BaseException:
            # Interrupted: a late release must not wake this thread's next call.
            del self._local.waiter
            raise
        error, result = waiter.error, waiter.result
        waiter.error = waiter.result = None
        if error is not None:
            try:
                raise error
            finally:
                del error
        return cast(T, result)

    def release(self, waiter: Waiter[Any]) -> None:
        """Let a thread go on; together with all others of this tick. On the loop only."""
        finished = self._finished
        finished.append(waiter)
        if len(finished) == 1:
            self._loop.call_soon(self._release_all)

    def _release_all(self) -> None:
        finished, self._finished = self._finished, []
        for waiter in finished:
            waiter.lock.release()

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it.

        An interrupt (Ctrl-C) while waiting cancels it.
        """
        try:
            waiter = self.waiter()
        except ClientError:
            coro.close()
            raise
        self.post(self._start, coro, waiter)
        try:
            result: T = self.wait(waiter)
            return result
        except (KeyboardInterrupt, SystemExit):
            self.post(self._cancel, waiter)
            raise

    def answer(self, waiter: Waiter[Any], result: object) -> None:
        """Let a thread go on with a result. On the loop only."""
        waiter.result = result
        self.release(waiter)

    def callbacks(self) -> ListenerPool:
        """Two threads for callbacks of asynchronous calls. On the loop only."""
        if self._callbacks is None:
            self._callbacks = ListenerPool(2, "rmq-callback")
        return self._callbacks

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
        task = self._loop.create_task(coro)
        self._tasks.add(task)
        task.rmq_waiter = waiter  # type: ignore[attr-defined]
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        waiter: Waiter[Any] = task.rmq_waiter  # type: ignore[attr-defined]
        if task.cancelled():
            waiter.error = ClientError("the call was cancelled")
        else:
            waiter.error = task.exception()
            if waiter.error is None:
                waiter.result = task.result()
        self.release(waiter)

    def _cancel(self, waiter: Waiter[Any]) -> None:
        for task in list(self._tasks):
            if getattr(task, "rmq_waiter", None) is waiter:
                task.cancel()

    # -- the end ------------------------------------------------------------------------------------------------------

    def stop_at_exit(
        self, key: object, stop: Callable[[], Coroutine[Any, Any, object]], *, first: bool = False
    ) -> None:
        """Have ``stop`` awaited when the process ends without a shutdown.

        :param first: before those without it, which listeners may still be using.
        """
        self._at_exit[key] = (first, stop)

    def forget(self, key: object) -> None:
        self._at_exit.pop(key, None)

    def exit(self, limit: float = 5.0) -> None:
        """Stop what was not stopped, within ``limit`` seconds, and end the loop; called by atexit.

        A loop that still runs when the interpreter is gone crashes the process at its next event.
        """
        if self._stopped:
            return
        if self._at_exit:
            with contextlib.suppress(TimeoutError, RuntimeError, Exception):
                asyncio.run_coroutine_threadsafe(self._stop_all(), self._loop).result(limit)
        self._stopped = True
        self._local = threading.local()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)

    async def _stop_all(self) -> None:
        stops = list(self._at_exit.values())
        self._at_exit.clear()
        for turn in (True, False):
            chosen = [stop() for first, stop in stops if first is turn]
            for outcome in await asyncio.gather(*chosen, return_exceptions=True):
                if isinstance(outcome, Exception):
                    log.warning("a client did not stop cleanly at exit: %s", outcome)


_bridge: Bridge | None = None
_starting = threading.Lock()
#: Loops of parents: kept, because ending one here would touch what the parent still uses.
_inherited: list[object] = []
#: Closes inherited sockets in a child; clients add to it what they have open.
_descriptors: list[Callable[[], list[int]]] = []


def bridge() -> Bridge:
    """This process's bridge, started at first use."""
    global _bridge
    made = _bridge
    if made is None:
        with _starting:
            if _bridge is None:
                _bridge = Bridge()
            made = _bridge
    return made


def _after_fork_in_child() -> None:
    global _bridge, _starting
    _starting = threading.Lock()
    if _bridge is not None:
        # close(), not shutdown(): the connection is the parent's, and goes on there.
        _inherited.append(_bridge)
        for descriptors in _descriptors:
            for number in descriptors():
                with contextlib.suppress(OSError):
                    os.close(number)
        _descriptors.clear()
        _bridge = None


def close_in_children(descriptors: Callable[[], list[int]]) -> None:
    """Name the descriptors that a forked child closes."""
    _descriptors.append(descriptors)


def forget_descriptors(descriptors: Callable[[], list[int]]) -> None:
    if descriptors in _descriptors:
        _descriptors.remove(descriptors)


@atexit.register
def _at_exit() -> None:
    if _bridge is not None:
        _bridge.exit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
