"""Subscription groups and their figures: 207, 208, 303, 317 and 5.x 343, 345, 352, 353 (protocol.md 2.10, 2.13)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "DeleteSubscriptionGroupRequest",
    "GetConsumeStatsInBrokerRequest",
    "GetConsumeStatsRequest",
    "GetSubscriptionGroupConfigRequest",
    "QueryConsumeTimeSpanRequest",
    "QuerySubscriptionByConsumerRequest",
    "QueryTopicsByConsumerRequest",
    "UpdateGroupForbiddenRequest",
]


@wire_header
class DeleteSubscriptionGroupRequest(Header):
    """207 DELETE_SUBSCRIPTIONGROUP; 5.x names the flag ``cleanOffset``."""

    group_name: str = wire("groupName")
    remove_offset: bool = wire("removeOffset", default=False, also=("cleanOffset",))


@wire_header
class GetConsumeStatsRequest(Header):
    """208 GET_CONSUME_STATS; ``topic_list`` is 5.x's."""

    consumer_group: str = wire("consumerGroup")
    topic: str | None = wire("topic", default=None)
    topic_list: str | None = wire("topicList", default=None)


@wire_header
class GetConsumeStatsInBrokerRequest(Header):
    """317 GET_BROKER_CONSUME_STATS."""

    is_order: bool = wire("isOrder", default=False)


@wire_header
class QueryConsumeTimeSpanRequest(Header):
    """303 QUERY_CONSUME_TIME_SPAN."""

    topic: str = wire("topic")
    group: str = wire("group")


@wire_header
class QueryTopicsByConsumerRequest(Header):
    """343 QUERY_TOPICS_BY_CONSUMER (5.x)."""

    group: str = wire("group")


@wire_header
class QuerySubscriptionByConsumerRequest(Header):
    """345 QUERY_SUBSCRIPTION_BY_CONSUMER (5.x)."""

    group: str = wire("group")
    topic: str | None = wire("topic", default=None)


@wire_header
class GetSubscriptionGroupConfigRequest(Header):
    """352 GET_SUBSCRIPTIONGROUP_CONFIG (5.x)."""

    group: str = wire("group")


@wire_header
class UpdateGroupForbiddenRequest(Header):
    """353 UPDATE_AND_GET_GROUP_FORBIDDEN (5.x)."""

    group: str = wire("group")
    topic: str = wire("topic")
    readable: bool | None = wire("readable", default=None)
