"""Parked pulls: long polling (store-and-broker.md 3.8).

A pull that found nothing waits on its queue. An arrival wakes exactly the holds of that queue, after the tick's answers
and at most 64 at a time; a deadline answers a hold that nothing woke. A hold that waits costs nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from rmq.protocol.command import SerializeType

if TYPE_CHECKING:
    from rmq.broker.delivery.filtering import Filter
    from rmq.broker.lane.hot_frames import PullFields
    from rmq.broker.store.state import Queue
    from rmq.protocol.permissions import Grant
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import Clock

__all__ = ["Hold", "Holds", "Pull"]

#: Woken pulls served before the loop gets its turn.
_PER_TURN = 64
#: Characters of an expression for which a parked request counts as one more: what is made of it, a set of tags, is kept
#: with the request.
_EXPRESSION = 512


def weight(expression: str | None) -> int:
    """For how many parked requests one counts that brings its own expression."""
    return 1 + len(expression or "") // _EXPRESSION


class Pull(NamedTuple):
    """Who pulls what."""

    conn: Conn
    opaque: int
    fields: PullFields
    serialize: SerializeType
    #: When it was read, monotonic seconds.
    began: float
    #: What its sender may do, with access control.
    grant: Grant | None = None


class Hold:
    """One parked pull."""

    __slots__ = ("conn", "done", "next_offset", "pull", "queue", "refused", "waits", "wants", "weight")

    def __init__(self, pull: Pull, queue: Queue, wants: Filter) -> None:
        self.conn = pull.conn
        #: Answers from the hold queue are always JSON (protocol.md 1.1).
        self.pull = pull._replace(serialize=SerializeType.JSON)
        self.queue = queue
        self.wants = wants
        self.weight = weight(pull.fields.subscription)
        #: Where the scan goes on: behind what the filter has refused so far.
        self.next_offset = pull.fields.queue_offset
        self.refused = False
        #: It was woken, and waits until its peer takes what it was answered before.
        self.waits = False
        self.done = False


class Holds:
    """All parked pulls of a broker.

    :param clock: monotonic deadlines.
    :param retry: serves a woken hold again; returns False when it stays parked. Neither it nor
    :param expired: which answers a hold whose time is up, may raise.
    """

    def __init__(self, clock: Clock, retry: Callable[[Hold], bool], expired: Callable[[Hold], None]) -> None:
        self._clock = clock
        self._retry = retry
        self._expired = expired
        self._deadlines: list[tuple[float, int, Hold]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        #: Queues with news, and how many of their holds have not been looked at since.
        self._woken: dict[Queue, int] = {}
        self._scheduled = False
        self._by_conn: dict[Conn, set[Hold]] = {}
        self._closed = False
        self.count = 0
        #: What they count for, of all and of each connection.
        self.weight = 0
        self._weights: Counter[Conn] = Counter()

    def has_room(self, hold: Hold, most: int, most_of_one: int) -> bool:
        """Whether one more pull of a connection may wait; its first may, whatever it counts for."""
        weights = self._weights.get(hold.conn, 0) + hold.weight
        return self.weight + 1 <= most and (weights <= most_of_one or weights == hold.weight)

    def park(self, hold: Hold, seconds: float) -> None:
        """Keep a pull until its queue gets a message, or ``seconds`` have passed."""
        queue = hold.queue
        if queue.holds is None:
            queue.holds = []
        queue.holds.append(hold)
        self.count += 1
        self.weight += hold.weight
        self._weights[hold.conn] += hold.weight
        held = self._by_conn.get(hold.conn)
        if held is None:
            held = self._by_conn[hold.conn] = set()
        held.add(hold)
        deadline = self._clock.monotonic() + seconds
        self._sequence += 1
        heapq.heappush(self._deadlines, (deadline, self._sequence, hold))
        if len(self._deadlines) > 2 * self.count + 1024:
            # Most entries are of holds that were answered long ago.
            self._deadlines = [item for item in self._deadlines if not item[2].done]
            heapq.heapify(self._deadlines)
        self._arm()

    def wake(self, queues: Iterable[Queue]) -> None:
        """New messages are visible in these queues."""
        woken = self._woken
        for queue in queues:
            if queue.holds:
                woken[queue] = len(queue.holds)
        if woken and not self._scheduled and not self._closed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        budget = _PER_TURN
        while self._woken and budget > 0:
            queue, left = next(iter(self._woken.items()))
            del self._woken[queue]
            holds = queue.holds
            if not holds:
                continue
            size = min(budget, left)
            take, queue.holds = holds[:size], holds[size:] or None
            budget -= size
            stay = [hold for hold in take if not hold.done and not self._served(hold)]
            if stay:
                # Behind those not looked at yet, so that each gets its turn.
                queue.holds = (queue.holds or []) + stay
            if left > size:
                self._woken[queue] = left - size
        if self._woken:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _served(self, hold: Hold) -> bool:
        if hold.conn.closed or self._retry(hold):
            self._forget(hold)
            return True
        return False

    def _forget(self, hold: Hold) -> None:
        if hold.done:
            return
        hold.done = True
        self.count -= 1
        self.weight -= hold.weight
        self._weights[hold.conn] -= hold.weight
        held = self._by_conn.get(hold.conn)
        if held is not None:
            held.discard(hold)
            if not held:
                del self._by_conn[hold.conn]
                del self._weights[hold.conn]

    def unpark(self, hold: Hold) -> None:
        """A hold is answered, or is about to be."""
        holds = hold.queue.holds
        if holds and hold in holds:
            holds.remove(hold)
            if not holds:
                hold.queue.holds = None
        self._forget(hold)

    def drop(self, conn: Conn) -> None:
        """A connection is gone, and with it whoever waited for its pulls."""
        for hold in list(self._by_conn.get(conn, ())):
            self.unpark(hold)

    def release(self, which: Callable[[Hold], bool]) -> None:
        """Answer holds before their time (a topic or a permission changed)."""
        for held in list(self._by_conn.values()):
            for hold in [hold for hold in held if which(hold)]:
                self.unpark(hold)
                self._expired(hold)

    def close(self) -> None:
        """Answer everything that is parked: the broker stops."""
        self._closed = True
        self.release(lambda hold: True)
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if not self._deadlines or self._closed:
            return
        at = self._deadlines[0][0]
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - self._clock.monotonic()), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        budget = _PER_TURN
        try:
            while self._deadlines and budget > 0 and self._deadlines[0][0] <= now:
                _, _, hold = heapq.heappop(self._deadlines)
                if hold.done:
                    continue
                budget -= 1
                self.unpark(hold)
                if not hold.conn.closed:
                    self._expired(hold)
        finally:
            self._arm()  # one that cannot be answered does not keep the others parked
