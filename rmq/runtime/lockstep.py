"""Threads that take turns with their loop: of the loop and all of them, one runs at a time, and which is no matter of
luck. So plain functions run in virtual time as coroutines do, and a run repeats.

The loop stands while a function runs. With :func:`on_loop` the function waits for a coroutine, and time passes
meanwhile; what blocks in any other way takes no virtual time at all.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["LockstepPool", "loop_of_turn", "on_loop", "takes_turns"]

T = TypeVar("T")

#: The call that the running thread makes.
_here = threading.local()


class _Call:
    """One function on its thread: it ends, or it waits for a coroutine."""

    def __init__(self, pool: LockstepPool, work: Callable[[], Any], name: str) -> None:
        self.pool = pool
        self._work = work
        self._go = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = False
        #: What the function waits for, and then how that ended.
        self.wish: Coroutine[Any, Any, Any] | None = None
        self.answer: asyncio.Task[tuple[Any, BaseException | None]] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def turn(self) -> None:
        """Let the function run until it ends or waits. On the loop."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._stands.acquire()
        if self.ended:
            self._thread.join()

    def _run(self) -> None:
        _here.call = self
        try:
            self.result = self._work()
        except BaseException as raised:  # told to the loop, as a pool of real threads does
            self.error = raised
        self.ended = True
        self._stands.release()

    def wait(self, wish: Coroutine[Any, Any, T]) -> T:
        """On the function's thread."""
        self.wish = wish
        self._stands.release()
        self._go.acquire()
        assert self.answer is not None
        result, error = self.answer.result()
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]


def on_loop(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the pool's loop and wait for it, in a function that a :class:`LockstepPool` runs.

    :raises RuntimeError: this is no thread of one.
    """
    call: _Call | None = getattr(_here, "call", None)
    if call is None:
        coro.close()
        raise RuntimeError("only a function that a lockstep pool runs can wait for its loop")
    return call.wait(coro)


def takes_turns(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this thread takes turns with a loop, and now it is its own."""
    call: _Call | None = getattr(_here, "call", None)
    return call is not None and call.pool.loop is loop


def loop_of_turn() -> asyncio.AbstractEventLoop:
    """The loop that this thread takes turns with. :raises RuntimeError: none: it is no thread of a lockstep pool."""
    call: _Call | None = getattr(_here, "call", None)
    if call is None:
        raise RuntimeError("no loop runs here, and this is no thread of a lockstep pool")
    return call.pool.loop


async def _outcome(wish: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
    """What a coroutine returns or raises; whatever that is, it is the function's alone and does not end the loop."""
    try:
        return await wish, None
    except BaseException as raised:
        return None, raised


class LockstepPool:
    """A pool for loops in virtual time; functions begin in the order in which they were submitted.

    :param most: functions under way at most, those that wait included.
    """

    def __init__(self, most: int, name: str = "listener") -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._most = most
        self._name = name
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()
        self._under_way = 0
        self._closed = False

    @property
    def most(self) -> int:
        return self._most

    def inside(self) -> bool:
        call: _Call | None = getattr(_here, "call", None)
        return call is not None and call.pool is self

    def keep(self, least: int) -> None:
        """Threads end with their functions here."""

    def resize(self, most: int) -> None:
        self._most = most
        self._begin()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        if self._closed:
            raise RuntimeError(f"the pool {self._name} is closed")
        self._waiting.append((work, done))
        self._begin()

    def close(self) -> None:
        self._closed = True

    def _begin(self) -> None:
        while self._waiting and self._under_way < self._most:
            self._under_way += 1
            work, done = self._waiting.popleft()
            self.loop.call_soon(self._turn, _Call(self, work, self._name), done)

    def _turn(self, call: _Call, done: Callable[[Any, BaseException | None], None]) -> None:
        call.turn()
        if not call.ended:
            assert call.wish is not None
            call.answer = answer = self.loop.create_task(_outcome(call.wish), name=self._name)
            answer.add_done_callback(lambda _: self._turn(call, done))
            return
        self._under_way -= 1
        self._begin()
        done(call.result, call.error)
