"""What a consumer tells of itself: 307, 309 (protocol.md 4.13)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.queue import MessageQueue

__all__ = [
    "CM_RESULTS",
    "ConsumeMessageDirectlyResult",
    "ConsumeStatus",
    "ConsumerRunningInfo",
    "PopProcessQueueInfo",
    "ProcessQueueInfo",
]

CM_RESULTS = (
    "CR_SUCCESS",
    "CR_LATER",
    "CR_ROLLBACK",
    "CR_COMMIT",
    "CR_THROW_EXCEPTION",
    "CR_RETURN_NULL",
)

# Property names that tools read.
PROP_NAMESERVER_ADDR = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP = "PROP_CONSUMER_START_TIMESTAMP"


@body
class ProcessQueueInfo(Body):
    """A queue as its consumer holds it; ``droped`` is Java's spelling."""

    cached_msg_count: int = member("cachedMsgCount", default=0)
    cached_msg_max_offset: int = member("cachedMsgMaxOffset", default=0)
    cached_msg_min_offset: int = member("cachedMsgMinOffset", default=0)
    cached_msg_size_in_mib: int = member("cachedMsgSizeInMiB", default=0)
    commit_offset: int = member("commitOffset", default=0)
    droped: bool = member("droped", default=False)
    last_consume_timestamp: int = member("lastConsumeTimestamp", default=0)
    last_lock_timestamp: int = member("lastLockTimestamp", default=0)
    last_pull_timestamp: int = member("lastPullTimestamp", default=0)
    locked: bool = member("locked", default=False)
    transaction_msg_count: int = member("transactionMsgCount", default=0)
    transaction_msg_max_offset: int = member("transactionMsgMaxOffset", default=0)
    transaction_msg_min_offset: int = member("transactionMsgMinOffset", default=0)
    try_unlock_times: int = member("tryUnlockTimes", default=0)


@body
class PopProcessQueueInfo(Body):
    """A queue consumed by pop (5.x)."""

    droped: bool = member("droped", default=False)
    last_pop_timestamp: int = member("lastPopTimestamp", default=0)
    wait_ack_count: int = member("waitAckCount", default=0)


@body
class ConsumeStatus(Body):
    """A topic's rates at a consumer, per second and in ms."""

    consume_failed_msgs: int = member("consumeFailedMsgs", default=0)
    consume_failed_tps: float = member("consumeFailedTPS", default=0.0)
    consume_ok_tps: float = member("consumeOKTPS", default=0.0)
    consume_rt: float = member("consumeRT", default=0.0)
    pull_rt: float = member("pullRT", default=0.0)
    pull_tps: float = member("pullTPS", default=0.0)


@body
class ConsumerRunningInfo(Body):
    """307 GET_CONSUMER_RUNNING_INFO; ``mq_pop_table`` and ``user_consumer_info`` are 5.x's."""

    jstack: str | None = member("jstack", default=None)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] | None = member("mqPopTable", default=None)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = member("mqTable", factory=dict)
    properties: dict[str, str] = member("properties", factory=dict)
    status_table: dict[str, ConsumeStatus] = member("statusTable", factory=dict)
    subscription_set: list[SubscriptionData] = member("subscriptionSet", factory=list)
    user_consumer_info: dict[str, str] | None = member("userConsumerInfo", default=None)


@body
class ConsumeMessageDirectlyResult(Body):
    """309 CONSUME_MESSAGE_DIRECTLY."""

    auto_commit: bool = member("autoCommit", default=True)
    consume_result: str | None = member("consumeResult", default=None, values=CM_RESULTS)
    order: bool = member("order", default=False)
    remark: str | None = member("remark", default=None)
    spent_time_mills: int = member("spentTimeMills", default=0)
