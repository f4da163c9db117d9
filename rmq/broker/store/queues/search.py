"""Finds entries of a queue by store time (store-and-broker.md 3.5).

Java picks the queue file by its modification time, so that a copied store answers otherwise than the original. Here the
file is the first one whose newest message is not older than the time asked for: what Java's rule means to find. Among
messages of one store time, such as those of a batch, it is 5.x's rule that holds: the first of them, or the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct

from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.stamps import Steps
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import ENTRY_SIZE, Queue
from rmq.protocol.record import store_time

__all__ = ["QueueSearch"]

_pair = Struct(">qi").unpack_from


class QueueSearch:
    """Searches by time; only what is visible is found."""

    def __init__(self, commit_log: CommitLog, queues: QueueTable, steps: Steps) -> None:
        self._log = commit_log
        self._queues = queues
        self._steps = steps

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
        end = max(queue.min, queue.visible)
        best = -1
        distance = 0
        # Times ascend between the places where they went back; of what is equally near the newest counts.
        for low, high in pairwise((queue.min, *await self._begins(queue), end)):
            found = await self.first_since(queue, low, high, time + upper) - upper
            if low <= found < high or low < found == end:
                away = abs(await self.time_at(queue, min(found, end - 1)) - time)
                if best < 0 or away <= distance:
                    best, distance = found, away
        if best >= 0:
            return best
        return queue.min if upper else end

    async def _begins(self, queue: Queue) -> list[int]:
        """The first message of a queue behind each step back of store times."""
        begins = []
        for offset in self._steps.offsets:
            low, high = queue.min, max(queue.min, queue.visible)
            while low < high:
                middle = (low + high) // 2
                if _pair(await self._queues.entries_cold(queue, middle, 1))[0] < offset:
                    low = middle + 1
                else:
                    high = middle
            begins.append(low)
        return begins

    async def first_since(self, queue: Queue, low: int, high: int, time: int) -> int:
        """Index of the first message from ``low`` to before ``high`` not older than ``time`` (ms), or ``high``."""
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
