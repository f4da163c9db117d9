"""What is the broker's own is nobody else's: the one check of topics and groups that requests name.

Which ones these are says :mod:`rmq.protocol.names`. Sends, and the requests that make and delete topics, ask the topic
table, whose answers are Java's; whatever else writes asks here.
"""

from __future__ import annotations

from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import is_broker_group, is_broker_topic, is_private_topic

__all__ = ["check_group", "check_private", "check_target"]


def check_group(group: str) -> None:
    """Refuse a group that is the broker itself.

    :raises ResponseError: NO_PERMISSION.
    """
    if is_broker_group(group):
        raise ResponseError(ResponseCode.NO_PERMISSION, f"the group[{group}] is the broker's own: use another one")


def check_private(topic: str) -> None:
    """Refuse offsets and settings on a topic that only the broker reads, and returns of its messages.

    :raises ResponseError: NO_PERMISSION.
    """
    if is_private_topic(topic):
        raise ResponseError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] is the broker's own: nobody consumes it")


def check_target(topic: str) -> None:
    """Refuse a topic that only the broker writes, where a message is to go that was stored before.

    :raises ResponseError: NO_PERMISSION, in the words of a send.
    """
    if is_broker_topic(topic):
        raise ResponseError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
