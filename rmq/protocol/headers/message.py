"""Looking messages up: 12, 33, 321 and 5.x 370 (protocol.md 2.5, 2.10, 2.13)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "QueryConsumeQueueRequest",
    "QueryMessageRequest",
    "QueryMessageResponse",
    "RecallMessageRequest",
    "RecallMessageResponse",
    "ViewMessageRequest",
]


@wire_header
class QueryMessageRequest(Header):
    """12 QUERY_MESSAGE; the unique-key mark stands beside Java's header class."""

    topic: str = wire("topic")
    key: str = wire("key")
    max_num: int = wire("maxNum")
    begin_timestamp: int = wire("beginTimestamp", long=True)
    end_timestamp: int = wire("endTimestamp", long=True)
    unique_key_query: bool | None = wire("_UNIQUE_KEY_QUERY", default=None)


@wire_header
class QueryMessageResponse(Header):
    index_last_update_timestamp: int = wire("indexLastUpdateTimestamp", long=True)
    index_last_update_phyoffset: int = wire("indexLastUpdatePhyoffset", long=True)


@wire_header
class ViewMessageRequest(Header):
    """33 VIEW_MESSAGE_BY_ID: the physical offset out of an offset id; ``topic`` is 5.x's."""

    offset: int = wire("offset", long=True)
    topic: str | None = wire("topic", default=None)


@wire_header
class QueryConsumeQueueRequest(Header):
    """321 QUERY_CONSUME_QUEUE."""

    topic: str | None = wire("topic", default=None)
    queue_id: int = wire("queueId", default=0)
    index: int = wire("index", default=0, long=True)
    count: int = wire("count", default=0)
    consumer_group: str | None = wire("consumerGroup", default=None)


@wire_header
class RecallMessageRequest(Header):
    """370 RECALL_MESSAGE (5.x)."""

    producer_group: str | None = wire("producerGroup", default=None)
    topic: str = wire("topic")
    recall_handle: str = wire("recallHandle")


@wire_header
class RecallMessageResponse(Header):
    msg_id: str = wire("msgId")
