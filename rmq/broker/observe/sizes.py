"""How large messages are, by topic: counted from queue entries, so that a send costs nothing more for it."""

from __future__ import annotations

import asyncio
from struct import Struct

from rmq.broker.kinds import SIZE_BOUNDS
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import ENTRY_SIZE, Queue
from rmq.protocol.names import is_lmq
from rmq.remoting.metrics import Histogram

__all__ = ["COUNT_SECONDS", "MessageSizes"]

#: How often entries are looked at while metrics are told.
COUNT_SECONDS = 15.0

_RUN = 1024
_SIZES = Struct(">" + "8xi8x" * _RUN).unpack_from
_size = Struct(">8xi8x").unpack_from
#: Runs counted, and queues looked at, before the loop gets its turn: about 1 ms each.
_RUNS_AT_ONCE = 32
_QUEUES_AT_ONCE = 100
#: Entries that stand for no message have this size.
_FILLER_SIZE = 0x7FFFFFFF


class MessageSizes:
    """Histograms of the stored sizes of messages since the broker started.

    :param queues: whose new entries are looked at. Light message queues hold what others hold, too: not theirs.
    """

    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues
        self._counted: dict[Queue, int] = {}
        self._grown: dict[Queue, None] = {}
        self._counting = asyncio.Lock()
        self.by_topic: dict[str, Histogram] = {}

    def begin(self) -> None:
        """What is there now was stored before."""
        self._grown = self._queues.watch()
        self._queues.on_dropped.append(self._forget)
        self._counted = {queue: queue.next for queue in self._queues}

    def _forget(self, queue: Queue) -> None:
        self._counted.pop(queue, None)
        if not self._queues.all(queue.topic):
            self.by_topic.pop(queue.topic, None)

    async def count(self) -> None:
        """Look at the entries that are new."""
        async with self._counting:
            for at, queue in enumerate(list(self._grown), 1):
                if not at % _QUEUES_AT_ONCE:
                    await asyncio.sleep(0)
                # A queue may be deleted between two looks, or while it is read.
                if queue not in self._grown:
                    continue
                del self._grown[queue]
                if not is_lmq(queue.topic):
                    index = await self._count(queue, self._counted.get(queue, 0))
                    if self._queues.get(queue.topic, queue.id) is queue:
                        self._counted[queue] = index
                    else:
                        self._forget(queue)

    async def _count(self, queue: Queue, index: int) -> int:
        index = max(index, queue.min)
        runs = 0
        while index < queue.next:
            data = await self._queues.entries_cold(queue, index, min(_RUN, queue.next - index))
            have = len(data) // ENTRY_SIZE
            if not have:
                return queue.next
            histogram = self.by_topic.get(queue.topic)
            if histogram is None:
                histogram = self.by_topic[queue.topic] = Histogram(SIZE_BOUNDS)
            sizes = _SIZES(data) if have == _RUN else [_size(data, at * ENTRY_SIZE)[0] for at in range(have)]
            if max(sizes) == _FILLER_SIZE:
                sizes = [size for size in sizes if size != _FILLER_SIZE]
            histogram.add_many(sizes)
            index += have
            runs += 1
            if not runs % _RUNS_AT_ONCE:
                await asyncio.sleep(0)
        return index
