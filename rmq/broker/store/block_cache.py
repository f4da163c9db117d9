"""Blocks of the commit log that pulls read from the page cache, kept for the next pull.

Queues of a topic lie interleaved in the log, so a pull of one queue reads what the pulls of its neighbours need, too,
and every group reads it again. A block is read once, into room that an older one gives up, and handed out as views:
nothing is copied before the answer is put together. Only whole blocks behind the end of the log are kept; those never
change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["BLOCK", "BlockCache"]

_SHIFT = 18
BLOCK = 1 << _SHIFT
_MASK = BLOCK - 1


class BlockCache:
    """The blocks read last.

    :param load: fills the room with the log's bytes at an offset without touching the disk; False when it cannot.
    :param limit: bytes kept.
    """

    __slots__ = ("_blocks", "_load", "_most", "_room")

    def __init__(self, load: Callable[[bytearray, int], bool], limit: int = 16 << 20) -> None:
        self._load = load
        self._most = max(2, limit // BLOCK)
        self._blocks: dict[int, memoryview] = {}
        self._room: list[bytearray] = []

    def clear(self) -> None:
        """Forget everything: the log was cut, or lost its first file."""
        self._blocks.clear()

    def views(self, spans: Sequence[tuple[int, int]], end: int) -> list[bytes | memoryview] | None:
        """The bytes of each (offset, size), offsets ascending; they are good until the next call.

        :param end: the log's end: a block that reaches beyond it is not whole yet.
        :returns: None when a block is cold, not whole or not in one file, or when the spans need more blocks than are
            kept; the caller reads in another way.
        """
        if spans[-1][0] + spans[-1][1] - spans[0][0] > (self._most - 1) * BLOCK:
            return None
        found: list[bytes | memoryview] = []
        add = found.append
        number = -1
        block = memoryview(b"")
        for offset, size in spans:
            wanted = offset >> _SHIFT
            if wanted != number:
                kept = self._take(wanted, end)
                if kept is None:
                    return None
                number = wanted
                block = kept
            at = offset & _MASK
            stop = at + size
            if stop <= BLOCK:
                add(block[at:stop])
                continue
            parts = [block[at:]]
            left = stop - BLOCK
            while left > 0:
                number += 1
                kept = self._take(number, end)
                if kept is None:
                    return None
                block = kept
                parts.append(block[:left])
                left -= BLOCK
            add(b"".join(parts))
        return found

    def _take(self, number: int, end: int) -> memoryview | None:
        """A block, made the newest: what one call hands out is not given up for a later block of that call."""
        blocks = self._blocks
        kept = blocks.pop(number, None)
        if kept is not None:
            blocks[number] = kept
            return kept
        start = number << _SHIFT
        if start + BLOCK > end:
            return None
        if len(blocks) >= self._most:
            oldest = blocks.pop(next(iter(blocks)))
            self._room.append(oldest.obj)  # type: ignore[arg-type]
        room = self._room.pop() if self._room else bytearray(BLOCK)
        if not self._load(room, start):
            self._room.append(room)
            return None
        block = blocks[number] = memoryview(room)
        return block
