"""How large messages are, by topic: counted from queue entries, so that a send costs nothing more for it."""

from __future__ import annotations

import asyncio
from struct import Struct

from rmq.broker.store.queues import QueueTable
from rmq.broker.store.state import ENTRY_SIZE, Queue
from rmq.protocol.names import is_lmq
from rmq.remoting.metrics import Histogram

__all__ = ["COUNT_SECONDS", "SIZE_BOUNDS", "MessageSizes"]

#: How often entries are looked at while metrics are told.
COUNT_SECONDS = 15.0
#: Bytes: the buckets of RocketMQ 5.
SIZE_BOUNDS = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)

_RUN = 1024
_SIZES = Struct(">" + "8xi8x" * _RUN).unpack_from
_size = Struct(">8xi8x").unpack_from
#: Runs counted before the loop gets its turn: about 1 ms.
_RUNS_AT_ONCE = 32
#: Entries that stand for no message have this size.
_FILLER_SIZE = 0x7FFFFFFF


class MessageSizes:
    """Histograms of the stored sizes of messages since the broker started.

    :param queues: whose new entries are looked at. Light message queues hold what others hold, too: not theirs.
    """

    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues
        self._counted: dict[Queue, int] = {}
        self._counting = asyncio.Lock()
        self.by_topic: dict[str, Histogram] = {}

    def begin(self) -> None:
        """What is there now was stored before."""
        self._counted = {queue: queue.next for queue in self._queues}

    async def count(self) -> None:
        """Look at the entries that are new."""
        async with self._counting:
            counted: dict[Queue, int] = {}
            for queue in list(self._queues):
                if not is_lmq(queue.topic):
                    counted[queue] = await self._count(queue, self._counted.get(queue, 0))
            self._counted = counted
            topics = {queue.topic for queue in counted}
            for topic in [topic for topic in self.by_topic if topic not in topics]:
                del self.by_topic[topic]

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
