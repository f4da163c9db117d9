"""Sends to topics that are not in topics.json yet: they wait until they are, a few milliseconds.

A message of a topic that a kill takes away is there and cannot be read. Java writes the file before it stores the
message; here many new topics share a write, off the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmq.broker.lane.admit import Ticket
    from rmq.broker.lane.topic_lane import LaneTable
    from rmq.broker.topics.table import TopicTable
    from rmq.protocol.command import Command
    from rmq.remoting.conn import Conn

__all__ = ["NewTopics", "PostponedSend"]

#: What one waiting send takes, bytes, besides its body.
_OVERHEAD = 1024


class PostponedSend(NamedTuple):
    """An admitted send."""

    conn: Conn
    request: Command
    ticket: Ticket
    #: What it counts as owed to the connection, bytes: one that sends on and on is read no further.
    size: int


class NewTopics:
    """Keeps such sends in order.

    :param lanes: where a new topic must have no lane while sends to it wait: the fast branch would pass them by.
    """

    def __init__(self, topics: TopicTable, lanes: LaneTable) -> None:
        self._topics = topics
        self._lanes = lanes
        self._postponed: dict[str, list[PostponedSend]] = {}

    def postpone(self, conn: Conn, request: Command, topic: str, ticket: Ticket) -> bool:
        """Postpone a send when ``topic``, or one that its messages are diverted to, is not in the file.

        :returns: False when it may be stored now.
        """
        unsaved = self._topics.unsaved
        for name in (topic, *(put.queue.topic for put in ticket.puts)):
            if name in unsaved:
                break
        else:
            return False
        self._lanes.forget(topic)
        size = len(request.body) + _OVERHEAD
        conn.owed_bytes += size
        self._postponed.setdefault(name, []).append(PostponedSend(conn, request, ticket, size))
        return True

    def take(self) -> list[PostponedSend]:
        """The sends whose topic has come into the file, or was deleted, in order of arrival by topic."""
        if not self._postponed:
            return []
        unsaved = self._topics.unsaved
        found = []
        for name in [name for name in self._postponed if name not in unsaved]:
            found += self._postponed.pop(name)
        for one in found:
            one.conn.settle(one.size)
        return found
