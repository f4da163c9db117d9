"""How fast a slave that catches up gets its backlog while producers send: in turns with it, or in bursts with rests.

Master, slave and producers are three at work, and a machine may have two cores: where two of them are never idle, a
producer's wake-up waits, in the kernel before the loop. A slave that is near gets so little that it says what it has
before there is more: one of both works at a time, so that they take one core together. One that is further away cannot
say so in time: it gets bursts, and the rests between them leave the core to producers.
"""

from __future__ import annotations

__all__ = ["Pace"]

#: Bytes that a slave has been sent and has not acknowledged, where it can do so in time.
_WINDOW = 96 << 10
#: Seconds that it has for that; and bytes it gets without: first, and at most, which makes some 240 MiB a second.
_REST = 0.001
_FIRST_BURST = 64 << 10
_BURST = 256 << 10


class Pace:
    """Of one slave. Times are monotonic seconds."""

    def __init__(self) -> None:
        #: Bytes of the last burst, and how many of them are left.
        self._burst = self._left = 0
        #: How long the loop was kept since the last rest, and until when it rests for that.
        self._kept = 0.0
        self._until = 0.0

    def on_sent(self, size: int, unheard: int, now: float, kept: float) -> float:
        """A turn's part of a backlog is on its way, which goes on.

        :param unheard: bytes that were sent and are not acknowledged.
        :param kept: seconds for which the loop was kept.
        :returns: the seconds to wait before it goes on, unless :meth:`on_heard` says that it can sooner; mostly 0.
        """
        self._left -= size
        self._kept += kept
        if unheard < _WINDOW or self._left > 0:
            return 0.0
        # A machine that is slow at it has the loop for itself for half of the time, too.
        kept, self._kept = self._kept, 0.0
        self._until = now + kept
        return max(_REST, kept)

    def on_heard(self, unheard: int, now: float) -> bool:
        """The slave has acknowledged something while its backlog rests; whether that goes on."""
        if unheard >= _WINDOW or now < self._until:
            return False
        self._burst = self._left = 0
        return True

    def on_rested(self) -> None:
        """The time is over, and the slave has not said enough."""
        self._burst = self._left = min(max(2 * self._burst, _FIRST_BURST), _BURST)

    def on_through(self) -> None:
        """There is no backlog, or nobody to rest for: the next one begins anew."""
        self._burst = self._left = 0
        self._kept = 0.0
