"""Request and reply: 326 (protocol.md 2.9)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = ["ReplyMessageRequest"]


@wire_header
class ReplyMessageRequest(Header):
    """326 PUSH_REPLY_MESSAGE_TO_CLIENT; hosts as ``ip:port``."""

    producer_group: str = wire("producerGroup")
    topic: str = wire("topic")
    default_topic: str = wire("defaultTopic")
    default_topic_queue_nums: int = wire("defaultTopicQueueNums")
    queue_id: int = wire("queueId")
    sys_flag: int = wire("sysFlag")
    born_timestamp: int = wire("bornTimestamp", long=True)
    flag: int = wire("flag")
    properties: str | None = wire("properties", default=None)
    reconsume_times: int | None = wire("reconsumeTimes", default=None)
    unit_mode: bool = wire("unitMode", default=False)
    born_host: str = wire("bornHost")
    store_host: str = wire("storeHost")
    store_timestamp: int = wire("storeTimestamp", default=0, long=True)
