"""One voice for what fails again and again: its first failure, a line a minute while it lasts, and its end."""

from __future__ import annotations

import logging

from rmq.broker.store.refusal import told
from rmq.runtime.world import Clock

__all__ = ["Trouble"]

#: Seconds between two lines about one kind of failure.
_PAUSE = 60.0


class Trouble:
    """Something that is tried again and again, and what the log says of it.

    A kind of failure is an error number, or a class of errors. Where tries fail and work by turns, their failures are
    still told once a minute only, and an end only when a failure was told before it.

    :param log: the log of whoever tries.
    :param what: what is tried, with a verb in -ing: ``writing the index``.
    :param meanwhile: what holds until it works.
    """

    __slots__ = (
        "_clock",
        "_failures",
        "_last",
        "_log",
        "_meanwhile",
        "_since",
        "_spoken",
        "_told",
        "_untold",
        "_what",
        "_worked",
    )

    def __init__(self, clock: Clock, log: logging.Logger, what: str, meanwhile: str) -> None:
        self._clock = clock
        self._log = log
        self._what = what
        self._meanwhile = meanwhile
        #: When each kind was told last, and when any was.
        self._told: dict[object, float] = {}
        self._last = 0.0
        #: Failures since the last line.
        self._untold = 0
        #: Failures since it worked last, and since when.
        self._failures = 0
        self._since = 0.0
        self._spoken = False
        #: Whether it has worked since the last line.
        self._worked = False

    def failed(self, error: Exception, where: str = "") -> None:
        """A try failed; told when that is news, or was told a minute ago.

        :param where: named before an error that names no file.
        """
        now = self._clock.monotonic()
        if not self._failures:
            self._since = now
        self._failures += 1
        self._untold += 1
        kind = error.errno if isinstance(error, OSError) else type(error)
        before = self._told.get(kind)
        if before is not None and now - before < _PAUSE:
            return
        how = "fails"
        if self._untold > 1:
            verb = "fails again" if self._worked else "still fails"
            how = f"{verb} ({self._untold} times in {now - self._last:.0f} s)"
        self._told[kind] = self._last = now
        self._untold = 0
        self._worked = False
        self._spoken = True
        reason = told(error, where) if isinstance(error, OSError) else f"{where}: {error}" if where else str(error)
        self._log.error("%s %s: %s; %s", self._what, how, reason, self._meanwhile)

    def over(self) -> None:
        """A try worked."""
        if not self._failures:
            return
        if self._spoken:
            self._log.info(
                "%s works again, after %d failures in %.0f s",
                self._what, self._failures, self._clock.monotonic() - self._since,
            )  # fmt: skip
            self._untold = 0  # that line has counted them
        self._failures = 0
        self._spoken = False
        self._worked = True
