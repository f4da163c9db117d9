"""Message properties: the string they travel in, and the reserved names (protocol.md 5.4, 5.5).

::

    name 0x01 value 0x02 name 0x01 value [0x02]

The last separator is there in releases up to 4.9.0 and from 5.2.0; both forms are read, the one without is written.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmq.protocol.errors import ClientError

__all__ = ["RESERVED", "append", "check", "decode", "encode", "get"]

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
#: Bytes of the whole string: its length is a signed 16-bit number in the record.
MAX_BYTES = 32_767

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MSG_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
UNIQ_KEY = "UNIQ_KEY"
CONSUME_START_TIME = "CONSUME_START_TIME"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
MESSAGE_TYPE = "MSG_TYPE"
#: The value of MESSAGE_TYPE in a reply.
REPLY = "reply"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
START_DELIVER_TIME = "__STARTDELIVERTIME"
SHARDING_KEY = "__SHARDINGKEY"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
POP_CK = "POP_CK"

#: Names that a user's own property may not have: those the Java client refuses (protocol.md 5.5).
RESERVED = frozenset(
    {
        KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED, PRODUCER_GROUP,
        MIN_OFFSET, MAX_OFFSET, "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", ORIGIN_MESSAGE_ID,
        RECONSUME_TIME, MAX_RECONSUME_TIMES, MSG_REGION, TRACE_SWITCH, UNIQ_KEY, CONSUME_START_TIME, INSTANCE_ID,
        CORRELATION_ID, REPLY_TO_CLIENT, TTL, ARRIVE_TIME, PUSH_REPLY_TIME, CLUSTER, MESSAGE_TYPE,
        INNER_MULTI_QUEUE_OFFSET, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL",
        POP_CK, "POP_CK_OFFSET", "1ST_POP_TIME", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__BORNHOST",
        "BORN_TIMESTAMP", "DUP_INFO", "EXTEND_UNIQ_INFO", "__CRC32#",
    }
)  # fmt: skip


def encode(properties: Mapping[str, str]) -> str:
    """The property string, without a separator at its end. Values that are None are left out, as Java does."""
    return "\x02".join([f"{name}\x01{value}" for name, value in properties.items() if value is not None])


def decode(text: str | None) -> dict[str, str]:
    """Read a property string; never fails. Items without a name or a value vanish, later duplicates win."""
    properties: dict[str, str] = {}
    if text:
        for item in text.split("\x02"):
            name, _, value = item.partition("\x01")
            if name and value:
                properties[name] = value
    return properties


def append(text: str, more: str) -> str:
    """Two property strings as one; a separator is put between when the first lacks its last one (field case B076)."""
    if not text or not more:
        return text or more
    return text + more if text.endswith("\x02") else f"{text}\x02{more}"


def get(text: str, name: str) -> str | None:
    """One property out of the string without reading the rest; None when absent or empty."""
    at = len(text)
    mark = f"{name}\x01"
    while True:
        at = text.rfind(mark, 0, at)
        if at < 0:
            return None
        if at == 0 or text[at - 1] == "\x02":
            start = at + len(mark)
            end = text.find("\x02", start)
            value = text[start:] if end < 0 else text[start:end]
            if value:
                return value
        at += len(mark) - 1


def check(name: str, value: str) -> None:
    """Refuse what a user's own property may not be (field case B077).

    :raises ClientError: an empty or reserved name, an empty value, or one of the two separators in either.
    """
    if not name or not value:
        raise ClientError(f"a property needs a name and a value: {name!r}={value!r}")
    if name in RESERVED:
        raise ClientError(f"the property name {name} is RocketMQ's own: choose another")
    for what, text in (("name", name), ("value", value)):
        if "\x01" in text or "\x02" in text:
            raise ClientError(f"the property {what} {text[:64]!r} holds a control character that separates properties")
