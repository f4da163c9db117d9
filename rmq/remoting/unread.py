"""What peers have not taken of their answers, counted over all connections, and the requests that wait for them to.

A connection owes what its transport could not hand to the kernel. Whoever is about to make an answer of some size asks
:meth:`Unread.has_room` first, and otherwise lets the request wait::

    calm       owes less than ``write_noted``: not counted, served
    owing      counted; served until it owes its share
    congested  owes more than its share: neither read nor served until it has taken nearly everything

The share is a 32nd of what is left of the bound for all, ``write_high`` at most: many who do not read get little each,
and something is left for those who read. Should the bound be reached all the same, then peers who take their answers
at once are served one answer at a time, and those who have not taken what they could in their patience are closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.runtime.aside import logger
from rmq.runtime.loop import return_memory

if TYPE_CHECKING:
    from rmq.remoting.limits import Limits
    from rmq.remoting.outgoing import Outgoing

__all__ = ["Unread"]

log = logger(__name__)

#: The part of what is left that one connection may owe.
_PARTS = 32
#: Requests that wait for room, of all connections together.
_MOST_WAITING = 100_000
#: What one of them counts for in ``owed_bytes``, so that a connection that goes on asking is not read at last.
_WAITING_COST = 4_096
#: Waiting requests served before the loop gets its turn.
_PER_TURN = 64
#: So much was owed that its memory is given back to the system once it is taken, bytes.
_MUCH = 32 << 20
#: Sizes are looked at anew when they seem to be too much, but not before this time has passed, seconds.
_FRESH = 0.01


class Unread:
    """The accounts of one endpoint.

    :param limits: ``unread``, ``write_high``, ``unread_seconds`` and ``partial_rate`` are looked at.
    :param now: monotonic seconds.
    """

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        #: Bytes owed and promised.
        self.total = 0
        #: Connections that owe, the longest owing first.
        self.owing: dict[Outgoing, None] = {}
        #: Requests that wait.
        self.waiting = 0
        #: Connections closed to make room since start.
        self.closed = 0
        self._calls: dict[Outgoing, deque[Callable[[], None]]] = {}
        # Of those with calls the ones that may be served as soon as all together owe less.
        self._turn: dict[Outgoing, None] = {}
        # Was served although the bound was reached, and did not take it all.
        self._extra: Outgoing | None = None
        self._counted = 0.0
        # The most that was seen by a sweep since memory was given back.
        self._peak = 0
        self._serving = False
        self._scheduled = False

    # -- accounts -----------------------------------------------------------------------------------------------

    def begin(self, conn: Outgoing) -> None:
        """The transport of a connection holds more than ``write_noted``."""
        if conn not in self.owing:
            self.owing[conn] = None
            conn.owing = True
            conn.owing_since = self._now()
            conn.given = conn.unsent()
        self.note(conn)

    def note(self, conn: Outgoing) -> None:
        """See what an owing connection owes now."""
        size = conn.unsent()
        self.total += size - conn.unread
        conn.unread = size
        if size > self._share():
            conn.congest()

    def end(self, conn: Outgoing) -> None:
        """A connection has taken nearly everything, or is gone."""
        if conn.owing:
            del self.owing[conn]
            conn.owing = False
            self.total -= conn.unread
            conn.unread = 0
        if conn is self._extra:
            self._extra = None
        self._may_serve(conn)

    def forget(self, conn: Outgoing) -> None:
        """A connection is gone: what waits for it is called, and finds it closed."""
        self.end(conn)
        self._turn.pop(conn, None)
        calls = self._calls.pop(conn, None)
        if calls is not None:
            self.waiting -= len(calls)
            for call in calls:
                try:
                    call()
                except Exception:
                    log.exception("%s: a request that had waited until its peer reads failed", conn.peer)

    def promise(self, conn: Outgoing, size: int) -> None:
        """An answer of about this size is being made: until it is given back with a negative size it counts as owed."""
        conn.promised += size
        self.total += size
        if size < 0:
            if conn is self._extra and not (conn.owing or conn.promised):
                self._extra = None
            self._may_serve(conn)

    def _share(self) -> int:
        return min(self._limits.write_high, max(0, self._limits.unread - self.total) // _PARTS)

    def _recount(self) -> None:
        self._counted = self._now()
        for conn in self.owing:
            size = conn.unsent()
            self.total += size - conn.unread
            conn.unread = size

    # -- room ---------------------------------------------------------------------------------------------------

    def has_room(self, conn: Outgoing) -> bool:
        """Whether an answer of some size may be made for a connection now."""
        if self._serving:
            return True
        if conn.congested or conn in self._calls:
            return False
        return self._fits(conn) or (self._now() - self._counted > _FRESH and self._fits_recounted(conn))

    def _fits(self, conn: Outgoing) -> bool:
        owes = conn.unread + conn.promised
        return self.total < self._limits.unread and (not owes or owes <= self._share())

    def _fits_recounted(self, conn: Outgoing) -> bool:
        self._recount()
        return self._fits(conn)

    def wait(self, conn: Outgoing, call: Callable[[], None]) -> bool:
        """Have ``call`` run once: when there is room for the connection, in turn, or when the connection has ended.

        :returns: False when too many wait already; it is not called then.
        """
        if self.waiting >= _MOST_WAITING:
            return False
        calls = self._calls.get(conn)
        if calls is None:
            calls = self._calls[conn] = deque()
        calls.append(call)
        self.waiting += 1
        conn.owed_bytes += _WAITING_COST
        self._may_serve(conn)
        return True

    def _may_serve(self, conn: Outgoing) -> None:
        if conn in self._calls and not conn.owing:
            self._turn[conn] = None
            self._schedule()
        elif self._turn:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Serve waiting requests: one of each connection in turn."""
        self._scheduled = False
        budget = _PER_TURN
        while self._turn and budget:
            full = self.total >= self._limits.unread
            if full and self._now() - self._counted > _FRESH:
                self._recount()
                continue
            if full and self._extra is not None:
                return  # goes on when somebody takes something, or with the next sweep
            budget -= 1
            conn = next(iter(self._turn))
            del self._turn[conn]
            self._serve(conn)
            if full and (conn.owing or conn.promised):
                self._extra = conn
        if self._turn:
            self._schedule()

    def _serve(self, conn: Outgoing) -> None:
        if conn.promised and not self._fits(conn):
            return  # comes again when what it was promised is made
        calls = self._calls[conn]
        call = calls.popleft()
        self.waiting -= 1
        if not calls:
            del self._calls[conn]
        self._serving = True
        try:
            call()
        except Exception:
            log.exception("%s: closed: a request that had waited until its peer reads failed", conn.peer)
            conn.close("internal error")
        self._serving = False
        conn.settle(_WAITING_COST)
        if conn.out_bytes > self._limits.write_noted:
            conn.flush()  # so that what it does not take is seen before the next one is served
        if conn in self._calls and not conn.owing:
            self._turn[conn] = None

    # -- the sweep ----------------------------------------------------------------------------------------------

    def sweep(self) -> list[Outgoing]:
        """Once a second: take stock, and say which connections have to be closed so that others are served."""
        self._recount()
        self._peak = max(self._peak, self.total)
        if self._peak > _MUCH and self.total < self._peak // 8:
            self._peak = self.total
            return_memory()
        if not self.waiting:
            return []
        limits = self._limits
        now = self._now()
        stuck: list[Outgoing] = []
        for conn in self._calls:
            if conn.owing and not conn.congested and self._fits(conn):
                self._turn[conn] = None
        if self.total >= limits.unread:
            left = self.total
            for conn in self.owing:
                if left <= limits.unread * 3 // 4:
                    break
                taken = conn.given - conn.unread
                if now - conn.owing_since > limits.unread_seconds + taken / limits.partial_rate:
                    stuck.append(conn)
                    left -= conn.unread
            self.closed += len(stuck)
        if self._turn:
            self._schedule()
        return stuck
