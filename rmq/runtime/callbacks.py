"""Threads for callbacks of asynchronous calls: two, and another one for each that takes its time."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Collection

from rmq.runtime import patience
from rmq.runtime.world import Pool

__all__ = ["Callbacks"]

#: Threads as long as callbacks return, and at most.
_FEW, _MOST = 2, 64
#: Seconds after which a callback is one that takes its time: those behind it get another thread.
_SLOW = 1.0
#: Seconds that whoever ends waits for callbacks of which none returns.
_STUCK = 5.0


class Callbacks:
    """On the loop only.

    :param pool: makes a pool of threads.
    """

    def __init__(self, pool: Callable[[int, str], Pool]) -> None:
        self._pool = pool(_FEW, "rmq-callback")
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        #: When each that is under way began; noted by its thread.
        self._begun: dict[int, float] = {}
        #: Those that have not returned, and of them those that wait for others.
        self._open: set[int] = set()
        self._waiting: set[int] = set()
        self._news = asyncio.Event()
        #: Of a thread: the one that it calls.
        self._here = threading.local()
        self._looking: asyncio.TimerHandle | None = None

    @property
    def here(self) -> int | None:
        """The number of the callback that calls this; None = none does."""
        return getattr(self._here, "number", None)

    def submit(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> int:
        """Call ``work``; ``done`` is told on the loop how that ended. They begin in the order in which they come.

        :returns: its number.
        """
        number = next(self._numbers)

        def noted() -> object:
            self._begun[number] = self._loop.time()
            self._here.number = number
            try:
                return work()
            finally:
                self._here.number = None

        def ended(result: object, error: BaseException | None) -> None:
            self._open.discard(number)
            self._begun.pop(number, None)
            self._news.set()
            if self._pool.most > _FEW:
                self._fit()
            done(result, error)

        self._open.add(number)
        self._pool.submit(noted, ended)
        if self._looking is None and len(self._open) > self._pool.most:
            self._looking = self._loop.call_later(_SLOW, self._look)
        return number

    async def until_returned(self, numbers: Collection[int] | None = None, here: int | None = None) -> int:
        """Wait for callbacks, as long as one or another returns within seconds.

        :param numbers: which; all of them by default.
        :param here: the one that asks, for which nobody waits meanwhile.
        :returns: how many have not returned.
        """
        wanted = set(self._open if numbers is None else numbers)
        if here is not None:
            self._waiting.add(here)
            self._news.set()
        try:
            while left := wanted & self._open - self._waiting:
                self._news.clear()
                try:
                    async with patience.timeout(_STUCK):
                        await self._news.wait()
                except TimeoutError:
                    return len(left)
            return 0
        finally:
            if here is not None:
                self._waiting.discard(here)

    def _look(self) -> None:
        self._looking = None
        self._fit()
        if len(self._open) > self._pool.most:
            self._looking = self._loop.call_later(_SLOW, self._look)

    def _fit(self) -> None:
        """As many threads as take their time, and the few."""
        before = self._loop.time() - _SLOW
        slow = sum(at <= before for at in list(self._begun.values()))
        self._pool.resize(min(_MOST, _FEW + slow))
