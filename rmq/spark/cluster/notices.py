"""Warnings that would come again as long as something is away: each is written once, and again after a while."""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["AGAIN_SECONDS", "Notices"]

log = logging.getLogger(__name__)

#: Seconds after which the same line is written again.
AGAIN_SECONDS = 60.0
#: Lines that are remembered.
_MOST = 1000


class Notices:
    """The lines of one process.

    :param clock: seconds, only going forward.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: dict[str, float] = {}

    def warn(self, line: str) -> None:
        """Write a line unless it was written just now."""
        now = self._clock()
        if now - self._written.get(line, float("-inf")) < AGAIN_SECONDS:
            return
        if len(self._written) >= _MOST:
            self._written.clear()
        self._written[line] = now
        log.warning("%s", line)
