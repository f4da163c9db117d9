"""The journal of POP: every change of its state, as records of an internal topic.

The state lives in memory; the journal brings it back after a restart. Its records lie in queue 0 of
``rmq_sys_POP_JOURNAL``: a Java broker that opens the directory sees a topic it does not know and leaves it alone. The
body of a record is a JSON array of events, and an event is an array that begins with its kind:

====  =====================================================================================================
kind  what follows
====  =====================================================================================================
p     group, topic, queue id, start, pop time, invisible time, offsets, open bits (hex): a checkpoint as it is
n     group, topic, queue id, offset: the group's pops go on here
x     group, topic, queue id: somebody has removed the group's offset
a     group, topic, queue id, start, pop time, offsets: settled
d     the same: settled because the time was up and the messages were given back
c     group, topic, queue id, start, pop time, offset, new pop time, new invisible time: moved
o     group, topic, queue id, attempt, offsets, pop times, visible times, counts, acknowledged bits (hex): a batch
s     a clean stop
====  =====================================================================================================

Replaying an event twice does no harm. Whatever still matters and was written long ago is written again, so that a
restart reads a bounded piece: it starts at the offset which the group ``CID_RMQ_SYS_POP`` has on the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from rmq.broker.pop.checkpoints import Checkpoints, Key, PopCheckpoint
from rmq.broker.pop.ordered import OrderedBatch, OrderedQueues, Place
from rmq.broker.pop.shapes import check_event
from rmq.broker.store.own import own_message
from rmq.broker.store.state import ENTRY_SIZE, PLACE, Put, Queue
from rmq.protocol.errors import ProtocolError, StoreError
from rmq.protocol.message import decode_record
from rmq.protocol.names import POP_JOURNAL_TOPIC
from rmq.remoting.limits import Rationed

if TYPE_CHECKING:
    from rmq.broker.store.store import Store
    from rmq.broker.topics.table import TopicTable
    from rmq.runtime.world import Clock

__all__ = ["Event", "Journal", "Replayed", "batch_event", "checkpoint_event"]

log = logging.getLogger(__name__)

_entry = PLACE.unpack_from

Event = tuple[Any, ...]

#: Events of one record.
_EVENTS = 200
#: Entries read at a time when the journal is replayed.
_READ = 256


def checkpoint_event(checkpoint: PopCheckpoint) -> Event:
    """A checkpoint as it is now."""
    return ("p", *checkpoint.key, checkpoint.invisible, checkpoint.offsets, f"{checkpoint.open:x}")


def batch_event(batch: OrderedBatch) -> Event:
    """An orderly batch as it is now."""
    return (
        "o", *batch.place, batch.attempt, batch.offsets, batch.pop_times, batch.visible_at, batch.counts,
        f"{batch.acked:x}",
    )  # fmt: skip


class Replayed:
    """What a journal says.

    :param checkpoints: filled.
    :param ordered: filled.
    """

    def __init__(self, checkpoints: Checkpoints, ordered: OrderedQueues) -> None:
        self.checkpoints = checkpoints
        self.ordered = ordered
        #: Where each group's pops go on.
        self.positions: dict[Place, int] = {}
        #: The broker stopped in order: consumerOffset.json is as new as the journal.
        self.clean = True

    def apply(self, event: Sequence[Any], index: int) -> None:
        """Take in one event of the record with this index."""
        kind = event[0]
        self.clean = kind == "s"
        if kind == "s":
            return
        place = Place(event[1], event[2], event[3])
        if kind == "n":
            self.positions[place] = event[4]
        elif kind == "x":
            self.positions.pop(place, None)
        elif kind == "o":
            batch = OrderedBatch(place, event[4], event[5], event[6], event[7], event[8], int(event[9], 16))
            batch.index = index
            self.ordered.put(batch)
        else:
            self._checkpoint(kind, Key(*place, event[4], event[5]), event, index)

    def _checkpoint(self, kind: str, key: Key, event: Sequence[Any], index: int) -> None:
        checkpoints = self.checkpoints
        if kind == "p":
            made = PopCheckpoint(key, event[6], tuple(event[7]), open_=int(event[8], 16))
            made.index = index
            checkpoints.add(made)
            return
        held = checkpoints.get(key)
        if held is None:
            return
        if kind == "c":
            if held.open & held.bit(event[6]):
                own = checkpoints.change(held, event[6], event[7], event[8], 0)
                own.index = index
        elif kind in ("a", "d"):
            checkpoints.settle(held, event[6], 0, expired=kind == "d")
        else:
            raise ValueError(f"unknown kind {kind!r}")


class Journal:
    """Writes and reads the events."""

    def __init__(self, clock: Clock, store: Store, topics: TopicTable, store_host: bytes) -> None:
        self._clock = clock
        self._store = store
        self._topics = topics
        self._host = store_host
        self._notes = Rationed(clock, most=20)
        self._waiting: list[Event] = []
        #: Nothing is written any more: who reads it next has the whole of it.
        self.closed = False
        self._written: asyncio.Future[None] | None = None

    @property
    def queue(self) -> Queue:
        return self._store.queues.get_or_create(POP_JOURNAL_TOPIC, 0)

    def write(self, events: Iterable[Event], puts: Iterable[Put] = ()) -> tuple[int, int]:
        """Append events at once, behind messages that belong to them.

        :returns: the index of the last record in the journal, and the log's end behind it.
        :raises StoreError: the store takes no messages, or the journal is closed.
        :raises OSError: the disk refused.
        """
        if self.closed:
            raise StoreError("the journal of POP is closed")
        events = list(events)
        # Known as a topic, so that nobody takes its queue for a leftover.
        self._topics.create_for_send_back(POP_JOURNAL_TOPIC, 1, 6, 0)
        records = [self._record(events[i : i + _EVENTS]) for i in range(0, len(events), _EVENTS)]
        span = self._store.append([*puts, *records])
        return span.offsets[-1][0], span.end

    def _record(self, events: list[Event]) -> Put:
        return own_message(self.queue, orjson.dumps(events), {}, self._clock.now_ms(), self._host)

    async def soon(self, events: Sequence[Event]) -> None:
        """Append events together with those of others of this turn of the loop; without any, wait for the others'.

        What could not be appended has happened all the same: it goes with what comes next, and whoever asks for the
        same once more is told that it is done when it is.

        :raises StoreError: as :meth:`write`.
        """
        self._waiting += events
        written = self._written
        if written is None:
            if not self._waiting:
                return
            loop = asyncio.get_running_loop()
            written = self._written = loop.create_future()
            loop.call_soon(self._flush)
        await asyncio.shield(written)

    def _flush(self) -> None:
        written, self._written = self._written, None
        events, self._waiting = self._waiting, []
        assert written is not None
        try:
            self.write(events)
        except (StoreError, OSError) as error:
            self._waiting = events + self._waiting
            written.set_exception(StoreError(str(error)))
            # Whoever waited may be gone with its connection: then nobody asks for the error.
            written.exception()
        else:
            written.set_result(None)

    async def replay(self, start: int, into: Replayed) -> int:
        """Read the journal from an index on; how many records were read."""
        queue = self.queue
        index = max(start, queue.min)
        first = index
        count = _READ
        while index < queue.next:
            try:
                records = await self._read(queue, index, min(count, queue.next - index))
            except OSError as error:
                if count > 1:
                    count = 1  # the others around the bad one can be read
                    continue
                self._skipped(index, error)
                index += 1
                continue
            if not records:
                log.error("%s-0 cannot be read from %d on", POP_JOURNAL_TOPIC, index)
                break
            for record in records:
                try:
                    self._apply(record, index, into)
                except (ProtocolError, ValueError) as error:
                    self._skipped(index, error)
                index += 1
        return index - first

    async def _read(self, queue: Queue, index: int, count: int) -> list[bytes]:
        data = await self._store.queues.entries_cold(queue, index, count)
        return [
            await self._store.messages.of_entry(queue, index + number, *_entry(data, number * ENTRY_SIZE))
            for number in range(len(data) // ENTRY_SIZE)
        ]

    @staticmethod
    def _apply(record: bytes, index: int, into: Replayed) -> None:
        """Take in a record's events: all, or none where one of them is no event."""
        events = orjson.loads(decode_record(record).body)
        if not isinstance(events, list):
            raise ValueError("it is no list of events")
        for event in events:
            check_event(event)
        for event in events:
            into.apply(event, index)

    def _skipped(self, index: int, error: Exception) -> None:
        self._notes.say(log.error, "%s-0 at %d is skipped: %s", POP_JOURNAL_TOPIC, index, error)
