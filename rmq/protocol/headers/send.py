"""Sending: 10, 310, 320, 324, 325 and their answer; 36 send-back (protocol.md 2.2, 2.3)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "ConsumerSendMsgBackRequest",
    "SendMessageRequest",
    "SendMessageResponse",
    "SendMessageV2Request",
]


@wire_header
class SendMessageRequest(Header):
    """10 SEND_MESSAGE, 324 SEND_REPLY_MESSAGE: the long names."""

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
    max_reconsume_times: int | None = wire("maxReconsumeTimes", default=None)
    batch: bool = wire("batch", default=False)
    bname: str | None = wire("bname", default=None)


@wire_header
class SendMessageV2Request(Header):
    """310 SEND_MESSAGE_V2, 320 SEND_BATCH_MESSAGE, 325 SEND_REPLY_MESSAGE_V2: the same fields under one letter each."""

    producer_group: str = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c")
    default_topic_queue_nums: int = wire("d")
    queue_id: int = wire("e")
    sys_flag: int = wire("f")
    born_timestamp: int = wire("g", long=True)
    flag: int = wire("h")
    properties: str | None = wire("i", default=None)
    reconsume_times: int | None = wire("j", default=None)
    unit_mode: bool = wire("k", default=False)
    max_reconsume_times: int | None = wire("l", default=None)
    batch: bool = wire("m", default=False)
    bname: str | None = wire("n", default=None)


@wire_header
class SendMessageResponse(Header):
    """What a stored message is answered with, whatever the request's form.

    ``msg_id`` is the offset id (a batch: all of them joined by ","). The region and the trace switch stand beside
    it in Java, outside its header class.
    """

    msg_id: str = wire("msgId")
    queue_id: int = wire("queueId")
    queue_offset: int = wire("queueOffset", long=True)
    transaction_id: str | None = wire("transactionId", default=None)
    batch_uniq_id: str | None = wire("batchUniqId", default=None)
    recall_handle: str | None = wire("recallHandle", default=None)
    msg_region: str | None = wire("MSG_REGION", default=None)
    trace_on: str | None = wire("TRACE_ON", default=None)


@wire_header
class ConsumerSendMsgBackRequest(Header):
    """36 CONSUMER_SEND_MSG_BACK; ``offset`` is the failed message's physical offset."""

    offset: int = wire("offset", long=True)
    group: str = wire("group")
    delay_level: int = wire("delayLevel")
    origin_msg_id: str | None = wire("originMsgId", default=None)
    origin_topic: str | None = wire("originTopic", default=None)
    unit_mode: bool = wire("unitMode", default=False)
    max_reconsume_times: int | None = wire("maxReconsumeTimes", default=None)
    bname: str | None = wire("bname", default=None)
