"""Blocking calls in virtual time: whoever waits runs the loop meanwhile, on the thread he waits on.

There is no thread beside his: between two calls everything stands, brokers in the same loop, too, and within one time
passes as far as that call takes. Listeners take their turns on threads of a
:class:`~rmq.runtime.lockstep.LockstepPool`; what they call waits as they do. Threads of other kinds may call as well:
one at a time runs the loop, for the others, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from rmq.protocol.errors import RequestTimeout
from rmq.runtime.bridge import Bridge, Waiter
from rmq.runtime.lockstep import LockstepPool, on_loop, takes_turns

__all__ = ["LockstepBridge"]

#: Seconds of virtual time that a call is given beyond its own.
_GRACE = 1.0
#: Seconds between two looks at how much real time has passed.
_STEP = 0.01


class LockstepBridge(Bridge):
    """The way to a loop that runs only while somebody waits for it.

    :param loop: its time is virtual, and nobody else runs it.
    """

    runs = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, LockstepPool)
        #: Held by the thread that runs the loop, which does so until this one is answered.
        self._turn = threading.Lock()
        self._until: Waiter[Any] | None = None
        self._limits: dict[Waiter[Any], asyncio.TimerHandle] = {}
        #: Calls of listeners, which wait on the loop.
        self._woken: dict[Waiter[Any], asyncio.Event] = {}

    @property
    def inside(self) -> bool:
        """Whether a loop runs on this thread."""
        return asyncio._get_running_loop() is not None

    def _wait(self, waiter: Waiter[Any], seconds: float | None) -> None:
        if seconds is not None:
            self.post(self._limit, waiter, seconds + _GRACE)
        if takes_turns(self._loop):
            on_loop(self._answered(waiter))
            return
        while not waiter.done:
            with self._turn:
                if not waiter.done:
                    self._until = waiter
                    self._loop.run_forever()

    async def _answered(self, waiter: Waiter[Any]) -> None:
        if not waiter.done:
            woken = self._woken[waiter] = asyncio.Event()
            await woken.wait()

    def _limit(self, waiter: Waiter[Any], seconds: float) -> None:
        if not waiter.done:
            self._limits[waiter] = self._loop.call_later(seconds, self._late, waiter, seconds)

    def _late(self, waiter: Waiter[Any], seconds: float) -> None:
        if not waiter.done:
            waiter.error = RequestTimeout(f"no answer in {seconds:g} s of virtual time")
            self.release(waiter)

    def release(self, waiter: Waiter[Any]) -> None:
        """Let a thread go on: that of the loop stops it, one of a listener gets its turn. On the loop only."""
        if waiter.done:
            return
        waiter.done = True
        limit = self._limits.pop(waiter, None)
        if limit is not None:
            limit.cancel()
        woken = self._woken.pop(waiter, None)
        if woken is not None:
            woken.set()
        elif waiter is self._until:
            self._loop.stop()

    def pass_time(self, future: Future[Any], seconds: float | None) -> float | None:
        """Let virtual time pass until a future has ended, or so many seconds of it have passed."""
        if not future.done():
            waiter = self.waiter()
            Future.add_done_callback(future, lambda _: self.post(self.answer, waiter, None))
            if seconds is not None:
                self.post(self._loop.call_later, seconds, self.answer, waiter, None)
            self.wait(waiter)
        return 0.0

    def until_ended(self, futures: Iterable[Future[Any]]) -> None:
        """Let virtual time pass until all futures have ended."""
        for future in futures:
            self.pass_time(future, None)

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.run(asyncio.sleep(seconds))

    @contextmanager
    def in_real_time(self, advance: Callable[[float], object]) -> Iterator[None]:
        """Meanwhile virtual time passes beside real time, too: for threads that wait in other ways than in calls.

        :param advance: lets so many seconds pass, in one call.
        """
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(_STEP):
                advance(_STEP)

        thread = threading.Thread(target=go_on, name="rmq-virtual-time", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def close(self) -> None:
        """Stop what was not stopped, cancel what is still under way, and end the loop."""
        if self._loop.is_closed():
            return
        self.run(self._stop_all())
        self.run(self._cancel_rest())
        self._stopped = "its virtual time has ended: its clients are stopped"
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _cancel_rest(self) -> None:
        here = asyncio.current_task()
        while rest := [task for task in asyncio.all_tasks() if task is not here]:
            for task in rest:
                task.cancel()
            await asyncio.wait(rest)
