"""Clients and what a broker asks them: 35, 38, 40, 203, 204, 221, 223, 307, 309 (protocol.md 2.6, 2.9, 2.10)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "ConsumeMessageDirectlyRequest",
    "GetConsumerConnectionListRequest",
    "GetConsumerListByGroupRequest",
    "GetConsumerRunningInfoRequest",
    "GetConsumerStatusRequest",
    "GetProducerConnectionListRequest",
    "NotifyConsumerIdsChangedRequest",
    "UnregisterClientRequest",
]


@wire_header
class UnregisterClientRequest(Header):
    """35 UNREGISTER_CLIENT; a live broker answers 0 even without fields."""

    client_id: str | None = wire("clientID", default=None)
    producer_group: str | None = wire("producerGroup", default=None)
    consumer_group: str | None = wire("consumerGroup", default=None)


@wire_header
class GetConsumerListByGroupRequest(Header):
    """38 GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str = wire("consumerGroup")


@wire_header
class NotifyConsumerIdsChangedRequest(Header):
    """40 NOTIFY_CONSUMER_IDS_CHANGED, from broker to client."""

    consumer_group: str = wire("consumerGroup")


@wire_header
class GetConsumerConnectionListRequest(Header):
    """203 GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str = wire("consumerGroup")


@wire_header
class GetProducerConnectionListRequest(Header):
    """204 GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str = wire("producerGroup")


@wire_header
class GetConsumerStatusRequest(Header):
    """223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS and 221 GET_CONSUMER_STATUS_FROM_CLIENT."""

    topic: str = wire("topic")
    group: str = wire("group")
    client_addr: str | None = wire("clientAddr", default=None)


@wire_header
class GetConsumerRunningInfoRequest(Header):
    """307 GET_CONSUMER_RUNNING_INFO, relayed unchanged by the broker."""

    consumer_group: str = wire("consumerGroup")
    client_id: str = wire("clientId")
    jstack_enable: bool = wire("jstackEnable", default=False)


@wire_header
class ConsumeMessageDirectlyRequest(Header):
    """309 CONSUME_MESSAGE_DIRECTLY; ``msg_id`` is an offset id."""

    consumer_group: str = wire("consumerGroup")
    client_id: str | None = wire("clientId", default=None)
    msg_id: str | None = wire("msgId", default=None)
    broker_name: str | None = wire("brokerName", default=None)
    topic: str | None = wire("topic", default=None)
    topic_sys_flag: int | None = wire("topicSysFlag", default=None)
    group_sys_flag: int | None = wire("groupSysFlag", default=None)
