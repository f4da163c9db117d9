"""Topic names as a broker judges them (protocol.md 6.6, store-and-broker.md 7.5 and 7.6)."""

from __future__ import annotations

from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.names import DLQ_PREFIX, MAX_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, has_allowed_characters

__all__ = ["DLQ_PREFIX", "RETRY_PREFIX", "SCHEDULE_TOPIC", "topic_config_fault", "topic_name_fault"]

#: Every bit of a permission: to inherit, to write, to read, and 4.9's unused one of priority.
_MOST_PERM = 15


def topic_name_fault(topic: str | None) -> str | None:
    """What is wrong with a topic's name, in the words of a Java broker (they reach users), or None."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if not has_allowed_characters(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > MAX_TOPIC:
        return "The specified topic is longer than topic max length."
    return None


def topic_config_fault(config: TopicConfig) -> str | None:
    """What is wrong with a topic that a master has, or None.

    An administrator may make such a topic, as with Java's brokers: the table of his own broker is his to spoil.

    How many queues it may have is not judged here: who asks for more is refused, and of a file or a master the first of
    them are served.
    """
    fault = topic_name_fault(config.topic_name)
    if fault is not None:
        return fault
    for key, count in (("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)):
        if count < 0:
            return f"{key}={count}: a topic has 0 or more"
    if not 0 <= config.perm <= _MOST_PERM:
        return f"perm={config.perm}: permissions are 0 to {_MOST_PERM}"
    return None
