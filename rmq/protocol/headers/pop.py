"""5.x's pop consumption: 200050 to 200056 (protocol.md 2.13)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "AckMessageRequest",
    "ChangeInvisibleTimeRequest",
    "ChangeInvisibleTimeResponse",
    "NotificationRequest",
    "NotificationResponse",
    "PeekMessageRequest",
    "PollingInfoRequest",
    "PollingInfoResponse",
    "PopMessageRequest",
    "PopMessageResponse",
]


@wire_header
class PopMessageRequest(Header):
    """200050 POP_MESSAGE: queue -1 = any; times in ms; ``init_mode`` 0 = from the minimum, 1 = from the maximum."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    max_msg_nums: int = wire("maxMsgNums")
    invisible_time: int = wire("invisibleTime", long=True)
    poll_time: int = wire("pollTime", long=True)
    born_time: int = wire("bornTime", long=True)
    init_mode: int = wire("initMode")
    exp_type: str | None = wire("expType", default=None)
    exp: str | None = wire("exp", default=None)
    order: bool | None = wire("order", default=None)
    attempt_id: str | None = wire("attemptId", default=None)
    bname: str | None = wire("bname", default=None)


@wire_header
class PopMessageResponse(Header):
    pop_time: int = wire("popTime", default=0, long=True)
    invisible_time: int = wire("invisibleTime", default=0, long=True)
    revive_qid: int = wire("reviveQid", default=0)
    rest_num: int = wire("restNum", default=0, long=True)
    start_offset_info: str | None = wire("startOffsetInfo", default=None)
    msg_offset_info: str | None = wire("msgOffsetInfo", default=None)
    order_count_info: str | None = wire("orderCountInfo", default=None)


@wire_header
class AckMessageRequest(Header):
    """200051 ACK_MESSAGE."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    extra_info: str = wire("extraInfo")
    offset: int = wire("offset", long=True)
    bname: str | None = wire("bname", default=None)


@wire_header
class PeekMessageRequest(Header):
    """200052 PEEK_MESSAGE."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    max_msg_nums: int = wire("maxMsgNums")
    bname: str | None = wire("bname", default=None)


@wire_header
class ChangeInvisibleTimeRequest(Header):
    """200053 CHANGE_MESSAGE_INVISIBLETIME."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    extra_info: str = wire("extraInfo")
    offset: int = wire("offset", long=True)
    invisible_time: int = wire("invisibleTime", long=True)
    bname: str | None = wire("bname", default=None)


@wire_header
class ChangeInvisibleTimeResponse(Header):
    pop_time: int = wire("popTime", default=0, long=True)
    invisible_time: int = wire("invisibleTime", default=0, long=True)
    revive_qid: int = wire("reviveQid", default=0)


@wire_header
class NotificationRequest(Header):
    """200054 NOTIFICATION."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    poll_time: int = wire("pollTime", long=True)
    born_time: int = wire("bornTime", long=True)
    order: bool | None = wire("order", default=None)
    attempt_id: str | None = wire("attemptId", default=None)
    bname: str | None = wire("bname", default=None)


@wire_header
class NotificationResponse(Header):
    has_msg: bool = wire("hasMsg", default=False)
    polling_full: bool = wire("pollingFull", default=False)


@wire_header
class PollingInfoRequest(Header):
    """200055 POLLING_INFO."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    bname: str | None = wire("bname", default=None)


@wire_header
class PollingInfoResponse(Header):
    polling_num: int = wire("pollingNum", default=0)
