"""What a leader has told of bytes that are still to come: they are held against it while they are written."""

from __future__ import annotations

from collections import deque

from rmq.broker.store.told import Told

__all__ = ["Announced"]

#: Spans, and bytes of memory, at most; of what is dropped the log is read.
_MOST, _MOST_MEMORY = 64, 8 << 20


class Announced:
    """Of one leader in one term, in the order of the log."""

    def __init__(self) -> None:
        self._of: tuple[str, int] | None = None
        self._spans: deque[Told] = deque()
        #: Bytes of memory that they take, about.
        self.memory = 0

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, leader: str, term: int, told: Told) -> None:
        """A leader tells of bytes that are not here."""
        spans = self._spans
        if self._of != (leader, term):
            self.clear()
            self._of = leader, term
        while spans and spans[-1].end > told.start:  # its last word counts
            self.memory -= spans.pop().memory
        spans.append(told)
        self.memory += told.memory
        while len(spans) > _MOST or (spans and self.memory > _MOST_MEMORY):
            self.memory -= spans.popleft().memory

    def take(self, leader: str | None, term: int, end: int) -> list[Told]:
        """What was told by this leader in this term of the log up to ``end``; what another has told is forgotten."""
        spans = self._spans
        if not spans:
            return []
        if self._of != (leader, term):
            self.clear()
        found: list[Told] = []
        while spans and spans[0].end <= end:
            told = spans.popleft()
            self.memory -= told.memory
            found.append(told)
        return found

    def clear(self) -> None:
        """Nothing of it may come any more."""
        self._spans.clear()
        self.memory = 0
