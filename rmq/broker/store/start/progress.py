"""How far something long is: a log line every few seconds, and whoever shows a bar is told as well."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rmq.runtime.world import Clock

__all__ = ["Progress", "SpokenProgress"]

log = logging.getLogger(__name__)

#: Told (what is being done, how much of it is done, of how much); nothing is done any more when that is empty.
Progress = Callable[[str, int, int], None]

_EVERY = 5.0


class SpokenProgress:
    """Called often; says something in the log only when it takes long.

    :param show: a bar, or None.
    """

    def __init__(self, clock: Clock, show: Progress | None = None) -> None:
        self._clock = clock
        self._show = show
        self._what = ""
        self._since = 0.0
        self._said = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        """:param done: bytes of the commit log, of ``total``."""
        if self._show is not None:
            self._show(what, done, total)
        now = self._clock.monotonic()
        if what != self._what:
            self._what = what
            self._since = self._said = now
        elif what and now - self._said >= _EVERY and 0 < done < total:
            self._said = now
            left = (now - self._since) * (total - done) / done
            log.info("%s: %d %% of %.1f GiB, about %.0f s to go", what, 100 * done // total, total / 2**30, left)
