"""Bodies of 5.x's pop consumption and its relatives: 345, 353, 400, 401, 402, 200151 (protocol.md 2.13, 4.14)."""

from __future__ import annotations

import base64
import binascii

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.bodies.heartbeat import MESSAGE_MODELS, SubscriptionData
from rmq.protocol.errors import BodyError
from rmq.protocol.queue import MessageQueue

__all__ = [
    "REQUEST_MODES",
    "BatchAck",
    "BatchAckMessageRequestBody",
    "GroupForbidden",
    "MessageQueueAssignment",
    "MessageRequestModeTable",
    "QueryAssignmentRequestBody",
    "QueryAssignmentResponseBody",
    "QuerySubscriptionResponseBody",
    "SetMessageRequestModeRequestBody",
    "bit_set",
    "bits_of",
]

REQUEST_MODES = ("PULL", "POP")

#: Characters of a bit set: of 24,576 messages, where a pop gives some dozens.
_LONGEST_BITS = 4_096


def bits_of(text: str) -> list[int]:
    """The numbers in a bit set, which travels as base64 of little-endian bytes: ``AQI=`` is 0 and 9.

    :raises BodyError: no base64, or too long.
    """
    if len(text) > _LONGEST_BITS:
        raise BodyError(f"a bit set of {len(text)} characters: {_LONGEST_BITS} at most")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BodyError(f"no bit set: {text[:64]!r}") from None
    return [index * 8 + bit for index, byte in enumerate(raw) for bit in range(8) if byte >> bit & 1]


def bit_set(numbers: list[int]) -> str:
    """The text of a bit set."""
    value = 0
    for number in numbers:
        value |= 1 << number
    return base64.b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little")).decode()


@body
class BatchAck(Body):
    """Acknowledges several messages of one pop; long names are accepted too."""

    consumer_group: str = member("c", default="", also=("consumerGroup",))
    topic: str = member("t", default="", also=("topic",))
    retry: str = member("r", default="", also=("retry",))
    start_offset: int = member("so", default=0, also=("startOffset",))
    queue_id: int = member("q", default=0, also=("queueId",))
    revive_queue_id: int = member("rq", default=0, also=("reviveQueueId",))
    pop_time: int = member("pt", default=0, also=("popTime",))
    invisible_time: int = member("it", default=0, also=("invisibleTime",))
    bit_set: str = member("b", default="", also=("bitSet",))


@body
class BatchAckMessageRequestBody(Body):
    """200151 BATCH_ACK_MESSAGE."""

    acks: list[BatchAck] = member("acks", factory=list)
    broker_name: str | None = member("brokerName", default=None)


@body
class QueryAssignmentRequestBody(Body):
    """400 QUERY_ASSIGNMENT."""

    client_id: str = member("clientId", default="")
    consumer_group: str = member("consumerGroup", default="")
    message_model: str | None = member("messageModel", default=None, values=MESSAGE_MODELS)
    strategy_name: str | None = member("strategyName", default=None)
    topic: str = member("topic", default="")


@body
class MessageQueueAssignment(Body):
    attachments: dict[str, str] | None = member("attachments", default=None)
    message_queue: MessageQueue | None = member("messageQueue", default=None)
    mode: str | None = member("mode", default="PULL", values=REQUEST_MODES)


@body
class QueryAssignmentResponseBody(Body):
    message_queue_assignments: list[MessageQueueAssignment] = member("messageQueueAssignments", factory=list)


@body
class SetMessageRequestModeRequestBody(Body):
    """401 SET_MESSAGE_REQUEST_MODE."""

    consumer_group: str = member("consumerGroup", default="")
    mode: str | None = member("mode", default="PULL", values=REQUEST_MODES)
    pop_share_queue_num: int = member("popShareQueueNum", default=0)
    topic: str = member("topic", default="")


@body
class MessageRequestModeTable(Body):
    """402 GET_ALL_MESSAGE_REQUEST_MODE: topic to group to mode."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = member(
        "messageRequestModeMap", factory=dict
    )


@body
class QuerySubscriptionResponseBody(Body):
    """345 QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str | None = member("group", default=None)
    subscription_data: SubscriptionData | None = member("subscriptionData", default=None)
    topic: str | None = member("topic", default=None)


@body
class GroupForbidden(Body):
    """353 UPDATE_AND_GET_GROUP_FORBIDDEN."""

    group: str = member("group", default="")
    readable: bool | None = member("readable", default=None)
    topic: str = member("topic", default="")
