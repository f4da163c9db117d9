"""Changes of tables that a group of brokers has to commit before they hold (:mod:`rmq.broker.raft.changes`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from rmq.protocol.bodies.topic import DataVersion

__all__ = ["APPLIED", "FORBIDDEN", "GROUP", "MODE", "TOPIC", "Change", "Journal", "applied_of"]

#: What a change is of: a topic, a subscription group, what a group must not do with a topic, its mode on a topic.
TOPIC, GROUP, FORBIDDEN, MODE = "topic", "group", "forbidden", "mode"
#: The member of a table's file, and of an answer with the whole table, that says up to which offset of the commit log
#: the changes of the log are in it. Java ignores it.
APPLIED = "appliedCommitLogOffset"


class Change(NamedTuple):
    """One change: whatever it was before, the table has this afterwards."""

    kind: str
    #: Of the topic, or the group.
    name: str
    #: The whole configuration as JSON, or the bits of FORBIDDEN; None = it is deleted.
    value: bytes | None
    #: Of the table with the change; modes have none.
    version: DataVersion | None = None
    #: The topic that FORBIDDEN and the group that MODE is about; else empty.
    beside: str = ""
    #: The group's offsets are deleted with it.
    offsets: bool = False


class Journal(Protocol):
    """Where the changes of a broker's tables go, when it is one of a group."""

    @property
    def records(self) -> bool:
        """Whether this broker leads, and every change is to be written; a follower's own are its own."""

    def write(self, change: Change, show: Callable[[], None] | None = None) -> None:
        """Put a change into the log.

        :param show: shows it, which is done before anything can be committed.
        :raises ResponseError: it cannot be written: nothing is changed.
        """

    async def settled(self) -> None:
        """Wait until what was written so far is committed.

        :raises ResponseError: it was taken back, or its time is over.
        """


def applied_of(whole: object) -> int | None:
    """Up to where a table has the changes of the log, as it says; None where it does not."""
    found = whole.get(APPLIED) if isinstance(whole, dict) else None
    return found if type(found) is int and found >= 0 else None
