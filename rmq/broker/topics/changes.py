"""Changes of tables that a group of brokers has to commit before they hold (:mod:`rmq.broker.raft.changes`).

The leader shows a change at once, to whom it serves, and tells nobody else: answers with a whole table, name servers
and files have what is committed. A leader that is deposed takes back what its group has not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from rmq.protocol.bodies.topic import DataVersion

__all__ = ["APPLIED", "FORBIDDEN", "GROUP", "MODE", "TOPIC", "Change", "Drafts", "Journal", "applied_of"]

C = TypeVar("C")

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


class Drafts(Generic[C]):
    """What a leader shows and its group has not committed, by name."""

    __slots__ = ("_held", "_version")

    def __init__(self) -> None:
        #: How many changes of it are not committed, and what is.
        self._held: dict[str, tuple[int, C | None]] = {}
        self._version: DataVersion | None = None

    def __bool__(self) -> bool:
        return bool(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def version_after(self, committed: DataVersion, now_ms: int) -> DataVersion:
        """The version of the table with one more change."""
        base = committed if self._version is None or not self._held else self._version
        self._version = DataVersion(counter=base.counter + 1, timestamp=now_ms)
        return self._version

    def add(self, name: str, shown: C | None) -> None:
        """It is changed.

        :param shown: what was shown until now: that is what is committed, if nothing else of this name waits.
        """
        count, held = self._held.get(name, (0, shown))
        self._held[name] = (count + 1, held)

    def committed(self, name: str, config: C | None) -> bool:
        """One change of ``name`` is committed; whether it is to be shown, for no later one is."""
        count, _ = self._held.pop(name, (1, None))
        if count > 1:
            self._held[name] = (count - 1, config)
        return count <= 1

    def committed_of(self, name: str, shown: C | None) -> C | None:
        """What is committed of ``name``, of which this is shown."""
        held = self._held.get(name)
        return shown if held is None else held[1]

    def take_back(self) -> Iterator[tuple[str, C | None]]:
        """Forget all of them: their names, and what is committed of each."""
        held, self._held = self._held, {}
        for name, (_, config) in held.items():
            yield name, config


def applied_of(whole: object) -> int | None:
    """Up to where a table has the changes of the log, as it says; None where it does not."""
    found = whole.get(APPLIED) if isinstance(whole, dict) else None
    return found if type(found) is int and found >= 0 else None
