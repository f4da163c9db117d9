"""Finds entries of a queue by store time (store-and-broker.md 3.5).

Java picks the queue file by its modification time, so that a copied store answers otherwise than the original. Here the
file is the first one whose newest message is not older than the time asked for: what Java's rule means to find.
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

    async def offset_by_time(self, queue: Queue, time: int) -> int:
        """Index of the message stored nearest to ``time`` (4.9's rule; a later time than all gives the last message).

        :param time: ms.
        """
        low = queue.min
        high = queue.visible - 1
        if high < low:
            return 0
        per_file = self._queues.file_size // ENTRY_SIZE
        # The file first: its last entry is not older than the time asked for.
        last_file = high // per_file
        at = low // per_file
        while at < last_file:
            if await self.time_at(queue, (at + 1) * per_file - 1) >= time:
                break
            at += 1
        low = max(low, at * per_file)
        high = min(high, (at + 1) * per_file - 1)
        left = right = -1
        left_time = right_time = 0
        while low <= high:
            middle = (low + high) // 2
            found = await self.time_at(queue, middle)
            if found < 0:
                # Its message is gone, and so are those before it.
                low = middle + 1
                left = middle
                left_time = -1
            elif found == time:
                return middle
            elif found > time:
                high = middle - 1
                right, right_time = middle, found
            else:
                low = middle + 1
                left, left_time = middle, found
        if left < 0:
            return right
        if right < 0:
            return left
        if left_time < 0:
            return right
        return left if time - left_time <= right_time - time else right
