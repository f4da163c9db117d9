"""Pulling: 11 PULL_MESSAGE and 361 LITE_PULL_MESSAGE (protocol.md 2.4)."""

from __future__ import annotations

from rmq.protocol.header import Header, wire, wire_header

__all__ = ["PullMessageRequest", "PullMessageResponse"]


@wire_header
class PullMessageRequest(Header):
    """11 and 361. What a live broker does without is optional here."""

    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire("queueId")
    queue_offset: int = wire("queueOffset", long=True)
    max_msg_nums: int = wire("maxMsgNums")
    sys_flag: int = wire("sysFlag")
    commit_offset: int = wire("commitOffset", default=0, long=True)
    suspend_timeout_millis: int = wire("suspendTimeoutMillis", default=0, long=True)
    subscription: str | None = wire("subscription", default=None)
    sub_version: int = wire("subVersion", default=0, long=True)
    expression_type: str | None = wire("expressionType", default=None)
    max_msg_bytes: int | None = wire("maxMsgBytes", default=None)
    request_source: int | None = wire("requestSource", default=None)
    proxy_forward_client_id: str | None = wire("proxyFrowardClientId", default=None)  # Java's spelling
    bname: str | None = wire("bname", default=None)


@wire_header
class PullMessageResponse(Header):
    """The answer to a pull; clients read it on 0, 19, 20 and 21, so every field is always sent."""

    suggest_which_broker_id: int = wire("suggestWhichBrokerId", long=True)
    next_begin_offset: int = wire("nextBeginOffset", long=True)
    min_offset: int = wire("minOffset", long=True)
    max_offset: int = wire("maxOffset", long=True)
    offset_delta: int | None = wire("offsetDelta", default=None, long=True)
    topic_sys_flag: int | None = wire("topicSysFlag", default=None)
    group_sys_flag: int | None = wire("groupSysFlag", default=None)
    forbidden_type: int | None = wire("forbiddenType", default=None)
