"""Topic names as a broker judges them (protocol.md 6.6, store-and-broker.md 7.5 and 7.6)."""

from __future__ import annotations

from rmq.protocol.names import DLQ_PREFIX, MAX_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, has_allowed_characters

__all__ = ["DLQ_PREFIX", "RETRY_PREFIX", "SCHEDULE_TOPIC", "topic_name_fault"]


def topic_name_fault(topic: str | None) -> str | None:
    """What is wrong with a topic's name, in the words of a Java broker (they reach users), or None."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if not has_allowed_characters(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > MAX_TOPIC:
        return "The specified topic is longer than topic max length."
    return None
