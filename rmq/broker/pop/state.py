"""The state of POP as one piece: checkpoints, orderly batches, positions, and the journal that brings them back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.broker.pop.checkpoints import Checkpoints, PopCheckpoint
from rmq.broker.pop.journal import (
    Event,
    Journal,
    Replayed,
    batch_event,
    checkpoint_event,
)
from rmq.broker.pop.ordered import OrderedBatch, OrderedQueues, Place
from rmq.broker.pop.positions import Positions
from rmq.protocol.errors import StoreError
from rmq.protocol.names import POP_JOURNAL_GROUP, POP_JOURNAL_TOPIC

if TYPE_CHECKING:
    from rmq.broker.groups.offsets import OffsetTable
    from rmq.broker.store.store import Store
    from rmq.broker.topics.table import TopicTable
    from rmq.runtime.world import Clock

__all__ = ["PopState"]

log = logging.getLogger(__name__)

#: Open messages of a group in one queue, and checkpoints of the broker: beyond it nothing more is given out.
_MOST_OPEN = 10_000
_MOST_CHECKPOINTS = 200_000
#: Records of the journal behind which what still matters is written again.
_REWRITE_AFTER = 10_000
#: Checkpoints written again before the loop gets its turn.
_REWRITE_AT_ONCE = 500
#: Passes of :meth:`PopState.keep_short` after which the start of the journal moves: by then consumerOffset.json holds
#: the positions whose records lie before it.
_PASSES = 3


class PopState:
    """What a restart must find again.

    :param offsets: the broker's table: positions are told to it, and the start of the journal is kept in it.
    """

    def __init__(self, clock: Clock, store: Store, topics: TopicTable, offsets: OffsetTable, store_host: bytes) -> None:
        self._store = store
        self._offsets = offsets
        self.checkpoints = Checkpoints()
        self.ordered = OrderedQueues()
        self.positions = Positions(offsets)
        self.journal = Journal(clock, store, topics, store_host)
        self._starts: deque[int] = deque()
        self._offset_changes = -1
        self._full: set[Place] = set()
        #: Pops (CK) and acknowledgements (ACK) since start, by (kind, group, topic).
        self.written: Counter[tuple[str, str, str]] = Counter()

    def forget_counts(self, gone: str) -> None:
        """Drop what was counted for a deleted topic or group."""
        for key in [key for key in self.written if gone in key[1:]]:
            del self.written[key]

    def is_full(self, place: Place) -> bool:
        """Whether a queue gives out nothing because so much of it is open; :meth:`has_room_again` tells the end."""
        if len(self.checkpoints) < _MOST_CHECKPOINTS and self.checkpoints.in_flight(*place) < _MOST_OPEN:
            return False
        self._full.add(place)
        return True

    def has_room_again(self, place: Place) -> bool:
        """True once for a queue that was full."""
        if place not in self._full or self.checkpoints.in_flight(*place) >= _MOST_OPEN:
            return False
        self._full.discard(place)
        return True

    async def load(self) -> None:
        """Bring the state back from the journal; the store is recovered, the offset table read."""
        if self._store.queues.get(POP_JOURNAL_TOPIC, 0) is None:
            return
        replayed = Replayed(self.checkpoints, self.ordered)
        start = max(self._offsets.query(POP_JOURNAL_GROUP, POP_JOURNAL_TOPIC, 0), 0)
        read = await self.journal.replay(start, replayed)
        if not replayed.clean:
            # consumerOffset.json is some seconds old; whatever else moved an offset stands in the journal, too.
            for place, told in replayed.positions.items():
                queue = self._store.queues.get(place.topic, place.queue_id)
                offset = min(told, 0 if queue is None else queue.next)
                if offset < told:
                    log.warning("the journal of POP says %d for %s, behind the end: %d it is", told, place, offset)
                self._offsets.commit(*place, offset)
                self.positions.restore(place, offset)
        if read:
            log.info("%d records of the journal of POP read: %d checkpoints are open", read, len(self.checkpoints))

    def write(self, events: list[Event], positions: dict[Place, int]) -> int:
        """Journal events that move positions; the index of their last record.

        :raises StoreError: the store takes no messages; nothing is changed.
        """
        index, end = self.journal.write([*events, *(("n", *place, offset) for place, offset in positions.items())])
        for place, offset in positions.items():
            self.positions.advance(place, offset, end, index)
        return index

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: nothing of it is given out again, not even when it is made anew."""
        self._forget(f"topic {topic}", lambda place: place.topic == topic)

    def forget_group(self, group: str) -> None:
        """A group was deleted with its offsets: it would begin anew."""
        self._forget(f"group {group}", lambda place: place.group == group)

    def _forget(self, what: str, gone: Callable[[Place], bool]) -> None:
        events: list[Event] = []
        for checkpoint in [one for one in self.checkpoints if gone(Place(*one.key[:3]))]:
            offsets = checkpoint.open_offsets()
            events.append(("d", *checkpoint.key, offsets))
            self.checkpoints.settle(checkpoint, offsets, 0, expired=True)
        for batch in [batch for batch in self.ordered if gone(batch.place)]:
            batch.acked = (1 << len(batch.offsets)) - 1
            self.ordered.drop(batch.place)
            events.append(batch_event(batch))
        events += (("x", *place) for place in self.positions.forget(gone))
        self._full = {place for place in self._full if not gone(place)}
        if events:
            try:
                self.journal.write(events)
            except (StoreError, OSError) as error:
                log.warning("it was not noted that %s is gone: %s", what, error)

    def tell(self) -> None:
        """Tell the offset table what is on the disk by now, and notice who else has written to it."""
        self.positions.tell(self._store.durable_end())
        if self._offsets.changes == self._offset_changes:
            return
        moved = self.positions.moved()
        if moved:
            try:
                self.journal.write([("n", *place, offset) if offset >= 0 else ("x", *place) for place, offset in moved])
            except (StoreError, OSError) as error:
                log.warning("it was not noted that %d offsets were moved: %s", len(moved), error)
        self._offset_changes = self._offsets.changes

    async def keep_short(self) -> None:
        """Write again what still matters at the journal's beginning, and move the beginning up."""
        queue = self._store.queues.get(POP_JOURNAL_TOPIC, 0)
        if queue is None or not queue.next:
            return
        while queue.next - self._oldest(queue.next) > _REWRITE_AFTER:
            self._rewrite(queue.next - _REWRITE_AFTER // 2)
            await asyncio.sleep(0)
        start = self._oldest(queue.next)
        pending = self.positions.oldest_pending()
        if pending is not None:
            start = min(start, pending)
        self._starts.append(start)
        if len(self._starts) > _PASSES:
            self._offsets.commit(POP_JOURNAL_GROUP, POP_JOURNAL_TOPIC, 0, min(self._starts.popleft(), start))

    def _oldest(self, behind: int) -> int:
        """Index of the oldest record that still matters."""
        checkpoint = next(iter(self.checkpoints), None)
        batch = next(iter(self.ordered), None)
        return min(
            behind,
            checkpoint.index if checkpoint is not None else behind,
            batch.index if batch is not None else behind,
        )

    def _rewrite(self, below: int) -> None:
        checkpoints: list[PopCheckpoint] = []
        for checkpoint in self.checkpoints:
            if checkpoint.index >= below or len(checkpoints) >= _REWRITE_AT_ONCE:
                break
            checkpoints.append(checkpoint)
        batches: list[OrderedBatch] = []
        for batch in self.ordered:
            if batch.index >= below or len(batches) >= _REWRITE_AT_ONCE:
                break
            batches.append(batch)
        index, _ = self.journal.write([*map(checkpoint_event, checkpoints), *map(batch_event, batches)])
        # The first of several records is what a restart must not miss.
        index -= (len(checkpoints) + len(batches)) // 200 + 1
        for checkpoint in checkpoints:
            self.checkpoints.rewritten(checkpoint, index)
        for batch in batches:
            self.ordered.rewritten(batch, index)

    async def stop(self) -> None:
        """Tell everything, and say that the stop was a clean one; nothing is written after that."""
        try:
            self._finish()
        finally:
            self.journal.closed = True

    def _finish(self) -> None:
        if self._store.log.gate or self._store.queues.get(POP_JOURNAL_TOPIC, 0) is None:
            return
        self.tell()
        self.positions.tell(self._store.log.end)
        try:
            self.journal.write([("s",)])
        except (StoreError, OSError) as error:
            log.warning("the journal of POP could not be closed: %s", error)
