"""Threads for callbacks of asynchronous calls: two, and another one for each that takes its time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from rmq.runtime.world import Pool

__all__ = ["Callbacks"]

#: Threads as long as callbacks return, and at most.
_FEW, _MOST = 2, 64
#: Seconds after which a callback is one that takes its time: those behind it get another thread.
_SLOW = 1.0


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
        self._under_way = 0
        self._looking: asyncio.TimerHandle | None = None

    def submit(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        """Call ``work``; ``done`` is told on the loop how that ended. They begin in the order in which they come."""
        number = next(self._numbers)

        def noted() -> object:
            self._begun[number] = self._loop.time()
            return work()

        def ended(result: object, error: BaseException | None) -> None:
            self._under_way -= 1
            self._begun.pop(number, None)
            if self._pool.most > _FEW:
                self._fit()
            done(result, error)

        self._under_way += 1
        self._pool.submit(noted, ended)
        if self._looking is None and self._under_way > self._pool.most:
            self._looking = self._loop.call_later(_SLOW, self._look)

    def _look(self) -> None:
        self._looking = None
        self._fit()
        if self._under_way > self._pool.most:
            self._looking = self._loop.call_later(_SLOW, self._look)

    def _fit(self) -> None:
        """As many threads as take their time, and the few."""
        before = self._loop.time() - _SLOW
        slow = sum(at <= before for at in list(self._begun.values()))
        self._pool.resize(min(_MOST, _FEW + slow))
