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
from collections.abc import Awaitable, Callable
from concurrent.futures import InvalidStateError
from typing import Any, TypeVar

from rmq.protocol.errors import ClientError, RequestTimeout
from rmq.runtime.aside import finish_records, logger, records_aside
from rmq.runtime.bridge import Bridge, Waiter
from rmq.runtime.coroutines import CoroutineThread
from rmq.runtime.loop import loop_factory
from rmq.runtime.pool import ThreadPool

__all__ = ["ThreadBridge", "bridge"]

log = logger(__name__)

T = TypeVar("T")

#: What the end of a process waits for a coroutine that does not let the loop go.
_END_SECONDS = 1.0
#: Seconds that a caller leaves the loop beyond the time of its call.
_GRACE = 1.0
#: Seconds after which a loop that did not come round counts as standing, for calls without a time of their own.
_STANDSTILL = 10.0
#: The most a lock can be waited for.
_LONGEST = threading.TIMEOUT_MAX


class ThreadBridge(Bridge):
    """An event loop on a daemon thread, for a process's blocking clients.

    :raises ClientError: threads are none here.
    """

    def __init__(self) -> None:
        _refuse_green_threads()
        super().__init__(loop_factory()(), ThreadPool)
        self._coroutines: CoroutineThread | None = None
        self._finished: list[Waiter[Any]] = []
        self._waiting: set[Waiter[Any]] = set()
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
    def inside(self) -> bool:
        """Whether this thread is the loop's own."""
        return threading.get_ident() == self._ident

    def _wait(self, waiter: Waiter[Any], seconds: float | None) -> None:
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

    async def elsewhere(self, function: Callable[[], Awaitable[T]]) -> T:
        """On a thread for them, which is made with the first."""
        if self._coroutines is None:
            self._coroutines = CoroutineThread()
        return await self._coroutines.run(function)

    @property
    def elsewhere_inside(self) -> bool:
        return self._coroutines is not None and self._coroutines.inside()

    def release(self, waiter: Waiter[Any]) -> None:
        """Let a thread go on; together with all others of this tick. On the loop only."""
        if waiter.done:
            return
        waiter.done = True
        finished = self._finished
        if not finished and len(self._waiting) <= 1:
            waiter.lock.release()  # nobody else waits whom it could go with
            return
        finished.append(waiter)
        if len(finished) == 1:
            self._loop.call_soon(self._release_all)

    def _release_all(self) -> None:
        finished, self._finished = self._finished, []
        for waiter in finished:
            waiter.lock.release()

    # -- the end ------------------------------------------------------------------------------------------------------

    def exit(self, limit: float = 5.0) -> None:
        """Stop what was not stopped, within ``limit`` seconds, and end the loop; called by atexit.

        A loop that still runs when the interpreter is gone crashes the process at its next event.
        """
        if self._stopped:
            return
        if self._at_exit or self._callbacks is not None:
            with contextlib.suppress(TimeoutError, RuntimeError, Exception):
                asyncio.run_coroutine_threadsafe(self._stop_all(), self._loop).result(limit)
        self._stopped = "the process ends: its clients are stopped"
        if self._coroutines is not None:
            self._coroutines.stop(_END_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)
        finish_records(_END_SECONDS)


_bridge: ThreadBridge | None = None
#: A signal handler may need the bridge while the thread it interrupts makes it.
_starting = threading.RLock()
#: Loops of parents: kept, because ending one here would touch what the parent still uses.
_inherited: list[object] = []


def bridge() -> ThreadBridge:
    """This process's bridge, started at first use."""
    made = _bridge
    if made is None:
        with _starting:
            if _bridge is None:
                _keep(ThreadBridge())
            made = _bridge
    assert made is not None
    return made


def _keep(fresh: ThreadBridge) -> None:
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
        for descriptors in _bridge._descriptors.values():
            for number in descriptors():
                with contextlib.suppress(OSError):
                    os.close(number)
        _bridge = None


@atexit.register
def _at_exit() -> None:
    if _bridge is not None:
        _bridge.exit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
