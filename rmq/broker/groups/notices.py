"""When members of a group are told that it changed: soon, but a crowd that comes at once is not told once a member.

A thousand joins would be half a million notices. A group is told at once; the more members it has, the longer it is
left alone after that, and what changed meanwhile is one notice more. Members are told some a turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import Clock

__all__ = ["Notices", "Tell"]

#: Told a group's name and members to tell.
Tell = Callable[[str, "list[Conn]"], None]

#: Members told before the loop gets its turn: each is a write to a socket.
_PER_TURN = 200
#: A group with more members is left alone for a while, so that it is told to so many members a second.
_CROWD = 100
_PER_SECOND = 5_000


class Notices:
    """Groups that changed and were not told yet.

    :param members: the connections of a group; empty when it is gone.
    :param tell: sends the notices.
    """

    def __init__(self, clock: Clock, members: Callable[[str], list[Conn]], tell: Tell) -> None:
        self._clock = clock
        self._members = members
        self._tell = tell
        self._changed: dict[str, None] = {}
        # Crowds that were told a moment ago: when they may be told again, monotonic seconds.
        self._quiet: dict[str, float] = {}
        self._group = ""
        self._left: list[Conn] = []
        self._timer: asyncio.Handle | None = None

    def changed(self, group: str) -> None:
        """The members of a group, or its topics, are others now."""
        self._changed[group] = None
        if self._timer is None or isinstance(self._timer, asyncio.TimerHandle):
            self._arm(0.0)

    def _arm(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._turn) if seconds > 0 else loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._timer = None
        room = _PER_TURN
        wait: float | None = None
        while room > 0:
            if not self._left:
                wait = self._next()
                if wait is None or wait > 0:
                    break
                wait = None
            part, self._left = self._left[:room], self._left[room:]
            room -= len(part)
            self._tell(self._group, part)
        else:
            wait = 0.0
        if wait is not None:
            self._arm(wait)

    def _next(self) -> float | None:
        """Take up the next group that may be told: 0; else the seconds until one may, or None."""
        now = self._clock.monotonic()
        soonest: float | None = None
        for group in list(self._changed):
            pause = self._quiet.get(group, now) - now
            if pause > 0:
                soonest = pause if soonest is None else min(soonest, pause)
                continue
            del self._changed[group]
            self._quiet.pop(group, None)
            self._left = self._members(group)
            if self._left:
                self._group = group
                if len(self._left) > _CROWD:
                    self._quiet = {name: until for name, until in self._quiet.items() if until > now}
                    self._quiet[group] = now + len(self._left) / _PER_SECOND
                return 0.0
        return soonest
