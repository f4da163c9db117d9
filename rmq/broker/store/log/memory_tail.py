"""The newest bytes of the commit log, kept in memory for pulls at the head, dispatch and replication."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["MemoryTail"]

#: Dropped chunks are taken out of the lists when there are this many of them.
_SLACK = 512


class MemoryTail:
    """Chunks as they were written, found by offset.

    :param limit: bytes kept; the newest chunk is kept whatever its size.
    """

    __slots__ = ("_chunks", "_head", "_limit", "_starts", "first", "size")

    def __init__(self, limit: int = 8 << 20) -> None:
        self._limit = limit
        self._starts: list[int] = []
        self._chunks: list[bytes] = []
        self._head = 0
        self.size = 0
        #: Offset of the oldest byte kept; beyond every offset while nothing is kept.
        self.first = 1 << 62

    def add(self, offset: int, data: bytes) -> None:
        """Keep ``data``, which was written at ``offset``; offsets only grow."""
        self._starts.append(offset)
        self._chunks.append(data)
        self.size += len(data)
        if self.size > self._limit:
            self._drop()
        elif self.first > offset:
            self.first = offset

    def _drop(self) -> None:
        head = self._head
        last = len(self._chunks) - 1
        while self.size > self._limit and head < last:
            self.size -= len(self._chunks[head])
            self._chunks[head] = b""
            head += 1
        if head > _SLACK:
            del self._chunks[:head]
            del self._starts[:head]
            head = 0
        self._head = head
        self.first = self._starts[head]

    def read(self, offset: int, size: int) -> bytes | None:
        """``size`` bytes at ``offset``, or None when they are not all kept without a gap."""
        pieces = self.pieces(offset, size)
        if pieces is None or len(pieces) == 1:
            return None if pieces is None else pieces[0]
        return b"".join(pieces)

    def pieces(self, offset: int, size: int) -> list[bytes] | None:
        """The same as they were written, not put together."""
        if offset < self.first:
            return None
        starts = self._starts
        at = bisect_right(starts, offset, self._head) - 1
        if at < self._head:
            return None
        lo = offset - starts[at]
        chunk = self._chunks[at]
        if lo + size <= len(chunk):
            return [chunk[lo : lo + size]]
        parts = [chunk[lo:]]
        have = len(chunk) - lo
        if have <= 0:
            return None
        expected = starts[at] + len(chunk)
        while have < size:
            at += 1
            if at >= len(starts) or starts[at] != expected:
                return None
            chunk = self._chunks[at]
            parts.append(chunk[: size - have])
            have += len(chunk)
            expected += len(chunk)
        return parts

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """The bytes of every (offset, size), or None when one of them is not kept."""
        found: list[bytes] = []
        starts = self._starts
        chunks = self._chunks
        lo = 0
        hi = 0
        chunk = b""
        for offset, size in spans:
            end = offset + size
            if lo <= offset and end <= hi:
                found.append(chunk[offset - lo : end - lo])
                continue
            if offset < self.first:
                return None
            at = bisect_right(starts, offset, self._head) - 1
            if at < self._head:
                return None
            chunk = chunks[at]
            lo = starts[at]
            hi = lo + len(chunk)
            if end <= hi:
                found.append(chunk[offset - lo : end - lo])
                continue
            data = self.read(offset, size)
            if data is None:
                return None
            found.append(data)
        return found

    def rest(self, offset: int, limit: int) -> bytes | None:
        """Up to ``limit`` bytes from ``offset`` to the end of what was written without a gap."""
        if offset < self.first:
            return None
        at = bisect_right(self._starts, offset, self._head) - 1
        if at < self._head:
            return None
        lo = offset - self._starts[at]
        parts = [self._chunks[at][lo : lo + limit]]
        have = len(parts[0])
        if not have:
            return None
        expected = self._starts[at] + len(self._chunks[at])
        while have < limit and at + 1 < len(self._starts) and self._starts[at + 1] == expected:
            at += 1
            part = self._chunks[at][: limit - have]
            parts.append(part)
            have += len(part)
            expected += len(self._chunks[at])
        return b"".join(parts)

    def cut(self, offset: int) -> None:
        """Forget the chunks that reach beyond ``offset``."""
        while len(self._chunks) > self._head and self._starts[-1] + len(self._chunks[-1]) > offset:
            self.size -= len(self._chunks.pop())
            self._starts.pop()
        if len(self._chunks) == self._head:
            self.clear()

    def clear(self) -> None:
        self._starts.clear()
        self._chunks.clear()
        self._head = 0
        self.size = 0
        self.first = 1 << 62
