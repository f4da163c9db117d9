"""How fast a slave that catches up gets its backlog while producers send: in bursts, with rests between them.

Master, slave and producers are three at work, and a machine may have two cores: one that is never idle keeps a
producer's wake-up waiting, in the kernel before the loop. A slave behind its master is as busy as it is given bytes, so
that these rests are its own, too.
"""

from __future__ import annotations

__all__ = ["Pace"]

#: Bytes of a burst, sent turn by turn, and the seconds that follow: some 240 MiB a second.
_BURST = 256 << 10
_REST = 0.001


class Pace:
    """Of one slave. Times are monotonic seconds."""

    def __init__(self) -> None:
        #: Bytes since it rested last, and how long the loop was kept for them.
        self._sent = 0
        self._kept = 0.0

    def on_sent(self, size: int, kept: float) -> float:
        """A turn's part of a backlog is on its way, which goes on; the seconds to wait before that, mostly 0.

        A machine that is slow at it has the loop for itself for half of the time, too.

        :param kept: seconds for which the loop was kept.
        """
        self._sent += size
        self._kept += kept
        if self._sent < _BURST:
            return 0.0
        rest = max(_REST, self._kept)
        self.on_through()
        return rest

    def on_through(self) -> None:
        """There is no backlog, or nobody to rest for: the next one begins with a burst."""
        self._sent = 0
        self._kept = 0.0
