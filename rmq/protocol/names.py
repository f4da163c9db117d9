"""Topic and group names: rules, reserved ones, and the derived retry and dead-letter topics (protocol.md 6.6)."""

from __future__ import annotations

import re
from functools import lru_cache

from rmq.protocol.errors import HeaderError

__all__ = [
    "BROKER_GROUPS",
    "BROKER_TOPICS",
    "DEPARTED_BROKERS",
    "DLQ_PREFIX",
    "LMQ_PREFIX",
    "LONGEST",
    "MASTER_ID",
    "MAX_GROUP",
    "MAX_TOPIC",
    "REPLY_TOPIC_POSTFIX",
    "RETRY_PREFIX",
    "SYSTEM_TOPICS",
    "check_group",
    "check_topic",
    "dlq_topic",
    "group_fault",
    "group_of_retry_topic",
    "has_allowed_characters",
    "is_broker_group",
    "is_broker_topic",
    "is_dlq_topic",
    "is_lmq",
    "is_private_topic",
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

#: Characters of a name as a daemon takes it from strangers, wherever it comes in: what is longer is refused before
#: anything is kept under it. Java checks topics that it makes (127) and nothing else; its clients check groups (255).
_LONGEST_NAME = 255
#: A client id is made of an address, an instance's name and a unit's, which users choose.
_LONGEST_CLIENT_ID = 1_024
#: Tags, or an SQL92 condition.
_LONGEST_EXPRESSION = 16_384
#: By the name of the header's field, or of the body's member.
LONGEST = {
    **dict.fromkeys(
        (
            "topic", "topicName", "originTopic", "group", "groupName", "consumerGroup", "producerGroup", "srcGroup",
            "destGroup", "compareGroup", "brokerName", "bname", "clusterName", "brokerClusterName", "namespace",
            "brokerAddr", "haServerAddr", "statsName", "attemptId", "expressionType", "expType", "strategyName",
        ),
        _LONGEST_NAME,
    ),
    **dict.fromkeys(("clientId", "clientID", "proxyFrowardClientId"), _LONGEST_CLIENT_ID),
    **dict.fromkeys(("subscription", "subString", "exp"), _LONGEST_EXPRESSION),
}  # fmt: skip

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
#: The id of the broker of a set that takes messages; its slaves have others.
MASTER_ID = 0
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
REPLY_TOPIC_POSTFIX = "_REPLY_TOPIC"

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
#: A namespace of key-value settings that our name server makes of what it remembers: brokers that are not registered
#: any more. Java's has none.
DEPARTED_BROKERS = "DEPARTED_BROKERS"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
#: Messages with a delivery time wait here, as with Java 5; which of them are dealt with; the changes of POP's state.
TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_DONE_TOPIC = "rmq_sys_wheel_timer_done"
POP_JOURNAL_TOPIC = "rmq_sys_POP_JOURNAL"
#: Changes of topics, groups and modes of consumption, in the log of a group of brokers that elects its master.
TABLE_CHANGES_TOPIC = "rmq_sys_TABLE_CHANGES"
#: Clients write their traces here when the access channel is CLOUD, a topic a region.
TRACE_DATA_PREFIX = "rmq_sys_TRACE_DATA_"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC,
    }
)  # fmt: skip
#: What the broker itself writes to. All but some of them are for its own eyes (:func:`is_private_topic`).
BROKER_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC,
        TIMER_TOPIC, TIMER_DONE_TOPIC, POP_JOURNAL_TOPIC, TABLE_CHANGES_TOPIC,
    }
)  # fmt: skip
_FOR_OPERATORS = frozenset({TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC})

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
SCHEDULE_CONSUMER_GROUP = "SCHEDULE_CONSUMER"
MONITOR_CONSUMER_GROUP = "__MONITOR_CONSUMER"
SELF_TEST_PRODUCER_GROUP = "SELF_TEST_P_GROUP"
TRANSACTION_CONSUMER_GROUP = "CID_RMQ_SYS_TRANS"
TIMER_GROUP = "CID_RMQ_SYS_TIMER"
POP_JOURNAL_GROUP = "CID_RMQ_SYS_POP"
#: The broker keeps its own progress as the offsets of these; the last one is that of Java 5's POP.
BROKER_GROUPS = frozenset({TRANSACTION_CONSUMER_GROUP, TIMER_GROUP, POP_JOURNAL_GROUP, "CID_RMQ_SYS_REVIVE_GROUP"})
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


def has_allowed_characters(name: str) -> bool:
    """Whether a topic or a group may be called so, as far as its characters go."""
    return _ALLOWED.fullmatch(name) is not None


def _fault(what: str, name: str | None, limit: int) -> str | None:
    if name is None or not name.strip():
        return f"The specified {what} is blank."
    if len(name.encode("utf-8", "replace")) > limit:
        return f"The specified {what} is longer than {what} max length {limit}."
    if not has_allowed_characters(name):
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


def is_broker_topic(topic: str) -> bool:
    """Whether only the broker itself writes to a topic, ours and Java's: nobody else sends there or changes it.

    Every name with the prefix of the system is one, whether this release uses it or not, but for the clients' traces.
    """
    if topic in BROKER_TOPICS:
        return True
    if topic.startswith(SYSTEM_TOPIC_PREFIX):
        return not topic.startswith(TRACE_DATA_PREFIX)
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) and is_broker_group(group_of_retry_topic(topic))


@lru_cache(maxsize=1024)  # asked with every pull
def is_private_topic(topic: str) -> bool:
    """Whether only the broker itself reads a topic, too: nobody has offsets on it, or gives a message of it back."""
    return is_broker_topic(topic) and topic not in _FOR_OPERATORS


def is_broker_group(group: str) -> bool:
    """Whether a group is the broker itself: nobody else consumes as it, changes it, or moves its offsets."""
    return group in BROKER_GROUPS


def is_system_group(group: str) -> bool:
    """A group whose configuration is made on demand even without auto-creation."""
    return group.startswith(SYSTEM_GROUP_PREFIX)
