"""Which messages of a queue are dealt with: a bit for each, from the first that is not.

The marks that are stored say it as text: decimal indexes and ranges, such as ``4,7-9``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmq.protocol.numbers import whole

__all__ = ["DoneMap", "decode_marks", "encode_marks"]

#: Whole bytes in front that are let go at a time.
_TRIM = 1 << 16


def encode_marks(indexes: Iterable[int]) -> bytes:
    """Indexes as the text of a mark."""
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges).encode()


def decode_marks(text: bytes, end: int) -> list[range]:
    """The ranges of a mark.

    :param end: one beyond the last index that there is: a mark of others is none of ours.
    :raises ValueError: it is no mark.
    """
    ranges = []
    for part in text.split(b","):
        first, dash, last = part.partition(b"-")
        low = whole(first, end - 1)
        high = whole(last, end - 1) if dash else low
        if low is None or high is None:
            raise ValueError(f"{part[:40]!r} names no message of {end}")
        ranges.append(range(low, high + 1))
    return ranges


class DoneMap:
    """Done or not, from ``floor`` on: everything before it is done.

    :param floor: the first index that may not be done.
    """

    __slots__ = ("_base", "_bits", "floor")

    def __init__(self, floor: int = 0) -> None:
        self._base = floor // 8 * 8
        self._bits = bytearray()
        #: First index that is not done.
        self.floor = floor

    def __contains__(self, index: int) -> bool:
        if index < self.floor:
            return True
        at = (index - self._base) // 8
        return at < len(self._bits) and bool(self._bits[at] >> (index - self._base) % 8 & 1)

    def add(self, index: int) -> None:
        if index < self.floor:
            return
        at = (index - self._base) // 8
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 1 - len(self._bits)))
        self._bits[at] |= 1 << (index - self._base) % 8
        if index == self.floor:
            self._advance()

    def add_all(self, indexes: range) -> None:
        """The same for many that follow each other, in about the time that one takes."""
        start, stop = max(indexes.start, self.floor), indexes.stop
        first, last = -(-(start - self._base) // 8), (stop - self._base) // 8
        if first < last:
            if last > len(self._bits):
                self._bits.extend(bytes(last - len(self._bits)))
            self._bits[first:last] = b"\xff" * (last - first)
            for index in (*range(self._base + 8 * last, stop), *range(start, self._base + 8 * first)):
                self.add(index)
            self._advance()
        else:
            for index in range(start, stop):
                self.add(index)

    def skip_to(self, index: int) -> None:
        """Everything before ``index`` is gone, done or not."""
        if index <= self.floor:
            return
        self.floor = index
        self._advance()

    def missing(self, begin: int, end: int) -> Iterator[int]:
        """The indexes from ``begin`` to before ``end`` that are not done."""
        index = max(begin, self.floor)
        while index < end:
            at = (index - self._base) // 8
            if at < len(self._bits) and self._bits[at] == 0xFF:
                index = self._base + 8 * at + 8
                continue
            if index not in self:
                yield index
            index += 1

    def _advance(self) -> None:
        bits, base, floor = self._bits, self._base, self.floor
        while (at := (floor - base) // 8) < len(bits):
            if bits[at] == 0xFF:
                floor = base + 8 * at + 8
            elif bits[at] >> (floor - base) % 8 & 1:
                floor += 1
            else:
                break
        self.floor = floor
        whole = (floor - base) // 8
        if whole >= _TRIM:
            del bits[:whole]
            self._base = base + 8 * whole
