"""A wall clock that does not step, so that a delay lasts as long as was asked for."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.runtime.world import Clock

__all__ = ["Shifts", "SteadyClock"]

log = logging.getLogger(__name__)

#: Differences up to this, ms, are rounding and slewing; what is larger is a step.
_STEP_MS = 5
#: What is worth a line in the log.
_LOGGED_MS = 1_000


class SteadyClock:
    """The wall clock's time at start, carried on by the monotonic clock.

    Delivery times are stored in wall-clock time, for a restart. While the process runs, relative delays are compared
    with this clock: the wall clock may be set back or forward without an early or a very late delivery.
    """

    __slots__ = ("_base", "_clock", "_offset", "on_step")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A millisecond behind: rounding must not make a delay short.
        self._base = clock.now_ms() - clock.monotonic() * 1000 - 1
        self._offset = 0
        #: Called after a step was noticed.
        self.on_step: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        return int(self._base + self._clock.monotonic() * 1000)

    def offset(self) -> int:
        """What has to be added to a wall-clock time read now, ms; asked for often, it notices steps."""
        offset = self.now_ms() - self._clock.now_ms()
        if abs(offset - self._offset) > _STEP_MS:
            if abs(offset - self._offset) >= _LOGGED_MS:
                log.warning(
                    "the wall clock was set %s by %.1f s; delays that run already keep their length",
                    "back" if offset > self._offset else "forward",
                    abs(offset - self._offset) / 1000,
                )
            self._offset = offset
            for listener in self.on_step:
                listener()
        return self._offset


class Shifts:
    """By how much the stored delivery times of one queue differ from the steady clock, by index.

    A message carries wall-clock time as it was when the message was stored; each step of the wall clock begins a
    stretch of the queue with another difference.
    """

    __slots__ = ("_begins", "_capped", "_latest", "_offsets")

    def __init__(self) -> None:
        self._begins = [0]
        self._offsets = [0]
        self._capped = 0
        self._latest = 0

    def begin(self, index: int, offset: int) -> None:
        """Messages from ``index`` on are stored by a clock that is ``offset`` ms behind the steady one."""
        if self._begins[-1] == index:
            self._offsets[-1] = offset
        else:
            self._begins.append(index)
            self._offsets.append(offset)

    def forget(self, index: int) -> None:
        """Nothing before ``index`` is asked for any more."""
        gone = bisect_right(self._begins, index) - 1
        if gone > 0:
            del self._begins[:gone], self._offsets[:gone]

    def cap(self, end: int, latest: int) -> None:
        """No message before index ``end`` waits longer than until ``latest``."""
        if end > self._capped:
            self._capped, self._latest = end, latest

    def due(self, index: int, deliver_at: int) -> int:
        """When a message is due by the steady clock, ms."""
        due = deliver_at + self._offsets[max(0, bisect_right(self._begins, index) - 1)]
        return min(due, self._latest) if index < self._capped else due
