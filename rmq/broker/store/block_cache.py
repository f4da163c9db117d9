"""Blocks of the commit log that pulls read from the page cache, kept for the next pull.

Queues of a topic lie interleaved in the log, so a pull of one queue reads what the pulls of its neighbours need, too,
and every group reads it again. A block is read once and sliced; only whole blocks behind the end of the log are kept,
and those never change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["BLOCK", "BlockCache"]

_SHIFT = 18
BLOCK = 1 << _SHIFT
_MASK = BLOCK - 1


class BlockCache:
    """The blocks read last.

    :param load: reads ``(offset, size)`` without touching the disk; None when it would.
    :param limit: bytes kept.
    """

    __slots__ = ("_blocks", "_load", "_most")

    def __init__(self, load: Callable[[int, int], bytes | None], limit: int = 16 << 20) -> None:
        self._load = load
        self._most = max(2, limit // BLOCK)
        self._blocks: dict[int, bytes] = {}

    def clear(self) -> None:
        """Forget everything: the log was cut, or lost its first file."""
        self._blocks.clear()

    def read_many(self, spans: Sequence[tuple[int, int]], end: int) -> list[bytes] | None:
        """The bytes of each (offset, size), offsets ascending.

        :param end: the log's end: a block that reaches beyond it is not whole yet.
        :returns: None when a block is cold, not whole or not in one file; the caller reads in another way.
        """
        found = []
        number = -1
        block = b""
        for offset, size in spans:
            wanted = offset >> _SHIFT
            if wanted != number:
                kept = self._blocks.get(wanted) or self._fetch(wanted, end)
                if kept is None:
                    return None
                number = wanted
                block = kept
            at = offset & _MASK
            stop = at + size
            if stop <= BLOCK:
                found.append(block[at:stop])
                continue
            parts = [block[at:]]
            left = stop - BLOCK
            while left > 0:
                number += 1
                kept = self._blocks.get(number) or self._fetch(number, end)
                if kept is None:
                    return None
                block = kept
                parts.append(block[:left])
                left -= BLOCK
            found.append(b"".join(parts))
        return found

    def _fetch(self, number: int, end: int) -> bytes | None:
        start = number << _SHIFT
        if start + BLOCK > end:
            return None
        block = self._load(start, BLOCK)
        if block is None or len(block) != BLOCK:
            return None
        blocks = self._blocks
        if len(blocks) >= self._most:
            del blocks[next(iter(blocks))]
        blocks[number] = block
        return block
