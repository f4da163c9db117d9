"""Names within a namespace: brokers know ``namespace%name``, an application the name alone (Java: NamespaceUtil).

Retry and dead-letter topics keep their prefix in front: ``%RETRY%namespace%group``. What is the broker's own has no
namespace. A client wraps what its application gives it, and takes off what it hands out; between, in routes, tables and
logs, names are the brokers'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from rmq.client.checks import check_group
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.selectors import MessageQueueSelector
from rmq.client.shown import shown
from rmq.protocol.errors import ClientError
from rmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, has_allowed_characters, is_system_group, is_system_topic
from rmq.protocol.plain import plain_text

__all__ = ["Namespace", "namespace_of"]

Q = TypeVar("Q")
_MARK = "%"
#: The address of an instance that a provider runs: its namespace stands in front of the first dot.
_INSTANCE = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\..*", re.ASCII)


def namespace_of(given: str | None, namesrv: str | None) -> str | None:
    """The namespace of a client: what is given, or what the first name server's address says.

    :raises ClientError: it is no name.
    """
    if given and (_MARK in given or not has_allowed_characters(given)):
        raise ClientError(f"namespace is {shown(given)}: give letters, digits, - and _")
    if given is None and namesrv and (found := _INSTANCE.fullmatch(namesrv)):
        return found[1]
    return given


class Namespace:
    """Wraps names and takes the namespace off them again; without a name it leaves all as they are."""

    __slots__ = ("_start", "name")

    def __init__(self, name: str | None = None) -> None:
        self.name = name or ""
        self._start = f"{name}{_MARK}" if name else ""

    def __bool__(self) -> bool:
        return bool(self.name)

    # -- what applications give ---------------------------------------------------------------------------------------

    def wrap(self, name: str) -> str:
        """The topic or group as brokers know it; one that is wrapped already stays so."""
        if not self._start or not name or is_system_topic(name) or is_system_group(name):
            return name
        prefix, rest = _cut(name)
        return name if rest.startswith(self._start) else f"{prefix}{self._start}{rest}"

    def group(self, name: str, placeholder: str) -> str:
        """A group, wrapped. :raises ClientError: it cannot be used; ``placeholder`` is Java's default."""
        check_group(name, placeholder)
        wrapped = self.wrap(plain_text(name))
        if wrapped != name:
            check_group(wrapped, placeholder)
        return wrapped

    def wrap_queue(self, queue: Q) -> Q:
        """Anything but a queue, which its user will refuse, comes back as it is."""
        return self._with(queue, self.wrap(queue.topic)) if self and isinstance(queue, MessageQueue) else queue

    def selector(self, selector: MessageQueueSelector | None) -> MessageQueueSelector | None:
        """One that is handed queues as its application knows them."""
        if not self or not callable(selector):
            return selector
        return lambda queues, message, arg: self.wrap_queue(selector(self.queues(queues), message, arg))

    # -- what applications get ----------------------------------------------------------------------------------------

    def plain(self, name: str) -> str:
        """The topic or group as an application knows it."""
        prefix, rest = _cut(name)
        return prefix + rest[len(self._start) :] if self._start and rest.startswith(self._start) else name

    def queue(self, queue: MessageQueue) -> MessageQueue:
        return self._with(queue, self.plain(queue.topic)) if self else queue

    def queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self.queue(queue) for queue in queues]

    def message(self, message: MessageExt) -> MessageExt:
        """The same message, its topic without the namespace."""
        if self:
            message.topic = self.plain(message.topic)
        return message

    @staticmethod
    def _with(queue: Q, topic: str) -> Q:
        assert isinstance(queue, MessageQueue)
        return MessageQueue(topic, queue.broker_name, queue.queue_id)  # type: ignore[return-value]


def _cut(name: str) -> tuple[str, str]:
    """The prefix of retry and dead-letter topics, and the rest."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
