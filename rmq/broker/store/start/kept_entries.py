"""Queue entries that point to what of the commit log cannot be read: nothing can make them anew, so they stay.

What they point to may be there, and the disk may give it one day. A start compares queues with the log without them,
and puts them back when it makes the queues around them anew: so no offset is used twice, and what can be read again is
served. Where entries are lost as well, nobody knows how many messages there are, nor of which queues: each queue of
which nothing lies behind the place goes on as far behind its end as there is room for messages of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import aclosing

from rmq.broker.store.log.reader import Damage
from rmq.broker.store.queues.files import BLANK_ENTRY, is_blank
from rmq.broker.store.queues.pointing import entries_into, overwrite, piece_end
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.state import ENTRY_SIZE, PLACE, Queue
from rmq.protocol.names import is_lmq
from rmq.runtime.world import Offload

__all__ = ["KeptEntries"]

log = logging.getLogger(__name__)

_pair = PLACE.unpack_from
#: Entries looked at before the loop goes on.
_AT_ONCE = 1000
#: Entries that are left blank for what nobody knows, in all queues together: 20 MB.
_MOST_RESERVED = 1 << 20
#: Bytes that every record has at least.
_LEAST_RECORD = 91


class KeptEntries:
    """What the queues of one start say of places that cannot be read.

    :param segment: bytes of the log over which entries are added up.
    """

    def __init__(self, queues: QueueTable, offload: Offload, segment: int) -> None:
        self._queues = queues
        self._offload = offload
        self._segment = segment
        #: Runs of each queue, as (index of the first, entries side by side), ascending.
        self._runs: dict[Queue, list[tuple[int, bytearray]]] = {}
        #: Part -> bytes of records that they point to in it.
        self._known: dict[Damage, int] = {}
        #: Segment -> bytes of records that they point to, and the same of those of light message queues.
        self._sizes: dict[int, int] = {}
        self._light: dict[int, int] = {}
        #: Some were put back.
        self.moved = False

    async def note(self, parts: Iterable[Damage]) -> None:
        """Look for the entries that point into parts of the log.

        :param parts: ascending; none overlaps another.
        :raises OSError: a queue cannot be read.
        """
        looked_at = 0
        for part in parts:
            self._known[part] = 0
            for queue in list(self._queues):
                async with aclosing(entries_into(self._queues, queue, *part)) as entries:
                    async for index, entry in entries:
                        self.keep(queue, index, entry)
                        if not is_lmq(queue.topic):
                            self._known[part] += _pair(entry)[1]
                        looked_at += 1
                        if looked_at % _AT_ONCE == 0:
                            await asyncio.sleep(0)

    def keep(self, queue: Queue, index: int, entry: bytes) -> None:
        """Keep an entry; those of a queue come by index."""
        runs = self._runs.setdefault(queue, [])
        if runs and runs[-1][0] + len(runs[-1][1]) // ENTRY_SIZE == index:
            runs[-1][1].extend(entry)
        else:
            runs.append((index, bytearray(entry)))
        offset, size = _pair(entry)
        sizes = self._light if is_lmq(queue.topic) else self._sizes
        segment = offset - offset % self._segment
        sizes[segment] = sizes.get(segment, 0) + size

    def apart(self, covered: Mapping[int, int], *, light: bool = False) -> Mapping[int, int]:
        """What queues say is in each segment of the log, without the kept entries."""
        kept = self._light if light else self._sizes
        return {segment: size - kept.get(segment, 0) for segment, size in covered.items()} if kept else covered

    def put_first(self) -> None:
        """Queues were cut: put those back that come next in theirs, before anything that lies behind them."""
        for queue, runs in self._runs.items():
            for first, entries in runs:
                count = len(entries) // ENTRY_SIZE
                if first <= queue.next < first + count:
                    self._add(queue, queue.next, entries[(queue.next - first) * ENTRY_SIZE :])

    async def put_back(self) -> None:
        """Have them where they were: in place of blank ones, and behind the end of a queue.

        :raises OSError: a queue cannot be written.
        """
        for queue, runs in self._runs.items():
            for first, entries in runs:
                index = max(first, queue.min)
                end = first + len(entries) // ENTRY_SIZE
                while index < min(end, queue.next):
                    stop = min(end, piece_end(self._queues, queue, index))
                    await self._fill(queue, index, entries[(index - first) * ENTRY_SIZE : (stop - first) * ENTRY_SIZE])
                    index = stop
                self._queues.filled(queue, end)
                if index < end:
                    self._add(queue, index, entries[(index - first) * ENTRY_SIZE :])

    async def reserve(self) -> None:
        """Have no offset given twice that a message has of which nothing is left but its record in such a place.

        :raises OSError: a queue cannot be read.
        """
        for part, known in self._known.items():
            unknown = part.end - part.start - known
            ended = [queue for queue in self._queues if queue.max_phys < part.end]
            if unknown <= 0 or not ended:
                continue
            most = _MOST_RESERVED // len(ended)
            reserved = False
            for queue in ended:
                room = min(unknown // queue.overhead, most)
                free = room - await self._blank_at_end(queue, room)
                if free > 0 and queue.next > queue.min:
                    queue.tail += BLANK_ENTRY * free
                    queue.next += free
                    self._queues.note([queue], free)
                    self.moved = reserved = True
            if reserved:
                log.warning(
                    "entries of messages between %d and %d, which cannot be read, are lost: queues without any behind "
                    "go on with higher offsets, %d at most, so that none is given twice",
                    part.start, part.end, min(unknown // _LEAST_RECORD, most),
                )  # fmt: skip

    async def _blank_at_end(self, queue: Queue, most: int) -> int:
        """How many entries at a queue's end are blank, up to ``most``: an earlier start has left them so."""
        for count in range(most):
            index = queue.next - 1 - count
            if index < queue.min or not is_blank(*_pair(await self._queues.entries_cold(queue, index, 1))):
                return count
        return most

    async def _fill(self, queue: Queue, index: int, entries: bytearray) -> None:
        """Put entries in place of blank ones; others that are there now stay."""
        there = await self._queues.entries_cold(queue, index, len(entries) // ENTRY_SIZE)
        filled = b"".join(
            bytes(entries[at : at + ENTRY_SIZE]) if there.startswith(BLANK_ENTRY, at) else there[at : at + ENTRY_SIZE]
            for at in range(0, len(there), ENTRY_SIZE)
        )
        if filled != there:
            self.moved = True
            await overwrite(self._queues, self._offload, queue, index, filled)

    def _add(self, queue: Queue, index: int, entries: bytearray) -> None:
        self.moved = True
        gap = index - queue.next
        queue.tail += BLANK_ENTRY * gap + entries
        queue.next = index + len(entries) // ENTRY_SIZE
        offset, size = _pair(entries, len(entries) - ENTRY_SIZE)
        queue.max_phys = offset + size
        self._queues.note([queue], gap + len(entries) // ENTRY_SIZE)
