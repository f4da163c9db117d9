"""Queue locks for orderly consumption: 41, 42 (protocol.md 4.11)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.queue import MessageQueue

__all__ = ["LockBatchRequestBody", "LockBatchResponseBody", "UnlockBatchRequestBody"]


@body
class LockBatchRequestBody(Body):
    """41 LOCK_BATCH_MQ; ``only_this_broker`` is 5.x's.

    ``lost_with_connection`` is ours, and other brokers pass over it: the client begins no call of a listener once its
    connection has ended, before it has the lock anew.
    """

    client_id: str = member("clientId", default="")
    consumer_group: str = member("consumerGroup", default="")
    mq_set: list[MessageQueue] = member("mqSet", factory=list)
    only_this_broker: bool | None = member("onlyThisBroker", default=None)
    lost_with_connection: bool | None = member("lostWithConnection", default=None)


@body
class UnlockBatchRequestBody(Body):
    """42 UNLOCK_BATCH_MQ."""

    client_id: str = member("clientId", default="")
    consumer_group: str = member("consumerGroup", default="")
    mq_set: list[MessageQueue] = member("mqSet", factory=list)
    only_this_broker: bool | None = member("onlyThisBroker", default=None)


@body
class LockBatchResponseBody(Body):
    """The queues that the asking client now holds."""

    lock_ok_mq_set: list[MessageQueue] = member("lockOKMQSet", factory=list)
