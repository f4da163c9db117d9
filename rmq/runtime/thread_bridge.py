"""The loop thread behind the blocking API.

A call from another thread is appended to a deque; the loop is woken only when it is not awake already. What the loop
has finished by the end of a tick is handed back together: each call that waits has one lock, released once. No call
waits for a loop that has ended or stands still.

After fork() the child has neither the thread nor its sockets: it forgets both (closing its copies of the descriptors
without a word to the other side) and starts anew at first use.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, Generic, TypeVar, cast

from rmq.protocol.errors import ClientError, RequestTimeout
from rmq.runtime.aside import finish_records, logger, records_aside
from rmq.runtime.loop import loop_factory
from rmq.runtime.pool import Post, ThreadPool

__all__ = [
    "Bridge",
    "Waiter",
    "bridge",
    "close_in_children",
    "forget_descriptors",
]

log = logger(__name__)

#: What the end of a process waits for a coroutine that does not let the loop go.
_END_SECONDS = 1.0
#: Seconds that a caller leaves the loop beyond the time of its call.
_GRACE = 1.0
#: Seconds after which a loop that did not come round counts as standing, for calls without a time of their own.
_STANDSTILL = 10.0
#: The most a lock can be waited for.
_LONGEST = threading.TIMEOUT_MAX

T = TypeVar("T")


class Waiter(Generic[T]):
    """What a thread waits on: one for each call.

    A call may be interrupted anywhere by a signal handler, which may raise or make calls of its own: what comes late
    for one that was given up finds this, and nothing of the next.
    """

    __slots__ = ("done", "error", "given_up", "lock", "result", "task")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None
        #: Answered: the lock is or will be released.
        self.done = False
        self.given_up = False
        self.task: asyncio.Task[T] | None = None


class Bridge:
    """An event loop on a daemon thread, for a process's blocking clients.

    :raises ClientError: threads are none here.
    """

    def __init__(self) -> None:
        _refuse_green_threads()
        self._loop = loop_factory()()
        self.post = Post(self._loop)
        self._finished: list[Waiter[Any]] = []
        self._waiting: set[Waiter[Any]] = set()
        #: Results that callers wait for in their own way; they fail when the loop ends.
        self.futures: set[Future[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Given the chance to stop when the process ends, by key: whether it comes first, and what to await.
        self._at_exit: dict[object, tuple[bool, Callable[[], Coroutine[Any, Any, object]]]] = {}
        #: Why no call can be made any more.
        self._stopped = ""
        self._callbacks: ThreadPool | None = None
        #: One at a time: whoever renews a client that a fork brought here.
        self.renewing = threading.RLock()
        started = threading.Event()
        self._ident = 0
        self._thread = threading.Thread(target=self._serve, args=(started,), name="rmq", daemon=True)
        self._thread.start()
        started.wait()

    def _serve(self, started: threading.Event) -> None:
        with records_aside():
            self._serve_aside(started)

    def _serve_aside(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._ident = threading.get_ident()
        self._loop.call_soon(started.set)
        try:
            while not self._stopped:
                try:
                    self._loop.run_forever()
                    break
                except (SystemExit, KeyboardInterrupt) as raised:  # of a coroutine of the application
                    log.error("%r was raised on the SDK's loop, which goes on", raised)
        except BaseException as raised:
            self._stopped = f"the SDK's loop ended: {raised!r}: no client of this process works any more"
            log.critical(self._stopped, exc_info=True)
        finally:
            self._stopped = self._stopped or "the process ends: its clients are stopped"
            for future in list(self.futures):
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(ClientError(self._stopped))
            for waiter in list(self._waiting):
                if not waiter.done:
                    waiter.done = True
                    waiter.error = ClientError(self._stopped)
                with contextlib.suppress(RuntimeError):  # its result was on the way
                    waiter.lock.release()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    # -- waiting ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """:raises ClientError: the loop ended: nothing would come back from it."""
        if self._stopped:
            raise ClientError(self._stopped)

    @property
    def inside(self) -> bool:
        """Whether this thread is the loop's own."""
        return threading.get_ident() == self._ident

    def waiter(self) -> Waiter[Any]:
        """What this call of this thread waits on.

        :raises ClientError: waiting would be for ever: this thread is the loop's own, or the loop ended.
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
        waiting = self._waiting
        try:
            waiting.add(waiter)
            self.check()  # after it was added: whoever ends the loop sees it, or is seen
            if seconds is None:
                self._wait_while_alive(waiter)
            elif not (
                waiter.lock.acquire(timeout=min(max(seconds, 0.0), _LONGEST))
                # The loop's turn comes first: the process may have stood still, with the answer in the socket.
                or waiter.lock.acquire(timeout=_GRACE)
            ):
                raise self._standing(seconds + _GRACE)
        finally:
            waiting.discard(waiter)
        if waiter.error is not None:
            raise waiter.error
        return cast(T, waiter.result)

    def _wait_while_alive(self, waiter: Waiter[Any]) -> None:
        turned: list[bool] | None = None
        while not waiter.lock.acquire(timeout=_STANDSTILL):
            if turned is not None and not turned:
                if waiter.lock.acquire(timeout=_GRACE):
                    return
                if not turned:
                    raise self._standing(_STANDSTILL)
            turned = []
            self.post(turned.append, True)

    def _standing(self, seconds: float) -> RequestTimeout:
        """What a caller is told when the loop does not come round."""
        frame = sys._current_frames().get(self._ident)
        code = None if frame is None else frame.f_code
        where = "" if frame is None or code is None else f" in {code.co_name} ({code.co_filename}:{frame.f_lineno})"
        return RequestTimeout(
            f"no answer in {seconds:g} s: the SDK's loop stands still{where}: a coroutine of yours that blocks?"
        )

    def release(self, waiter: Waiter[Any]) -> None:
        """Let a thread go on; together with all others of this tick. On the loop only."""
        if waiter.done:
            return
        waiter.done = True
        finished = self._finished
        finished.append(waiter)
        if len(finished) == 1:
            self._loop.call_soon(self._release_all)

    def _release_all(self) -> None:
        finished, self._finished = self._finished, []
        for waiter in finished:
            waiter.lock.release()

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

    def callbacks(self) -> ThreadPool:
        """Two threads for callbacks of asynchronous calls. On the loop only."""
        if self._callbacks is None:
            self._callbacks = ThreadPool(2, "rmq-callback")
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
        self._stopped = "the process ends: its clients are stopped"
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)
        finish_records(_END_SECONDS)

    async def _stop_all(self) -> None:
        stops = list(self._at_exit.values())
        self._at_exit.clear()
        for turn in (True, False):
            chosen = [stop() for first, stop in stops if first is turn]
            for outcome in await asyncio.gather(*chosen, return_exceptions=True):
                if isinstance(outcome, Exception):
                    log.warning("a client did not stop cleanly at exit: %s", outcome)


_bridge: Bridge | None = None
#: A signal handler may need the bridge while the thread it interrupts makes it.
_starting = threading.RLock()
#: Loops of parents: kept, because ending one here would touch what the parent still uses.
_inherited: list[object] = []
#: Closes inherited sockets in a child; clients add to it what they have open.
_descriptors: list[Callable[[], list[int]]] = []


def bridge() -> Bridge:
    """This process's bridge, started at first use."""
    made = _bridge
    if made is None:
        with _starting:
            if _bridge is None:
                _keep(Bridge())
            made = _bridge
    assert made is not None
    return made


def _keep(fresh: Bridge) -> None:
    """Take a bridge for this process's; a signal handler may have made one meanwhile."""
    global _bridge
    if _bridge is None:
        _bridge = fresh
    else:
        fresh.exit()


def _refuse_green_threads() -> None:
    """:raises ClientError: a library has replaced threads by greenlets: a loop on one would stop all of them."""
    gevent = sys.modules.get("gevent.monkey")
    eventlet = sys.modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_module_patched("threading"):
        patch = "gevent.monkey.patch_all(thread=False, queue=False, select=False)"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        patch = "eventlet.monkey_patch(thread=False)"
    else:
        return
    raise ClientError(
        f"{patch.partition('.')[0]} has replaced threads, and the SDK's loop needs a real one: patch without them "
        f"({patch}), or use the SDK in a process of its own"
    )


def _after_fork_in_child() -> None:
    global _bridge, _starting
    _starting = threading.RLock()
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
