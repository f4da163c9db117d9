"""Entries of queues that are on disk, kept in blocks for the pulls that come next.

A consumer that is behind asks for one run of entries after the other, and every group of a topic asks for the same
ones. Entries never change once they are on disk, so a block of them is read once. What is taken from a queue's end, or
deleted with its topic, moves ``QueueTable.cuts``, and everything kept is forgotten.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from rmq.broker.store.state import ENTRY_SIZE, Queue

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rmq.broker.store.queues.queues import QueueTable

__all__ = ["Backlog"]

#: Entries of a block: 20 KiB.
_BLOCK = 1024
#: Blocks kept: 5 MiB.
_MOST_BLOCKS = 256


class _Layouts(dict[int, "Callable[[bytes, int], tuple[Any, ...]]"]):
    """How runs of entries are read, by their number.

    :param entry: the layout of one.
    """

    def __init__(self, entry: str) -> None:
        self._entry = entry

    def __missing__(self, count: int) -> Callable[[bytes, int], tuple[Any, ...]]:
        made = self[count] = Struct(">" + self._entry * count).unpack_from
        return made


_PLAIN = _Layouts("qi8x")
_TAGGED = _Layouts("qi4xI")


class Backlog:
    """Finds runs of entries that are on disk.

    :param queues: where blocks are read.
    """

    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues
        self._blocks: dict[tuple[Queue, int], bytes] = {}
        self._cuts = queues.cuts

    def find(self, queue: Queue, index: int, count: int, *, tags: bool = False) -> tuple[int, ...] | None:
        """The next ``count`` entries from ``index`` on: commit-log offset and size of the first, of the second ...

        :param count: 1 to 1,024.
        :param tags: whether behind each two there is the hash of the tag, too, an unsigned 32-bit number.
        :returns: None when they are not all on disk and in the page cache; ask the queue table then.
        """
        if self._cuts != self._queues.cuts:
            self._cuts = self._queues.cuts
            self._blocks.clear()
        number, at = divmod(index, _BLOCK)
        block = self._blocks.get((queue, number)) or self._read(queue, number)
        if block is None:
            return None
        unpack = (_TAGGED if tags else _PLAIN)[count]
        if at + count <= _BLOCK:
            return unpack(block, at * ENTRY_SIZE)
        following = self._blocks.get((queue, number + 1)) or self._read(queue, number + 1)
        return None if following is None else unpack(block[at * ENTRY_SIZE :] + following, 0)

    def _read(self, queue: Queue, number: int) -> bytes | None:
        first = number * _BLOCK
        if first < queue.min or first + _BLOCK > queue.tail_from:
            return None
        entries = self._queues.entries(queue, first, _BLOCK)
        if entries is None or len(entries) != _BLOCK * ENTRY_SIZE:
            return None
        blocks = self._blocks
        if len(blocks) >= _MOST_BLOCKS:
            del blocks[next(iter(blocks))]
        blocks[queue, number] = entries
        return entries
