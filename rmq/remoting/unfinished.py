"""Frames that have not come whole, counted over all connections, and the peers that wait until there is room for more.

A frame that comes in one piece is never counted, nor is the beginning of one up to ``unfinished_noted``, so that small
requests are served whatever others send. A connection that holds more is read on until it holds its share: a 32nd of
what is left of the bound for all. Beyond its share it is not read until others are done. So that they all come to an
end, the one that waits longest is read on at any size, one at a time. While somebody waits and the most part of the
bound is taken, those who are read and whose frames come too slowly are closed, the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.remoting.conn import Conn
    from rmq.remoting.limits import Limits

__all__ = ["Unfinished"]

#: The part of what is left that one connection may hold.
_PARTS = 32
#: How much faster than ``partial_rate`` a frame must come while others wait.
_HASTE = 16


class Unfinished:
    """The accounts of one endpoint.

    :param limits: ``unfinished``, ``unread_seconds`` and ``partial_rate`` are looked at.
    :param now: monotonic seconds.
    """

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        #: Bytes held by connections that are counted.
        self.total = 0
        #: Connections that are counted, the longest counted first.
        self.holding: dict[Conn, None] = {}
        #: Those of them that are not read, the longest waiting first.
        self.waiting: dict[Conn, None] = {}
        #: Connections closed to make room since start.
        self.closed = 0
        # Is read on beyond its share.
        self._extra: Conn | None = None

    def _share(self) -> int:
        return max(0, self._limits.unfinished - self.total) // _PARTS

    def note(self, conn: Conn, size: int) -> None:
        """A connection holds ``size`` bytes of a frame: count them, and stop reading it beyond its share."""
        self.total += size - self._count(conn, size)
        if size <= self._share() or conn is self._extra:
            return
        if self._extra is None:
            self._extra = conn
        else:
            self.waiting[conn] = None
            conn._pause()

    def _count(self, conn: Conn, size: int) -> int:
        """Keep what a connection holds now; what it held before."""
        before, conn.held = conn.held, size
        if not before:
            self.holding[conn] = None
        return before

    def forget(self, conn: Conn) -> None:
        """The frame of a counted connection is whole, or will never be."""
        self.total -= conn.held
        conn.held = 0
        del self.holding[conn]
        self.waiting.pop(conn, None)
        if conn is self._extra:
            self._extra = None
        self._read_on()

    def _read_on(self) -> None:
        """Read those on for whom there is room, the longest waiting first."""
        while self.waiting:
            conn = next(iter(self.waiting))
            if conn.held > self._share():
                if self._extra is not None:
                    return
                self._extra = conn
            del self.waiting[conn]
            conn._since = self._now()  # until now it was we who did not read
            conn._resume()

    def sweep(self) -> list[Conn]:
        """Once a second: which connections have to be closed so that others are read."""
        if not self.waiting:
            return []
        limits = self._limits
        now = self._now()
        left = self.total
        stuck: list[Conn] = []
        for conn in self.holding:
            if left <= limits.unfinished // 2 and self._extra is not conn:
                continue
            if conn in self.waiting:
                continue
            if now - conn._since > limits.unread_seconds + conn.held / (_HASTE * limits.partial_rate):
                stuck.append(conn)
                left -= conn.held
        self.closed += len(stuck)
        return stuck
