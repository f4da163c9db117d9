"""What the queues of deleted topics held of each segment of the log, added up before their files are removed.

A start compares the sizes of all entries with the bytes of the log (:mod:`rmq.broker.store.start.queue_loader`): those
of deleted topics are missing there, and :class:`Deletions` knows how many they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.files import BLANK_ENTRY_SIZE, QueueDisk
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import ENTRY_SIZE, PLACE, Queue
from rmq.protocol.errors import StoreError
from rmq.protocol.names import is_lmq
from rmq.runtime.world import Offload

__all__ = ["BuriedQueues"]

log = logging.getLogger(__name__)

_pairs = PLACE.iter_unpack
#: Entries added up before the loop goes on: about a millisecond.
_AT_ONCE = 4096


class BuriedQueues:
    """Adds up the entries of queues that are deleted.

    :param segment: bytes of the log over which they are added up.
    :param shared: entries may point to records of other topics (multi-dispatch), which stay where they are: nothing is
        added up then, and the next start reads what it needs to know.
    """

    def __init__(
        self, offload: Offload, queues: QueueTable, deletions: Deletions, segment: int, *, shared: bool
    ) -> None:
        self._offload = offload
        self._disk: QueueDisk = queues.disk
        self._deletions = deletions
        self._segment = segment
        self._shared = shared

    def count_tails(self, queues: Iterable[Queue], end: int) -> None:
        """Add up the entries of a topic that were in memory only; call it before they are dropped.

        :param end: the topic is deleted up to here.
        """
        for queue in queues:
            if self._counts(queue.topic):
                self._add(bytes(queue.tail), end)

    def _counts(self, topic: str) -> bool:
        """Light queues point to records that are in other queues, too."""
        return not self._shared and not is_lmq(topic)

    async def count(self, graves: Iterable[str]) -> None:
        """Add up what directories hold that are removed next."""
        for grave in graves:
            topic = self._disk.buried_topic(grave)
            # A deletion that a kill has undone has its records dispatched again.
            if topic is not None and self._counts(topic) and (end := self._deletions.end_of(topic)):
                await self._count(grave, end)
        await self._deletions.saved()

    async def _count(self, grave: str, end: int) -> None:
        try:
            for key in await self._offload(self._disk.buried_files, grave):
                (data,) = await self._offload(self._disk.read_files, [key])
                for at in range(0, len(data), _AT_ONCE * ENTRY_SIZE):
                    self._add(data[at : at + _AT_ONCE * ENTRY_SIZE], end)
                    await asyncio.sleep(0)
        except (OSError, StoreError) as error:
            log.warning("%s cannot be read (%s); the next start reads more of the commit log for it", grave, error)

    def _add(self, data: bytes, end: int) -> None:
        sums: dict[int, int] = {}
        for offset, size in _pairs(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]):
            if 0 < size < BLANK_ENTRY_SIZE and offset < end:
                segment = offset - offset % self._segment
                sums[segment] = sums.get(segment, 0) + size
        self._deletions.add(sums)
