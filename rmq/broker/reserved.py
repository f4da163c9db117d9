"""What is the broker's own is nobody else's: the one check of topics and groups that requests name.

Which ones these are says :mod:`rmq.protocol.names`. Sends, and the requests that make and delete topics, ask the topic
table, whose answers are Java's; whatever else writes asks here.
"""

from __future__ import annotations

from rmq.config import values
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import is_broker_group, is_broker_topic, is_private_topic

__all__ = ["LONGEST_CLIENT_ID", "LONGEST_GROUP", "check_group", "check_private", "check_target", "name_fault"]

#: Bytes of a group's name, as Java's clients have it, and of a client's: address, instance name, unit.
LONGEST_GROUP = 255
LONGEST_CLIENT_ID = 1_024


def name_fault(name: str, longest: int = LONGEST_GROUP) -> str | None:
    """What is wrong with a name that goes into files, logs and metric labels, as a sentence for its sender; or None.

    Java takes any; what no line of a file can carry is refused here. DEL ends no line: stores of Java may have it.

    :param longest: bytes of UTF-8.
    """
    if len(name) <= longest and name.isascii() and name.isprintable():
        return None
    fault = values.fault(name.replace("\x7f", "?"), longest)
    return None if fault is None else f"{values.shown(name)} is no name: {fault}"


def check_group(group: str, *, known: bool = False) -> None:
    """Refuse a group that is the broker itself, and what is no name.

    :param known: it is there, whatever its name.
    :raises ResponseError: NO_PERMISSION; SYSTEM_ERROR.
    """
    if not known and (fault := name_fault(group)):
        raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the group {fault}")
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
