"""Topics on a broker: 17, 215, 202, 300 and 5.x 351 (protocol.md 2.10, 2.13)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "CreateTopicRequest",
    "DeleteTopicRequest",
    "GetTopicConfigRequest",
    "GetTopicStatsInfoRequest",
    "QueryTopicConsumeByWhoRequest",
]


@wire_header
class CreateTopicRequest(Header):
    """17 UPDATE_AND_CREATE_TOPIC."""

    topic: str = wire("topic")
    default_topic: str | None = wire("defaultTopic", default=None)
    read_queue_nums: int = wire("readQueueNums")
    write_queue_nums: int = wire("writeQueueNums")
    perm: int = wire("perm")
    topic_filter_type: str = wire("topicFilterType", default="SINGLE_TAG")
    topic_sys_flag: int | None = wire("topicSysFlag", default=None)
    order: bool = wire("order", default=False)
    attributes: str | None = wire("attributes", default=None)
    force: bool | None = wire("force", default=None)
    bname: str | None = wire("bname", default=None)


@wire_header
class DeleteTopicRequest(Header):
    """215 DELETE_TOPIC_IN_BROKER."""

    topic: str = wire("topic")
    bname: str | None = wire("bname", default=None)


@wire_header
class GetTopicStatsInfoRequest(Header):
    """202 GET_TOPIC_STATS_INFO."""

    topic: str = wire("topic")
    bname: str | None = wire("bname", default=None)


@wire_header
class QueryTopicConsumeByWhoRequest(Header):
    """300 QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str = wire("topic")
    bname: str | None = wire("bname", default=None)


@wire_header
class GetTopicConfigRequest(Header):
    """351 GET_TOPIC_CONFIG (5.x)."""

    topic: str = wire("topic")
    lo: bool | None = wire("lo", default=None)
    bname: str | None = wire("bname", default=None)
