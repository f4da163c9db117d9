"""Reading the store for administration: store times of single messages, hot when possible."""

from __future__ import annotations

from collections.abc import Sequence

from rmq.broker.delivery.read import ReadLimits
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Queue
from rmq.broker.store.store import Store

__all__ = ["Lookup"]

_entry = ENTRY.unpack_from


class Lookup:
    """Answers questions about single queue entries.

    :param store: the broker's store.
    :param limits: say how far behind the log's end a message counts as being in memory.
    """

    def __init__(self, store: Store, limits: ReadLimits) -> None:
        self._store = store
        self._limits = limits

    def queue(self, topic: str, queue_id: int) -> Queue | None:
        return self._store.queues.get(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One beyond the last message consumers are told of; 0 for an unknown queue."""
        queue = self._store.queues.get(topic, queue_id)
        return 0 if queue is None else queue.visible

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._store.queues.get(topic, queue_id)
        return 0 if queue is None else queue.min

    async def entry(self, queue: Queue, index: int) -> tuple[int, int, int] | None:
        """(commit-log offset, size, tags code) of an entry, or None when there is none."""
        found = await self.entries(queue, index, 1)
        return found[0] if found else None

    async def entries(self, queue: Queue, index: int, count: int) -> list[tuple[int, int, int]]:
        """Up to ``count`` entries from ``index`` on."""
        count = min(count, queue.visible - index)
        if index < queue.min or count <= 0:
            return []
        queues = self._store.queues
        data = queues.entries(queue, index, count)
        if data is None:
            data = await queues.entries_cold(queue, index, count)
        return [_entry(data, at) for at in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE)]

    async def store_time(self, queue: Queue | None, index: int) -> int:
        """When a message was stored, ms, or -1 when it cannot be read."""
        if queue is None or not queue.min <= index < queue.visible:
            return -1
        return await self._store.search.time_at(queue, index)

    async def store_times(self, places: Sequence[tuple[Queue | None, int]]) -> list[int]:
        """The same for the messages at many (queue, index)."""
        times = [-1] * len(places)
        there: list[tuple[Queue, int]] = []
        numbers: list[int] = []
        for number, (queue, index) in enumerate(places):
            if queue is not None and queue.min <= index < queue.visible:
                there.append((queue, index))
                numbers.append(number)
        for number, time in zip(numbers, await self._store.search.times_at(there), strict=True):
            times[number] = time
        return times

    async def earliest_time(self, queue: Queue | None) -> int:
        """Store time of a queue's first message, ms, or -1."""
        return -1 if queue is None else await self.store_time(queue, queue.min)

    async def head_is_in_memory(self, queue: Queue | None) -> bool:
        """Whether the first message ever of a queue lies in what counts as memory (store-and-broker.md 8.5).

        A queue that is empty, or not there, has nothing on the disk.
        """
        if queue is None:
            return True
        entry = await self.entry(queue, 0)
        return entry is None or self._store.log.end - entry[0] <= self._limits.memory_bound
