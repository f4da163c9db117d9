"""What a request needs of who sent it, in the words of 4.x access control (protocol.md 6.1, 6.2)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["ANY", "DENY", "PUB", "SUB", "Grant", "Need", "permission_text", "publish_topic", "use_group", "use_topic"]

#: Permission bits, as Java numbers them.
DENY = 1
ANY = 2
PUB = 4
SUB = 8
_TEXTS = {DENY: "DENY", ANY: "ANY", PUB: "PUB", SUB: "SUB", PUB | SUB: "PUB|SUB"}


class Need(NamedTuple):
    """One permission on one topic or group."""

    #: ``topic`` or ``group``.
    kind: str
    name: str
    permission: int


class Grant(Protocol):
    """What the account behind a request may do (:mod:`rmq.auth` makes it)."""

    @property
    def account(self) -> str:
        """Its access key; empty where a white list stands for one."""

    def demand(self, *needs: Need) -> None:
        """:raises AuthError: one of them is not given."""

    def charge(self, size: int) -> None:
        """An answer of so many bytes was sent: it counts for what the account may have."""

    def allows(self, need: Need) -> bool:
        """Whether it is given, at this moment: for what is not answered with a refusal."""


def permission_text(permission: int) -> str:
    return _TEXTS.get(permission, str(permission))


def publish_topic(name: str) -> Need:
    """Sending to a topic."""
    return Need("topic", name, PUB)


def use_topic(name: str) -> Need:
    """Reading a topic, and where its queues begin and end."""
    return Need("topic", name, SUB)


def use_group(name: str) -> Need:
    """Being a member of a consumer group, and moving its offsets."""
    return Need("group", name, SUB)
