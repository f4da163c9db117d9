"""How fast a slave that catches up gets its backlog while producers send: so fast, and no faster.

Master, slave and producers are three at work, and a machine may have two cores: where two of them are never idle, a
producer's wake-up waits, in the kernel before the loop. So a backlog has a speed, on top of that of producers. A part
of it goes when producers have had their answers, or when the slave says what it has, whichever finds that it is due:
timers are too coarse for that. A slave that is near takes its parts one by one, and both take one core together. One
that is further away cannot say in time what it has: it gets what is due once a millisecond. Slaves that catch up at the
same time share the speed: one that takes less leaves the rest to the others.
"""

from __future__ import annotations

__all__ = ["Pace", "Speed"]

#: Bytes a second, and how many of them may come late, together.
_SPEED = 200 << 20
_BURST = 256 << 10
#: Bytes that producers have added and that come on top, at most: what they add while a slave reads nothing is its
#: backlog.
_MOST_ADDED = 2 << 20
#: Bytes that a slave has been sent and has not acknowledged, where it can do so in time; and the seconds for that. It
#: is one turn's: master and slave work by turns then, and leave a core to producers.
_WINDOW = 64 << 10
_REST = 0.001


class Speed:
    """What all of them get together."""

    def __init__(self) -> None:
        #: Bytes that are due, as of some time; less than 0 are too many that were sent.
        self.due = 0.0
        self._at = 0.0

    def count(self, now: float) -> None:
        """Time has passed."""
        self.due = max(self.due, min(self.due + (now - self._at) * _SPEED, _BURST))
        self._at = now


class Pace:
    """Of one slave. Times are monotonic seconds."""

    def __init__(self, speed: Speed) -> None:
        self._speed = speed
        #: What producers have added and was not sent; where the log ended when it was counted, -1 before that.
        self._added = 0
        self._end = -1
        #: It goes on whatever the slave says, until nothing is due.
        self._anyhow = False
        #: How long the loop was kept since the last rest, and until when it rests for that.
        self._kept = 0.0
        self._until = 0.0

    def on_sent(self, size: int, unheard: int, end: int, now: float, kept: float) -> float:
        """A turn's part of a backlog is on its way, which goes on.

        :param unheard: bytes that were sent and are not acknowledged.
        :param end: where the log ends.
        :param kept: seconds for which the loop was kept.
        :returns: the seconds to wait before it goes on, unless :meth:`may_go_on` says that it can sooner.
        """
        self._count(end, now)
        added = min(size, self._added)
        self._added -= added
        self._speed.due -= size - added
        due = self._added + self._speed.due
        self._kept += kept
        if due > 0 and (self._anyhow or unheard < _WINDOW):
            return 0.0
        self._anyhow = False
        # A machine that is slow at it has the loop for itself for half of the time, too.
        kept, self._kept = self._kept, 0.0
        self._until = now + kept
        return max(_REST, kept, -due / _SPEED)

    def may_go_on(self, unheard: int, end: int, now: float) -> bool:
        """Whether a backlog that rests can go on: the slave has acknowledged something, or producers have answers."""
        if unheard >= _WINDOW or now < self._until:
            return False
        self._count(end, now)
        return self._added + self._speed.due > 0

    def on_rested(self, end: int, now: float) -> None:
        """The time is over, and nobody has said that it may go on."""
        self._count(end, now)
        self._anyhow = True

    def on_through(self) -> None:
        """There is no backlog: the next one begins anew."""
        self._kept = 0.0
        self._added = 0
        self._anyhow = False
        self._end = -1

    def on_free(self) -> None:
        """There is nobody to rest for: nothing that was sent was too much."""
        self.on_through()
        self._speed.due = max(self._speed.due, 0.0)

    def _count(self, end: int, now: float) -> None:
        self._speed.count(now)
        if end > self._end >= 0:  # what producers add makes no backlog longer
            self._added = min(self._added + end - self._end, _MOST_ADDED)
        self._end = end
