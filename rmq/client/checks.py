"""Names an application gives, checked before anything is sent (protocol.md 6.6)."""

from __future__ import annotations

from rmq.protocol import names
from rmq.protocol.errors import ClientError

__all__ = ["check_group", "check_topic"]


def check_topic(topic: object) -> None:
    """:raises ClientError: says what is wrong with a topic's name."""
    if not isinstance(topic, str):
        raise ClientError(f"a topic is a text, not {type(topic).__name__}")
    if fault := names.topic_fault(topic):
        raise ClientError(f"{fault} Given: {topic[:64]!r}")


def check_group(group: object, placeholder: str) -> None:
    """:raises ClientError: the group's name cannot be used; ``placeholder`` is Java's default, which is no name."""
    if not isinstance(group, str):
        raise ClientError(f"a group is a text, not {type(group).__name__}")
    if fault := names.group_fault(group):
        raise ClientError(f"{fault} Given: {group[:64]!r}")
    if group == placeholder:
        raise ClientError(f"the group {placeholder} is a placeholder: give the name of your application")
