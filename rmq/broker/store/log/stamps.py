"""Store times: they do not go back with every hesitation of the clock, and do not stay with one that was far ahead.

Searches by time count on times that ascend. A clock that is set back by seconds is waited for: meanwhile messages get
the newest time there is. After a clock that was ahead for longer, an hour or a year, store times follow it back, and
the place in the commit log is kept: from there on they ascend anew.
"""

from __future__ import annotations

from typing import Final

__all__ = ["AHEAD_MS", "MOST_STEPS", "Steps", "stamped"]

#: How far store times may be ahead of the clock.
AHEAD_MS: Final = 60_000
#: Places that are kept; older ones are forgotten when there are more.
MOST_STEPS: Final = 32


def stamped(now_ms: int, newest: int) -> int:
    """The store time of a message that is stored now.

    :param now_ms: wall clock.
    :param newest: store time of the newest record, ms.
    """
    return newest if now_ms < newest <= now_ms + AHEAD_MS else now_ms


class Steps:
    """Offsets of the commit log at which store times went back; kept in the checkpoint."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def add(self, offset: int) -> None:
        """The record at ``offset`` is older than the one before it."""
        self.offsets = [*(known for known in self.offsets if known < offset), offset][-MOST_STEPS:]

    def forget(self, start: int, end: int) -> None:
        """Keep those of a log from ``start`` to ``end``."""
        self.offsets = [offset for offset in self.offsets if start < offset < end]
