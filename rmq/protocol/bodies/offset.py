"""Offset tables: 43, 45, 308, the broadcasting client's local file, OffsetMovedEvent (protocol.md 4.8, 4.14, 7.6)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.queue import MessageQueue

__all__ = [
    "ConsumerOffsetTable",
    "DelayOffsetTable",
    "LocalOffsetTable",
    "OffsetMovedEvent",
    "QueryCorrectionOffsetBody",
]


@body
class ConsumerOffsetTable(Body):
    """43 GET_ALL_CONSUMER_OFFSET and consumerOffset.json (Java: ConsumerOffsetSerializeWrapper).

    ``offset_table`` is ``topic@group`` to queue id to offset; ``data_version`` is 5.x's. ``lmq_offset_table`` is what
    lmqConsumerOffset.json, and 43 of a broker with light queues, have besides: one offset of each pair.
    """

    offset_table: dict[str, dict[int, int]] = member("offsetTable", factory=dict)
    data_version: DataVersion | None = member("dataVersion", default=None)
    lmq_offset_table: dict[str, int] = member("lmqOffsetTable", factory=dict, written=False)


@body
class DelayOffsetTable(Body):
    """45 GET_ALL_DELAY_OFFSET and delayOffset.json: delay level to offset."""

    offset_table: dict[int, int] = member("offsetTable", factory=dict)
    data_version: DataVersion | None = member("dataVersion", default=None)


@body
class QueryCorrectionOffsetBody(Body):
    """308 QUERY_CORRECTION_OFFSET; 9223372036854775807 = the compared group is behind."""

    correction_offsets: dict[int, int] = member("correctionOffsets", factory=dict)


@body
class LocalOffsetTable(Body):
    """offsets.json of a broadcasting client (Java: OffsetSerializeWrapper)."""

    offset_table: dict[MessageQueue, int] = member("offsetTable", factory=dict)


@body
class OffsetMovedEvent(Body):
    """Body of a message in OFFSET_MOVED_EVENT."""

    consumer_group: str = member("consumerGroup", default="")
    message_queue: MessageQueue | None = member("messageQueue", default=None)
    offset_new: int = member("offsetNew", default=0)
    offset_request: int = member("offsetRequest", default=0)
