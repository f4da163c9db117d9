"""Requests that wait for a message to pop: long polling.

An arrival wakes one request of a group; that one, when it leaves something behind, wakes the next. So a message costs
one look, however many wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmq.protocol.pop import pop_retry_topic
from rmq.remoting.latency import polled

if TYPE_CHECKING:
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.state import Queue
    from rmq.remoting.conn import Conn

__all__ = ["PollingFull", "Polls", "Waiter"]

#: Waiting requests of one group on one topic.
_GROUP_LIMIT = 1024


class PollingFull(Exception):
    """No more requests may wait."""


class Waiter:
    """One request that may wait; woken from the moment it was made."""

    __slots__ = ("closed", "conn", "future", "group", "queue_id", "topic", "weight", "woken")

    def __init__(self, conn: Conn, group: str, topic: str, queue_id: int, weight: int = 1) -> None:
        self.conn = conn
        self.group = group
        self.topic = topic
        #: -1 = any.
        self.queue_id = queue_id
        #: For how many it counts.
        self.weight = weight
        self.woken = False
        #: The connection is gone, or the broker stops.
        self.closed = False
        self.future: asyncio.Future[None] | None = None


class Polls:
    """Everything that waits.

    :param settings: the live ones; they bound it.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._waiting: dict[tuple[str, str], dict[Waiter, None]] = {}
        #: A topic of messages to the (group, topic) pairs that wait for them.
        self._of_topic: dict[str, dict[tuple[str, str], None]] = {}
        self._by_conn: dict[Conn, dict[Waiter, None]] = {}
        self._count = 0
        self._weight = 0
        self._weights: Counter[Conn] = Counter()
        self._closed = False

    def __len__(self) -> int:
        return self._count

    def count(self, group: str, topic: str, queue_id: int) -> int:
        """Requests that wait for a queue; -1 those for any."""
        return sum(waiter.queue_id == queue_id for waiter in self._waiting.get((group, topic), ()))

    def enter(self, conn: Conn, group: str, topic: str, queue_id: int, weight: int = 1) -> Waiter:
        """A request that will wait unless it finds something: what arrives from now on wakes it.

        :param weight: for how many it counts; the first of a connection may wait, whatever it counts for.
        :raises PollingFull: too many wait already.
        """
        pair = (group, topic)
        waiting = self._waiting.get(pair)
        settings = self._settings
        weights = self._weights.get(conn, 0) + weight
        if self._weight >= settings.max_held_pulls:
            raise PollingFull
        if weights > settings.max_held_pulls_per_connection and weights != weight:
            raise PollingFull
        if waiting is not None and len(waiting) >= _GROUP_LIMIT:
            raise PollingFull
        waiter = Waiter(conn, group, topic, queue_id, weight)
        waiter.closed = self._closed or conn.closed
        if waiting is None:
            waiting = self._waiting[pair] = {}
            for name in (topic, pop_retry_topic(group, topic)):
                self._of_topic.setdefault(name, {})[pair] = None
        waiting[waiter] = None
        self._by_conn.setdefault(conn, {})[waiter] = None
        self._count += 1
        self._weight += weight
        self._weights[conn] += weight
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """The request is answered."""
        pair = (waiter.group, waiter.topic)
        waiting = self._waiting.get(pair)
        if waiting is None or waiter not in waiting:
            return
        del waiting[waiter]
        self._count -= 1
        self._weight -= waiter.weight
        self._weights[waiter.conn] -= waiter.weight
        if not waiting:
            del self._waiting[pair]
            for name in (waiter.topic, pop_retry_topic(*pair)):
                pairs = self._of_topic[name]
                del pairs[pair]
                if not pairs:
                    del self._of_topic[name]
        of_conn = self._by_conn.get(waiter.conn)
        if of_conn is not None:
            of_conn.pop(waiter, None)
            if not of_conn:
                del self._by_conn[waiter.conn]
                del self._weights[waiter.conn]

    async def wait(self, waiter: Waiter, seconds: float) -> bool:
        """Wait until something may be there; False when the time is up."""
        if waiter.closed:
            return False
        if not waiter.woken:
            polled.set(True)
            loop = asyncio.get_running_loop()
            waiter.future = loop.create_future()
            timer = loop.call_later(max(seconds, 0.0), self._time_up, waiter)
            try:
                await waiter.future
            finally:
                timer.cancel()
                waiter.future = None
        woken, waiter.woken = waiter.woken, False
        return woken and not waiter.closed

    @staticmethod
    def _time_up(waiter: Waiter) -> None:
        if waiter.future is not None and not waiter.future.done():
            waiter.future.set_result(None)

    def arrived(self, queues: Iterable[Queue]) -> None:
        """New messages are visible in these queues."""
        of_topic = self._of_topic
        if not of_topic:
            return
        for queue in queues:
            pairs = of_topic.get(queue.topic)
            if pairs is not None:
                for group, topic in pairs:
                    self.wake(group, topic, queue.id if queue.topic == topic else -1)

    def wake(self, group: str, topic: str, queue_id: int = -1) -> None:
        """Something may be popped.

        :param queue_id: where; -1 = a retry, which whoever asks may have, or not known.
        """
        waiting = self._waiting.get((group, topic))
        if waiting is None:
            return
        for waiter in waiting:
            if queue_id >= 0 and waiter.queue_id not in (-1, queue_id):
                continue
            if waiter.future is None:
                # It is looking right now, perhaps behind the message: it looks again, and others may, too.
                waiter.woken = True
                continue
            if not waiter.woken:
                waiter.woken = True
                if not waiter.future.done():
                    waiter.future.set_result(None)
                return

    def drop(self, conn: Conn) -> None:
        """A connection is gone, and with it whoever waited."""
        for waiter in self._by_conn.get(conn, ()):
            self._close(waiter)

    def close(self) -> None:
        """The broker stops: nobody waits any more."""
        self._closed = True
        self.release()

    def release(self) -> None:
        """Whoever waits now, or is about to, is answered: permissions have changed, and it has to ask anew."""
        for waiting in self._waiting.values():
            for waiter in waiting:
                self._close(waiter)

    @staticmethod
    def _close(waiter: Waiter) -> None:
        waiter.closed = True
        if waiter.future is not None and not waiter.future.done():
            waiter.future.set_result(None)
