"""Offsets: 14, 15, 29, 30, 31, 32, and the admin calls 222, 308, 314 (protocol.md 2.4, 2.10)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "CloneGroupOffsetRequest",
    "GetEarliestMsgStoretimeRequest",
    "GetEarliestMsgStoretimeResponse",
    "GetMaxOffsetRequest",
    "GetMaxOffsetResponse",
    "GetMinOffsetRequest",
    "GetMinOffsetResponse",
    "QueryConsumerOffsetRequest",
    "QueryConsumerOffsetResponse",
    "QueryCorrectionOffsetRequest",
    "ResetOffsetRequest",
    "SearchOffsetRequest",
    "SearchOffsetResponse",
    "UpdateConsumerOffsetRequest",
]


@wire_header
class QueryConsumerOffsetRequest(Header):
    """14 QUERY_CONSUMER_OFFSET."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    set_zero_if_not_found: bool | None = wire("setZeroIfNotFound", default=None)
    bname: str | None = wire("bname", default=None)


@wire_header
class QueryConsumerOffsetResponse(Header):
    """``offset`` is left out with code 22."""

    offset: int | None = wire("offset", default=None, long=True)


@wire_header
class UpdateConsumerOffsetRequest(Header):
    """15 UPDATE_CONSUMER_OFFSET."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    commit_offset: int = wire("commitOffset", long=True)
    bname: str | None = wire("bname", default=None)


@wire_header
class SearchOffsetRequest(Header):
    """29 SEARCH_OFFSET_BY_TIMESTAMP; ``boundary_type`` is ``LOWER`` or ``UPPER`` (5.x)."""

    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    timestamp: int = wire("timestamp", long=True)
    boundary_type: str | None = wire("boundaryType", default=None)
    bname: str | None = wire("bname", default=None)


@wire_header
class SearchOffsetResponse(Header):
    offset: int = wire("offset", long=True)


@wire_header
class GetMaxOffsetRequest(Header):
    """30 GET_MAX_OFFSET; ``committed`` is 5.x's."""

    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    committed: bool | None = wire("committed", default=None)
    bname: str | None = wire("bname", default=None)


@wire_header
class GetMaxOffsetResponse(Header):
    offset: int = wire("offset", long=True)


@wire_header
class GetMinOffsetRequest(Header):
    """31 GET_MIN_OFFSET."""

    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    bname: str | None = wire("bname", default=None)


@wire_header
class GetMinOffsetResponse(Header):
    offset: int = wire("offset", long=True)


@wire_header
class GetEarliestMsgStoretimeRequest(Header):
    """32 GET_EARLIEST_MSG_STORETIME."""

    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    bname: str | None = wire("bname", default=None)


@wire_header
class GetEarliestMsgStoretimeResponse(Header):
    """Milliseconds; -1 without a message."""

    timestamp: int = wire("timestamp", long=True)


@wire_header
class ResetOffsetRequest(Header):
    """222 INVOKE_BROKER_TO_RESET_OFFSET and 220 RESET_CONSUMER_CLIENT_OFFSET; timestamp -1 means the maximum."""

    topic: str = wire("topic")
    group: str = wire("group")
    timestamp: int = wire("timestamp", default=0, long=True)
    is_force: bool = wire("isForce", default=False)
    queue_id: int | None = wire("queueId", default=None)
    offset: int | None = wire("offset", default=None, long=True)
    bname: str | None = wire("bname", default=None)


@wire_header
class QueryCorrectionOffsetRequest(Header):
    """308 QUERY_CORRECTION_OFFSET; ``filter_groups`` joined by ","."""

    filter_groups: str | None = wire("filterGroups", default=None)
    compare_group: str = wire("compareGroup")
    topic: str = wire("topic")
    bname: str | None = wire("bname", default=None)


@wire_header
class CloneGroupOffsetRequest(Header):
    """314 CLONE_GROUP_OFFSET."""

    src_group: str = wire("srcGroup")
    dest_group: str = wire("destGroup")
    topic: str | None = wire("topic", default=None)
    offline: bool = wire("offline", default=False)
