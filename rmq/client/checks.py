"""What an application gives, checked before anything is sent (protocol.md 6.6)."""

from __future__ import annotations

from rmq.protocol import names
from rmq.protocol.errors import ClientError
from rmq.protocol.queue import MessageQueue

__all__ = ["check_expression", "check_group", "check_number", "check_queue", "check_text", "check_topic"]


def check_topic(topic: object) -> None:
    """:raises ClientError: says what is wrong with a topic's name."""
    name = check_text(topic)
    if fault := names.topic_fault(name):
        raise ClientError(f"{fault} Given: {name[:64]!r}")


def check_text(topic: object) -> str:
    """:raises ClientError: a topic to look up is no text. Those that brokers make have longer names than others."""
    if not isinstance(topic, str):
        raise ClientError(f"a topic is a text, not {type(topic).__name__}")
    return topic


def check_group(group: object, placeholder: str) -> None:
    """:raises ClientError: the group's name cannot be used; ``placeholder`` is Java's default, which is no name."""
    if not isinstance(group, str):
        raise ClientError(f"a group is a text, not {type(group).__name__}")
    if fault := names.group_fault(group):
        raise ClientError(f"{fault} Given: {group[:64]!r}")
    if group == placeholder:
        raise ClientError(f"the group {placeholder} is a placeholder: give the name of your application")


def check_queue(queue: object, topic: str | None = None) -> None:
    """:raises ClientError: it is no queue, or not one of ``topic``."""
    if not isinstance(queue, MessageQueue):
        raise ClientError(f"the queue is {queue!r}: give a MessageQueue")
    if topic is not None and queue.topic != topic:
        raise ClientError(f"the queue is one of {queue.topic}, and the message is for {topic}")


def check_number(value: object, name: str) -> None:
    """:raises ClientError: it is no whole number that fits 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise ClientError(f"{name} is {value!r}: give a whole number of 64 bits")


def check_expression(expression: object) -> None:
    """:raises ClientError: a subscription is no text; None stands for everything, as in Java."""
    if expression is not None and not isinstance(expression, str):
        raise ClientError(f"the subscription is {expression!r}: give tags as 'TagA || TagB', or *")
