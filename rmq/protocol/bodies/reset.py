"""Resetting and asking offsets of live consumers: 220, 221, 222, 223 (protocol.md 4.11)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.queue import MessageQueue

__all__ = ["GetConsumerStatusBody", "MessageQueueForC", "ResetOffsetBody", "ResetOffsetBodyForC"]


@body
class ResetOffsetBody(Body):
    """220 and 222, Java's form."""

    offset_table: dict[MessageQueue, int] = member("offsetTable", factory=dict)


@body
class MessageQueueForC(Body):
    broker_name: str = member("brokerName", default="")
    offset: int = member("offset", default=0)
    queue_id: int = member("queueId", default=0)
    topic: str = member("topic", default="")


@body
class ResetOffsetBodyForC(Body):
    """220 for C++ clients: a list. A Java client fails on it, and a C++ client on Java's form."""

    offset_table: list[MessageQueueForC] = member("offsetTable", factory=list)

    @classmethod
    def of(cls, table: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
        return cls([MessageQueueForC(q.broker_name, offset, q.queue_id, q.topic) for q, offset in table.items()])


@body
class GetConsumerStatusBody(Body):
    """221 fills ``message_queue_table``, 223 ``consumer_table`` (client id to queue to offset)."""

    consumer_table: dict[str, dict[MessageQueue, int]] = member("consumerTable", factory=dict)
    message_queue_table: dict[MessageQueue, int] = member("messageQueueTable", factory=dict)
