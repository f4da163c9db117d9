"""Drafts: what the leader of a group shows of a table, and its group has not committed.

The leader shows a change at once, to whom it serves, and tells nobody else: answers with a whole table, name servers
and files have what is committed. A leader that is deposed takes back what its group has not committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from rmq.broker.topics.changes import Change, Journal
from rmq.broker.topics.versions import Versions, following
from rmq.protocol.bodies.topic import DataVersion
from rmq.runtime.world import Clock

__all__ = ["Drafts"]


class Config(Protocol):
    """A configuration in a table."""

    def encode(self) -> bytes:
        """As JSON."""


C = TypeVar("C", bound=Config)


class Drafts(Generic[C]):
    """The changes of one table that are not committed, by the names of what they are of.

    A broker that is of no group, or does not lead it, has none: its table is changed at once.

    :param kind: what the changes are of: a word of :mod:`rmq.broker.topics.changes`.
    :param shown: the table's configurations by name; a draft replaces one there, or takes it out.
    :param versions: of the table.
    :param on_made: called with a name that was not shown until now, before :attr:`on_shown`.
    """

    __slots__ = ("_clock", "_held", "_kind", "_last", "_on_made", "_shown", "_versions", "journal", "on_shown")

    def __init__(
        self,
        kind: str,
        shown: dict[str, C],
        versions: Versions,
        clock: Clock,
        on_made: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._kind = kind
        self._shown = shown
        self._versions = versions
        self._clock = clock
        self._on_made = on_made
        #: By name: how many changes of it are not committed, and what is.
        self._held: dict[str, tuple[int, C | None]] = {}
        #: The version that the table has with the last of them.
        self._last: DataVersion | None = None
        #: Where changes are written, in a group that elects its master.
        self.journal: Journal | None = None
        #: Called with a name of which something else is shown, and which is not committed.
        self.on_shown: list[Callable[[str], None]] = []

    def __bool__(self) -> bool:
        return bool(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    @property
    def wanted(self) -> bool:
        """Whether a change is a draft first: this broker leads a group, which is to commit it."""
        return self.journal is not None and self.journal.records

    # -- the leader's

    def put(self, name: str, config: C) -> None:
        """Show a configuration, new or changed, that holds once the group has committed it.

        :raises ResponseError: the group cannot be told of it: nothing is changed.
        """
        self.write(Change(self._kind, name, config.encode()), lambda: self._draft(name, config))

    def delete(self, name: str, *, offsets: bool = False) -> None:
        """Show no more what is deleted once the group has committed that.

        :param offsets: of a group: its offsets are to be deleted, too.
        :raises ResponseError: as of :meth:`put`.
        """
        self.write(Change(self._kind, name, None, offsets=offsets), lambda: self._draft(name, None))

    def write(self, change: Change, show: Callable[[], None] | None = None) -> None:
        """Write a change of this table, with the version that the table has after it.

        :param show: shows it.
        :raises ResponseError: as of :meth:`put`.
        """
        assert self.journal is not None, "a broker of no group has no drafts"
        base = self._last if self._held and self._last is not None else self._versions.now
        self._last = following(base, self._clock.now_ms())
        self.journal.write(change._replace(version=self._last), show)

    def take_back(self) -> None:
        """Show what is committed, and no draft: this broker does not lead any more."""
        held, self._held = self._held, {}
        for name, (_, config) in held.items():
            if config is None:
                self._shown.pop(name, None)
            else:
                self._shown[name] = config
            self._tell_shown(name)

    # -- every member's

    def committed(self, name: str, config: C) -> None:
        """The group has committed a configuration: it is shown, unless a later draft of its name is."""
        if self._is_last(name, config):
            self._set(name, config)

    def deleted(self, name: str) -> bool:
        """The group has committed a deletion; whether it hides something: a later draft of the name stays."""
        return self._is_last(name, None) and self._shown.pop(name, None) is not None

    def committed_of(self, name: str) -> C | None:
        """What the group has committed of a name."""
        held = self._held.get(name)
        return self._shown.get(name) if held is None else held[1]

    def _is_last(self, name: str, config: C | None) -> bool:
        """One change of ``name`` is committed; whether no later one waits for that."""
        count, _ = self._held.pop(name, (1, None))
        if count > 1:
            self._held[name] = (count - 1, config)
        return count <= 1

    def _draft(self, name: str, config: C | None) -> None:
        count, committed = self._held.get(name, (0, self._shown.get(name)))
        self._held[name] = (count + 1, committed)
        if config is None:
            self._shown.pop(name, None)
        else:
            self._set(name, config)
        self._tell_shown(name)

    def _set(self, name: str, config: C) -> None:
        new = name not in self._shown
        self._shown[name] = config
        if new:
            self._on_made(name)

    def _tell_shown(self, name: str) -> None:
        for listener in self.on_shown:
            listener(name)
