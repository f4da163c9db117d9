"""Topic and group names: rules, reserved ones, and the derived retry and dead-letter topics (protocol.md 6.6)."""

from __future__ import annotations

import re

from rmq.protocol.errors import HeaderError

__all__ = [
    "DLQ_PREFIX",
    "LMQ_PREFIX",
    "MAX_GROUP",
    "MAX_TOPIC",
    "REPLY_TOPIC_POSTFIX",
    "RETRY_PREFIX",
    "SEND_REFUSED_TOPICS",
    "SYSTEM_TOPICS",
    "check_group",
    "check_topic",
    "dlq_topic",
    "group_fault",
    "group_of_retry_topic",
    "is_dlq_topic",
    "is_lmq",
    "is_retry_topic",
    "is_system_group",
    "is_system_topic",
    "reply_topic",
    "retry_topic",
    "topic_fault",
]

#: Bytes (and, by the rule on characters, characters): the record's length byte is signed.
MAX_TOPIC = 127
#: So that ``%RETRY%`` + group is still a topic name (field case B085). Java's client checks 255.
MAX_GROUP = 120

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
REPLY_TOPIC_POSTFIX = "_REPLY_TOPIC"

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC,
    }
)  # fmt: skip
#: A client may not send to these (code 16).
SEND_REFUSED_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
SCHEDULE_CONSUMER_GROUP = "SCHEDULE_CONSUMER"
MONITOR_CONSUMER_GROUP = "__MONITOR_CONSUMER"
SELF_TEST_PRODUCER_GROUP = "SELF_TEST_P_GROUP"
TRANSACTION_CONSUMER_GROUP = "CID_RMQ_SYS_TRANS"
#: Groups whose configuration every broker has from the start.
BUILT_IN_GROUPS = (
    TOOLS_CONSUMER_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")


def _fault(what: str, name: str | None, limit: int) -> str | None:
    if name is None or not name.strip():
        return f"The specified {what} is blank."
    if len(name.encode("utf-8", "replace")) > limit:
        return f"The specified {what} is longer than {what} max length {limit}."
    if not _ALLOWED.fullmatch(name):
        return f"The specified {what}[{name}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def topic_fault(topic: str | None) -> str | None:
    """What is wrong with a topic name, as one sentence; None when nothing is."""
    return _fault("topic", topic, MAX_TOPIC)


def group_fault(group: str | None, limit: int = MAX_GROUP) -> str | None:
    """What is wrong with a group name, as one sentence; None when nothing is."""
    return _fault("group", group, limit)


def check_topic(topic: str | None) -> None:
    """Refuse a bad topic name.

    :raises HeaderError: says what is wrong.
    """
    if fault := topic_fault(topic):
        raise HeaderError(fault)


def check_group(group: str | None) -> None:
    """Refuse a bad group name.

    :raises HeaderError: says what is wrong.
    """
    if fault := group_fault(group):
        raise HeaderError(fault)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def is_lmq(name: str) -> bool:
    """A light message queue, or a group of one."""
    return name.startswith(LMQ_PREFIX)


def group_of_retry_topic(topic: str) -> str:
    """The group of a retry or dead-letter topic; other names come back as they are."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def reply_topic(cluster: str) -> str:
    """Where replies are stored in a cluster."""
    return cluster + REPLY_TOPIC_POSTFIX


def is_system_topic(topic: str) -> bool:
    """A topic that users neither create nor delete; a broker adds its cluster's and its own name to these."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """A group whose configuration is made on demand even without auto-creation."""
    return group.startswith(SYSTEM_GROUP_PREFIX)
