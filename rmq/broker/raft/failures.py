"""The failures after which a member begins anew: how many there were, and whether one lasts."""

from __future__ import annotations

import logging

from rmq.broker.store import refusal
from rmq.broker.store.trouble import Trouble
from rmq.runtime.world import Clock

__all__ = ["AGAIN", "Failures"]

log = logging.getLogger(__name__)

#: Seconds until a member that failed begins anew.
AGAIN = 1.0
#: A failure is over when it has not come again for so many seconds.
_LASTS = 3 * AGAIN


class Failures:
    """Those of one member, since its start."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        #: How many there were.
        self.count = 0
        #: When the last one was, and which.
        self._last = (-_LASTS, "")
        self._trouble = Trouble(
            clock, log, "being a member of the group", "it begins anew; until then it takes part in nothing"
        )

    def failed(self, error: Exception) -> None:
        """There is another one."""
        self.count += 1
        self._last = (self._now(), refusal.told(error) if isinstance(error, OSError) else str(error))
        self._trouble.failed(error)

    def over(self) -> None:
        """It goes on as it should."""
        self._trouble.over()

    @property
    def lasting(self) -> str | None:
        """What keeps it from taking part; None when that is over: while it is not, it fails again within a moment."""
        since, why = self._last
        return why if self._now() - since < _LASTS else None
