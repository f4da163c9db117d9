"""What waits for a time, by two clocks, in one order.

Times that a producer chose itself are the wall clock's. A relative delay is counted by a clock that no step moves.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rmq.broker.schedule.timing import Wait
from rmq.broker.schedule.wheel import Wheel

if TYPE_CHECKING:
    from rmq.broker.schedule.steady import SteadyClock
    from rmq.runtime.world import Clock

__all__ = ["Due", "Waits"]

#: Seconds of a wheel looked at before the loop gets its turn.
_SECONDS_AT_ONCE = 5_000
#: Longest sleep while something waits for a wall-clock time, seconds: how late a step of that clock is noticed.
_LONGEST_SLEEP = 0.1
#: Longest sleep at all, seconds: a time may be any number.
_LONGEST_PAUSE = 3600.0

#: One that is due: when, its index, and the wheel that it was taken from.
Due = tuple[int, int, Wheel]


class Waits:
    """Indexes of messages by the time that each waits for. What was taken back is still handed out: the taker knows."""

    def __init__(self, clock: Clock, steady: SteadyClock) -> None:
        self._clock = clock
        self._steady = steady
        self._by_wall = Wheel()
        self._by_steady = Wheel()

    def __len__(self) -> int:
        return len(self._by_wall) + len(self._by_steady)

    def add(self, index: int, wait: Wait) -> None:
        """Note what the message at ``index`` waits for."""
        if wait.relative:
            # The exact difference, not the noticed one: a delay is neither early nor late by what is called no step.
            self._by_steady.add(wait.due + 1 + self._steady.now_ms() - self._clock.now_ms(), index)
        else:
            self._by_wall.add(wait.due, index)

    def take(self, limit: int) -> list[Due]:
        """Up to ``limit`` of each clock that are due, the earliest first; they are gone."""
        wall, steady = self._clock.now_ms(), self._steady.now_ms()
        taken = [(due, index, self._by_wall) for due, index in self._by_wall.take(wall, limit)]
        taken += [(due, index, self._by_steady) for due, index in self._by_steady.take(steady, limit)]
        # The same wall clock for both, so that equal times keep the order in which they were stored.
        shift = steady - wall
        taken.sort(key=lambda one: (one[0] - shift if one[2] is self._by_steady else one[0], one[1]))
        return taken

    @staticmethod
    def put_back(taken: Iterable[Due]) -> None:
        """What was taken waits again."""
        for due, index, wheel in taken:
            wheel.add(due, index)

    def pause(self) -> float | None:
        """Seconds until the next may be due; None when nothing waits."""
        pauses = []
        if (soonest := self._by_wall.next_due()) is not None:
            pauses.append(min(max(1, soonest - self._clock.now_ms()) / 1000, _LONGEST_SLEEP))
        if (soonest := self._by_steady.next_due()) is not None:
            pauses.append(min(max(1, soonest - self._steady.now_ms()) / 1000, _LONGEST_PAUSE))
        return min(pauses, default=None)

    def overdue(self) -> tuple[int, int]:
        """How many are due and not taken, and for how long the first of them has been, ms."""
        found = [wheel.overdue(now) for wheel, now in self._wheels()]
        return sum(count for count, _ in found), max(late for _, late in found)

    async def periods(self, bounds: Sequence[int]) -> list[int]:
        """About how many are due within so many seconds, each period without the one before it.

        :param bounds: ascending, seconds from now.
        """
        counts = [0] * len(bounds)
        for wheel, now in self._wheels():
            for number, (second, count) in enumerate(wheel.seconds(), 1):
                period = bisect_left(bounds, second - now // 1000)
                if period < len(bounds):
                    counts[period] += count
                if not number % _SECONDS_AT_ONCE:
                    await asyncio.sleep(0)
        return counts

    def _wheels(self) -> tuple[tuple[Wheel, int], tuple[Wheel, int]]:
        return (self._by_wall, self._clock.now_ms()), (self._by_steady, self._steady.now_ms())
