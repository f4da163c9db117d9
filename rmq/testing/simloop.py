"""An asyncio event loop in virtual time: nothing waits, timers jump, the same seed gives the same run.

The loop has no sockets and no threads: its selector only moves the clock to the next timer. uvloop cannot do this, so
no semantics may depend on uvloop (design.md section 2).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple

from rmq.runtime.lockstep import LockstepPool

__all__ = ["SimDeadlock", "SimLoop", "run"]

T = TypeVar("T")
_Args = TypeVarTuple("_Args")

#: From so many cancelled timers on, BaseEventLoop takes them out if they are more than half of all.
_CANCELLED = 50
#: The longest that BaseEventLoop waits for a timer, seconds.
_DAY = 24 * 3600


class SimDeadlock(RuntimeError):
    """Every task waits for something that no timer will bring."""


class _Handle(asyncio.Handle):
    """A handle without what is for debugging: each step of a simulation makes one or two."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: Context | None):
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _TimerHandle(asyncio.TimerHandle):
    """The same for a timer."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: Context | None,
    ):
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True

    def __lt__(self, other: Any) -> bool:
        return bool(self._when < other._when)

    def cancel(self) -> None:
        if not self._cancelled:
            if self._scheduled:
                self._loop._timer_cancelled_count += 1
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]


class _Selector:
    """What BaseEventLoop asks for events: there are none, so time passes instead."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise SimDeadlock(
                "nothing is scheduled and every task waits: "
                + ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self._loop)))
            )
        if timeout > 0:
            self._loop.pass_time(timeout)
        return []


class SimLoop(asyncio.BaseEventLoop):
    """An event loop whose time is virtual.

    :param start: the first value of :meth:`time`, seconds.
    :param most_turns: turns of the loop without time passing before it is called a livelock.
    :param executor: run what :meth:`run_in_executor` is given, one function at a time, while the loop stands; without
        it that is refused.
    """

    def __init__(self, start: float = 1_000.0, most_turns: int = 1_000_000, *, executor: bool = False) -> None:
        super().__init__()
        self._scheduled: list[Any]
        self._ready: deque[Any]
        self._timer_cancelled_count: int
        self._stopping: bool
        self._debug: bool
        self._closed: bool
        self._now = start
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        self._most_turns = most_turns
        self._turns = 0
        self._executor = executor
        #: The time at which :attr:`at_limit` is called, once: somebody waits for what does not come.
        self.limit: float = math.inf
        self.at_limit: Callable[[], object] = self._waits_in_vain
        self.unhandled: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.unhandled.append(context))

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Move the clock, as the selector does when nothing is due."""
        self._now += seconds
        self._turns = 0
        if self._now > self.limit:
            self.limit = math.inf
            self.at_limit()

    def passed(self, seconds: float) -> bool:
        """Whether time has passed here and now: nothing else was to happen in it, so there was nobody to wait for.

        :param seconds: zero is one turn of the loop.
        """
        if self._ready or self._stopping or self._debug:
            return False
        task = asyncio.current_task(self)
        if task is None or task.cancelling():  # which ends it where it would wait
            return False
        then = self._now + seconds
        if then > self.limit or (self._scheduled and self._scheduled[0]._when <= then + self._clock_resolution):
            return False
        if seconds > 0:
            self._now = then
            self._turns = 0
        else:
            self._turns += 1
        return self._turns <= self._most_turns

    def _waits_in_vain(self) -> None:
        raise SimDeadlock(
            "what is waited for has not come in all the virtual time that it was given (advance() gives more)"
        )

    # Without the layers of BaseEventLoop, which are much of what a step of a simulation costs.

    def call_soon(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        if self._debug or self._closed:
            return super().call_soon(callback, *args, context=context)
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._debug or self._closed:
            return super().call_at(self._now + delay, callback, *args, context=context)
        timer = _TimerHandle(self._now + delay, callback, args, self, context)
        heappush(self._scheduled, timer)
        return timer

    def call_at(
        self, when: float, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._debug or self._closed:
            return super().call_at(when, callback, *args, context=context)
        timer = _TimerHandle(when, callback, args, self, context)
        heappush(self._scheduled, timer)
        return timer

    def _run_once(self) -> None:
        """One turn, in BaseEventLoop's order; shorter, since idle services take most turns of a simulation."""
        self._turns += 1
        if self._turns > self._most_turns:
            raise SimDeadlock(f"{self._turns} turns of the loop without time passing")
        if self._debug or self._timer_cancelled_count > _CANCELLED:
            super()._run_once()  # type: ignore[misc]
            return
        scheduled, ready = self._scheduled, self._ready
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(scheduled)._scheduled = False
        if not ready and not self._stopping:
            if not scheduled:
                self._selector.select(None)
            elif (ahead := scheduled[0]._when - self._now) > 0:
                self.pass_time(ahead if ahead < _DAY else _DAY)
        due = self._now + self._clock_resolution
        while scheduled and scheduled[0]._when < due:
            handle = heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler(
                    {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
                )

    def _process_events(self, event_list: list[Any]) -> None:
        """No events: see the selector."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in the selector: there is nothing to wake."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        if not self._executor:
            raise RuntimeError("there are no threads in a simulation: use world.offload")
        future: asyncio.Future[T] = self.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        LockstepPool(1, "executor").submit(partial(func, *args), done)
        return future


def run(main: Coroutine[Any, Any, T], *, loop: SimLoop | None = None) -> T:
    """Run a coroutine in virtual time.

    :raises SimDeadlock: nothing can go on.
    :raises RuntimeError: a callback raised that nobody caught.
    """
    made = loop or SimLoop()
    with asyncio.Runner(loop_factory=lambda: made) as runner:
        result = runner.run(main)
    if made.unhandled:
        first = made.unhandled[0]
        raise RuntimeError(f"unhandled in the loop: {first.get('message')}") from first.get("exception")
    return result
