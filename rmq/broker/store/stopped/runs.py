"""Sets of numbers that mostly follow each other, kept as runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

__all__ = ["Runs"]


class Runs:
    """Numbers, as ascending ranges that do not touch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, number: int) -> None:
        """Add a number; cheap when it is the one behind the last."""
        starts, ends = self._starts, self._ends
        if ends and ends[-1] == number:
            ends[-1] = number + 1
            return
        at = bisect_right(starts, number)
        if at and number < ends[at - 1]:
            return
        joins_before = at > 0 and ends[at - 1] == number
        joins_behind = at < len(starts) and starts[at] == number + 1
        if joins_before and joins_behind:
            ends[at - 1] = ends.pop(at)
            del starts[at]
        elif joins_before:
            ends[at - 1] = number + 1
        elif joins_behind:
            starts[at] = number
        else:
            starts.insert(at, number)
            ends.insert(at, number + 1)

    def clear(self) -> None:
        self._starts.clear()
        self._ends.clear()

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number)
        return at > 0 and number < self._ends[at - 1]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Ranges, from the first number up to, not including, the second."""
        return iter(list(zip(self._starts, self._ends, strict=True)))
