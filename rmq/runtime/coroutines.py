"""Coroutines of an application, on a loop and a thread of their own: one that blocks keeps no client from its work.

The loop behind blocking clients has their heartbeats, pulls and answers to see to, of all clients of a process. What an
application has it await may block by mistake. It runs here, and the loop waits for it as for a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rmq.runtime.aside import finish_records, logger, records_aside
from rmq.runtime.loop import loop_factory
from rmq.runtime.pool import Post

__all__ = ["CoroutineThread"]

log = logger(__name__)

T = TypeVar("T")
#: Seconds between two looks whether the thread's loop turns, and after which it counts as standing.
_LOOK_SECONDS = 5.0


class _Call:
    """One coroutine under way."""

    __slots__ = ("begun", "cancelled", "context", "ended", "error", "function", "future", "result", "task")

    def __init__(self, function: Callable[[], Awaitable[Any]]) -> None:
        self.function = function
        #: What the caller's task has set, a span for example, is set there, too.
        self.context = contextvars.copy_context()
        self.future: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.cancelled = False
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None


class CoroutineThread:
    """Made on the loop that waits, which alone calls it. The thread starts with it."""

    def __init__(self) -> None:
        self._home = asyncio.get_running_loop()
        self._back = Post(self._home)
        self._loop = loop_factory()()
        self._there = Post(self._loop)
        #: Kept here: a loop keeps its tasks weakly.
        self._calls: set[_Call] = set()
        self._looking: asyncio.TimerHandle | None = None
        #: Whether it has turned since the last look, and that it does not was told.
        self._turned = True
        self._told = False
        self._thread = threading.Thread(target=self._serve, name="rmq-coroutines", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with records_aside():
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()

    def inside(self) -> bool:
        """The calling thread is this one."""
        return threading.current_thread() is self._thread

    async def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a coroutine function there, and wait for it. A caller that is cancelled cancels it, and still waits.

        :raises BaseException: what it raises.
        """
        call = _Call(function)
        self._calls.add(call)
        if self._looking is None:
            self._looking = self._home.call_later(_LOOK_SECONDS, self._look)
        self._there(self._begin, call)
        try:
            while not call.ended:
                call.future = self._home.create_future()
                try:
                    await call.future
                except asyncio.CancelledError:
                    self._there(self._cancel, call)
        finally:
            self._calls.discard(call)
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[no-any-return]

    def _begin(self, call: _Call) -> None:
        call.task = self._loop.create_task(self._run(call), context=call.context)

    async def _run(self, call: _Call) -> None:
        call.begun = True
        try:
            if call.cancelled:
                raise asyncio.CancelledError
            call.result = await call.function()
        except GeneratorExit as raised:  # it would end the task that waits, too
            call.error = RuntimeError("a coroutine raised GeneratorExit")
            call.error.__cause__ = raised
        except BaseException as raised:  # a loop of ours is nobody's to end
            call.error = raised
        self._back(self._end, call)

    def _cancel(self, call: _Call) -> None:
        call.cancelled = True
        if call.begun and call.task is not None:  # a task that is cancelled before its first step tells nobody
            call.task.cancel()

    def _end(self, call: _Call) -> None:
        call.ended = True
        if call.future is not None and not call.future.done():
            call.future.set_result(None)

    # -- a loop that stands still ------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._looking = None
        if not self._turned and not self._told:
            self._told = True
            log.warning(
                "a coroutine of the application has blocked the thread of all its coroutines for %g s%s: others wait; "
                "clients, threads and heartbeats go on",
                _LOOK_SECONDS,
                self._where(),
            )
        self._turned = False
        self._there(self._turn)
        if self._calls:
            self._looking = self._home.call_later(_LOOK_SECONDS, self._look)

    def _turn(self) -> None:
        self._turned, self._told = True, False

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "" if frame is None else f", in {frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"

    # -- the end ------------------------------------------------------------------------------------------------------

    def stop(self, seconds: float) -> None:
        """End the loop and the thread; any thread may ask. A loop that outlives the interpreter crashes the process.

        :param seconds: how long to wait for a coroutine that does not let the thread go.
        """
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(seconds)
        finish_records(seconds)
