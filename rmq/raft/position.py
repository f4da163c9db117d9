"""Where a log is: terms, and the offsets at which they begin."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rmq.protocol.errors import ReplicationError

__all__ = ["LogsParted", "Position", "TermPath"]


class LogsParted(ReplicationError):
    """What cannot be if everybody kept the rules: this member has to stop, and somebody has to look at its log."""


class Position(NamedTuple):
    """The end of everything that a log has up to ``end``, whose last entry is of ``term``.

    They compare as logs do in an election: by term, then by length. Along one log both only grow.
    """

    term: int
    end: int

    def __str__(self) -> str:
        return f"{self.term}:{self.end}"


class TermPath:
    """The positions that one log has.

    :param starts: term and offset where it begins, in order; the first is that of the log's first byte.
    :param start: where the log begins.
    :param end: where it ends. Terms that begin behind it were noted, and their log was lost.
    :raises LogsParted: these are no terms of a log.
    """

    def __init__(self, starts: Sequence[Position], start: int, end: int) -> None:
        ordered = all(one.term < other.term and one.end <= other.end for one, other in pairwise(starts))
        if not starts or not ordered or not starts[0].end <= start <= end:
            raise LogsParted(f"a log from {start} to {end} cannot have the terms {' '.join(map(str, starts))}")
        self._starts = [one for one in starts if one.end <= end]
        self.start = start
        self.end = end
        self.forget(start)

    @property
    def last(self) -> Position:
        """Everything."""
        return Position(self._starts[-1].term, self.end)

    @property
    def first(self) -> Position:
        """The first that can be told: what was deleted ends here."""
        return Position(self._starts[0].term, self.start)

    @property
    def starts(self) -> tuple[Position, ...]:
        """What is kept beside the log."""
        return tuple(self._starts)

    def _bounds(self, term: int) -> tuple[int, int] | None:
        """From where to where the log is of a term; None when none of it is."""
        starts = self._starts
        for number in range(len(starts) - 1, -1, -1):
            if starts[number].term <= term:
                if starts[number].term < term:
                    return None
                behind = starts[number + 1].end if number + 1 < len(starts) else self.end
                return max(starts[number].end, self.start), behind
        return None

    def contains(self, at: Position) -> bool:
        """Whether the log has this position."""
        bounds = self._bounds(at.term)
        return bounds is not None and bounds[0] <= at.end <= bounds[1]

    def nearest(self, at: Position) -> Position | None:
        """The highest position here that is none above ``at``; None when that was deleted."""
        for start in reversed(self._starts):
            if start.term <= at.term:
                lo, hi = self._bounds(start.term) or (0, 0)
                if start.term == at.term:
                    hi = min(hi, at.end)
                if lo <= hi:
                    return Position(start.term, hi)
        return None

    def span(self, at: Position, most: int) -> Position:
        """Up to where the next span behind a position here goes: bytes of one term, or the beginning of the next one.

        :param most: bytes.
        """
        bounds = self._bounds(at.term)
        if bounds is None:
            raise LogsParted(f"this log has no {at}")
        if at.end < bounds[1]:
            return Position(at.term, min(bounds[1], at.end + most))
        following = next((start for start in self._starts if start.term > at.term), None)
        if following is None:
            return at
        lo, hi = self._bounds(following.term) or (0, 0)
        return Position(following.term, min(hi, lo + most))

    def through(self, at: Position) -> Position:
        """The same offset, behind every term that begins there and has no bytes before it."""
        return Position(max(start.term for start in self._starts if start.end <= at.end), at.end)

    def behind(self, end: int) -> Position:
        """An offset here, by the term of the byte before it; where that was deleted, by the one that is told of it."""
        return self.first if end == self.start else Position(self.through(Position(0, end - 1)).term, end)

    # -- changes

    def begin(self, term: int) -> Position:
        """A term begins where the log ends."""
        if term <= self._starts[-1].term:
            raise LogsParted(f"term {term} cannot follow {self.last}")
        self._starts.append(Position(term, self.end))
        return self._starts[-1]

    def grow(self, end: int) -> None:
        """The log goes further."""
        if end < self.end:
            raise LogsParted(f"a log that ends at {self.end} cannot grow to {end}")
        self.end = end

    def cut(self, to: Position) -> None:
        """What comes behind a position here is gone."""
        self._starts = [start for start in self._starts if start.term <= to.term]
        self.end = to.end

    def reset(self, to: Position) -> None:
        """All of it is gone: the log begins anew."""
        self._starts = [to]
        self.start = self.end = to.end

    def forget(self, start: int) -> None:
        """What comes before ``start`` was deleted."""
        self.start = start
        while len(self._starts) > 1 and self._starts[1].end < start:
            del self._starts[0]
