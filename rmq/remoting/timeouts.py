"""Deadlines of many calls with one timer.

Calls that share a hundredth of a second share a bucket; one loop timer stands for the earliest bucket. A call that is
answered in time costs nothing more: its entry is found stale when the bucket comes up.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

from rmq.runtime.aside import logger
from rmq.runtime.patience import LATE, MOST_PUT_OFF, READING

__all__ = ["Timeouts"]

K = TypeVar("K")

_PER_SECOND = 100

log = logger(__name__)


class Timeouts(Generic[K]):
    """Calls ``expire(key)`` when a key's time is up, at most 20 ms late and never early.

    When the loop itself is late, what has come in meanwhile is read before anything expires.

    :param expire: told every key that was added, answered or not: it knows which still wait.
    """

    __slots__ = ("_at", "_buckets", "_due", "_expire", "_loop", "_put_off", "_timer")

    def __init__(self, expire: Callable[[K], None]) -> None:
        self._expire = expire
        self._buckets: dict[int, list[K]] = {}
        self._due: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: When the timer is to fire, and how often in a row it was put off for being late.
        self._at = 0.0
        self._put_off = 0

    def add(self, seconds: float, key: K) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        number = int((loop.time() + seconds) * _PER_SECOND) + 1
        bucket = self._buckets.get(number)
        if bucket is not None:
            bucket.append(key)
            return
        self._buckets[number] = [key]
        heapq.heappush(self._due, number)
        if self._due[0] == number:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and self._loop is not None:
            self._at = self._due[0] / _PER_SECOND
            self._timer = self._loop.call_at(self._at, self._run)

    def _run(self) -> None:
        assert self._loop is not None
        self._timer = None
        if self._loop.time() - self._at > LATE and self._put_off < MOST_PUT_OFF:
            # The process stood still, or the loop did. What came in meanwhile lies in the sockets: it goes first.
            self._put_off += 1
            self._at = self._loop.time() + READING
            self._timer = self._loop.call_at(self._at, self._run)
            return
        self._put_off = 0
        now = self._loop.time() * _PER_SECOND + 0.5  # a timer may fire a clock tick early
        while self._due and self._due[0] <= now:
            for key in self._buckets.pop(heapq.heappop(self._due)):
                try:
                    self._expire(key)
                except Exception:
                    log.exception("a deadline failed; the others are kept")
        self._arm()

    def close(self) -> None:
        """Forget every deadline."""
        self._buckets.clear()
        self._due.clear()
        self._arm()
