"""Orderly pops: a queue gives out one batch at a time, and goes on when all of it is acknowledged. No I/O.

Messages that are not acknowledged in time are given out again from their own queue, before anything behind them, to
whoever asks first, once nobody has one of them any more. A client that repeats its request with the same attempt id
gets its batch again at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["OrderedBatch", "OrderedQueues", "Place"]


class Place(NamedTuple):
    """One queue of one group."""

    group: str
    topic: str
    queue_id: int


class OrderedBatch:
    """The messages of a queue that are out; times in ms of the wall clock."""

    __slots__ = ("acked", "attempt", "counts", "index", "offsets", "place", "pop_times", "visible_at")

    def __init__(
        self,
        place: Place,
        attempt: str,
        offsets: Sequence[int],
        pop_times: Sequence[int],
        visible_at: Sequence[int],
        counts: Sequence[int],
        acked: int = 0,
    ) -> None:
        self.place = place
        #: The attempt id of the pop that took it last, "" for none.
        self.attempt = attempt
        self.offsets = list(offsets)
        #: When each was given out last.
        self.pop_times = list(pop_times)
        #: When each may be given out again.
        self.visible_at = list(visible_at)
        #: How often each was given out before the last time.
        self.counts = list(counts)
        self.acked = acked
        #: Where in the journal it was written last.
        self.index = 0

    @property
    def done(self) -> bool:
        return self.acked == (1 << len(self.offsets)) - 1

    @property
    def position(self) -> int:
        """Offset of the first message that is not acknowledged, or behind the last."""
        for i, offset in enumerate(self.offsets):
            if not self.acked >> i & 1:
                return offset
        return self.offsets[-1] + 1

    def waiting(self) -> list[int]:
        """Indexes of what is not acknowledged."""
        return [i for i in range(len(self.offsets)) if not self.acked >> i & 1]


class OrderedQueues:
    """Every queue with a batch that is out."""

    def __init__(self) -> None:
        self._batches: dict[Place, OrderedBatch] = {}
        self._due: list[tuple[int, Place]] = []

    def __iter__(self) -> Iterator[OrderedBatch]:
        """The one written to the journal longest ago first."""
        return iter(self._batches.values())

    def get(self, place: Place) -> OrderedBatch | None:
        return self._batches.get(place)

    def blocked(self, place: Place, attempt: str, now: int) -> bool:
        """Whether the queue gives out nothing now: somebody may still work on a message of the batch."""
        batch = self._batches.get(place)
        if batch is None or (attempt and attempt == batch.attempt):
            return False
        return any(batch.visible_at[i] > now for i in batch.waiting())

    def again(self, place: Place) -> list[int]:
        """Offsets of the batch that is out which are given out again; of a queue that is not blocked."""
        batch = self._batches[place]
        return [batch.offsets[i] for i in batch.waiting()]

    def popped(self, place: Place, attempt: str, offsets: Sequence[int], now: int, invisible: int) -> OrderedBatch:
        """These messages go out: a new batch, or messages of the batch that is out already."""
        batch = self._batches.get(place)
        size = len(offsets)
        if batch is None:
            batch = OrderedBatch(place, attempt, offsets, [now] * size, [now + invisible] * size, [0] * size)
            self.put(batch)
            return batch
        same = bool(attempt) and attempt == batch.attempt
        for offset in offsets:
            i = batch.offsets.index(offset)
            batch.pop_times[i] = now
            batch.visible_at[i] = now + invisible
            if not same:
                batch.counts[i] += 1
        batch.attempt = attempt
        heapq.heappush(self._due, (now + invisible, place))
        return batch

    def put(self, batch: OrderedBatch) -> None:
        """Take in a batch as it is; one that is done ends."""
        self._batches.pop(batch.place, None)
        if batch.done:
            return
        self._batches[batch.place] = batch
        heapq.heappush(self._due, (batch.visible_at[batch.waiting()[0]], batch.place))

    def drop(self, place: Place) -> None:
        self._batches.pop(place, None)

    def rewritten(self, batch: OrderedBatch, index: int) -> None:
        """It stands at the end of the journal now."""
        if self._batches.pop(batch.place, None) is not None:
            self._batches[batch.place] = batch
        batch.index = index

    def find(self, place: Place, offset: int, pop_time: int) -> tuple[OrderedBatch, int] | None:
        """The batch with this message, given out at that time, and the message's place in it."""
        batch = self._batches.get(place)
        if batch is None or offset not in batch.offsets:
            return None
        i = batch.offsets.index(offset)
        return (batch, i) if batch.pop_times[i] == pop_time else None

    def ack(self, batch: OrderedBatch, i: int) -> bool:
        """Acknowledge a message; whether the batch is done with it."""
        batch.acked |= 1 << i
        if batch.done:
            self._batches.pop(batch.place, None)
            return True
        return False

    def change(self, batch: OrderedBatch, i: int, visible_at: int) -> None:
        """Give a message out again at another time."""
        batch.visible_at[i] = visible_at
        heapq.heappush(self._due, (visible_at, batch.place))

    def next_due(self) -> int | None:
        """When the next queue may be free to give its batch out again, ms."""
        return self._due[0][0] if self._due else None

    def take_due(self, now: int) -> list[Place]:
        """Queues that may give something out again."""
        found: dict[Place, None] = {}
        while self._due and self._due[0][0] <= now:
            place = heapq.heappop(self._due)[1]
            if place in self._batches:
                found[place] = None
        return list(found)
