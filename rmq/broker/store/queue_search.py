"""Finds entries of a queue by store time (store-and-broker.md 3.5).

Java picks the queue file by its modification time, so that a copied store answers otherwise than the original. Here the
file is the first one whose newest message is not older than the time asked for: what Java's rule means to find. Among
messages of one store time, such as those of a batch, it is 5.x's rule that holds: the first of them, or the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from rmq.broker.store.commit_log import CommitLog
from rmq.broker.store.queue_files import is_blank
from rmq.broker.store.queues import QueueTable
from rmq.broker.store.records import store_time
from rmq.broker.store.state import ENTRY_SIZE, Queue

__all__ = ["QueueSearch"]

_pair = Struct(">qi").unpack_from


class QueueSearch:
    """Searches by time; only what is visible is found."""

    def __init__(self, commit_log: CommitLog, queues: QueueTable) -> None:
        self._log = commit_log
        self._queues = queues

    async def time_at(self, queue: Queue, index: int) -> int:
        """Store time of the message at ``index``, ms, or -1 when it cannot be read."""
        return await self._time_of(await self._queues.entries_cold(queue, index, 1))

    async def times_at(self, places: Sequence[tuple[Queue, int]]) -> list[int]:
        """The same for the messages at many (queue, index)."""
        return [await self._time_of(entry) for entry in await self._queues.single_entries(places)]

    async def _time_of(self, entry: bytes) -> int:
        if len(entry) < ENTRY_SIZE:
            return -1
        offset, size = _pair(entry)
        if is_blank(offset, size) or offset < self._log.start:
            return -1
        data = await self._log.read_cold(offset, min(size, 80))
        return store_time(data) if len(data) >= 76 else -1

    async def earliest_time(self, queue: Queue) -> int:
        """Store time of the first readable message, ms; -1 when there is none."""
        return await self.time_at(queue, queue.min) if queue.min < queue.visible else -1

    async def offset_by_time(self, queue: Queue, time: int, *, upper: bool = False) -> int:
        """Index of the first message stored at ``time`` or later; the queue's end when all are older.

        :param time: ms.
        :param upper: the last message stored at ``time`` or earlier instead; the first one when all are younger, and
            the queue's end when it has none.
        """
        if upper:
            return max(queue.min, await self._first_since(queue, time + 1) - 1)
        return await self._first_since(queue, time)

    async def _first_since(self, queue: Queue, time: int) -> int:
        low, high = queue.min, max(queue.min, queue.visible)
        per_file = self._queues.file_size // ENTRY_SIZE
        # The file first: its last entry is not older than the time asked for.
        while low // per_file < (high - 1) // per_file:
            behind = (low // per_file + 1) * per_file
            if await self.time_at(queue, behind - 1) >= time:
                high = behind
                break
            low = behind
        # A message that cannot be read (-1) is gone, and so are those before it.
        while low < high:
            middle = (low + high) // 2
            if await self.time_at(queue, middle) < time:
                low = middle + 1
            else:
                high = middle
        return low
