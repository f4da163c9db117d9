"""What the log says while a group takes no messages: soon after that begins, and once a minute as long as it lasts."""

from __future__ import annotations

import logging

from rmq.runtime.world import Clock

__all__ = ["Leaderless"]

log = logging.getLogger(__name__)

#: Seconds between two lines.
_PAUSE = 60.0
#: An election is over within so many times its timeout, as a rule: before that nothing is said.
_ELECTIONS = 3


class Leaderless:
    """Tells of a group without a leader, by one of its members.

    :param election: seconds of an election's timeout.
    """

    def __init__(self, clock: Clock, election: float) -> None:
        self._clock = clock
        self._after = _ELECTIONS * election
        self._since: float | None = None
        self._told = 0.0

    def look(self, why: str | None) -> None:
        """Say it, when it is time.

        :param why: nobody leads, or this member has no place in the group; None while somebody leads.
        """
        now = self._clock.monotonic()
        if why is None:
            self._since = None
            return
        if self._since is None:
            self._since, self._told = now, now - _PAUSE + self._after
        if now - self._told < _PAUSE:
            return
        self._told = now
        log.warning("no message has been taken here for %.0f s: %s", now - self._since, why)
