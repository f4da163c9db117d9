"""Versions of a table: each change has the next one, and of the last changes it is known what they were of."""

from __future__ import annotations

from collections import deque

from rmq.protocol.bodies.topic import DataVersion
from rmq.runtime.world import Clock

__all__ = ["Versions", "following"]


def following(version: DataVersion, now_ms: int) -> DataVersion:
    """The version after one more change."""
    return DataVersion(counter=version.counter + 1, timestamp=now_ms)


class Versions:
    """The version that a table has, and the changes that have led to it.

    :param clock: a version tells when it came.
    :param kept: versions of which it is remembered what has changed since, for who knows one of them.
    """

    def __init__(self, clock: Clock, kept: int = 0) -> None:
        self._clock = clock
        self.now = DataVersion(counter=0, timestamp=clock.now_ms())
        # The newest versions in order, and what each changed against the one before it.
        self._history: deque[tuple[DataVersion, tuple[str, ...]]] = deque(maxlen=kept)

    def advance(self, *names: str, to: DataVersion | None = None) -> None:
        """The table has changed.

        :param names: what of it.
        :param to: the version that a group of brokers has given the change; the one after this where that is not
            higher, for a version never goes back.
        """
        if not self._history:
            self._history.append((self.now, ()))
        if to is None or to.counter <= self.now.counter:
            to = following(self.now, self._clock.now_ms())
        self.now = to
        self._history.append((to, names))

    def restart(self, at: DataVersion | None = None) -> None:
        """Nobody who knows an older version knows what has changed since.

        :param at: the version of the table that has been taken over; it stays when not given.
        """
        if at is not None:
            self.now = at
        self._history.clear()
        self._history.append((self.now, ()))

    def changed_since(self, version: DataVersion) -> list[str] | None:
        """What was made, changed or deleted after a version; None when that is not known."""
        changed: dict[str, None] = {}
        for known, names in reversed(self._history):
            if known == version:
                return list(changed)
            changed.update(dict.fromkeys(names))
        return None
