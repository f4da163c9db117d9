"""Has a member's node called when it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Alarm"]

#: Seconds, at least: a timer that comes a rounding too early finds nothing due.
_SOONEST = 0.001


class Alarm:
    """One, which rings once for each time that it is set.

    :param now: monotonic seconds.
    :param ring: called then, or before: it sets the alarm anew.
    """

    def __init__(self, now: Callable[[], float], ring: Callable[[], None]) -> None:
        self._now = now
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def set(self, due: float) -> None:
        """Ring then; where it is set to an earlier time, that stays.

        :param due: monotonic seconds.
        """
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_later(max(_SOONEST, due - self._now()), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._ring()

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
