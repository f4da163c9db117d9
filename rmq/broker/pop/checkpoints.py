"""What was popped and is not settled yet: the invisible-time logic, as a state machine without I/O.

A :class:`PopCheckpoint` is what one pop took from one queue. Each of its messages is open until it is acknowledged,
moved to a checkpoint of its own by a change of its invisible time, or given back when the time is up. Checkpoints are
found by a key that no two living ones share, never by their deadline: any number of them may be due in the same
millisecond.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

__all__ = ["Checkpoints", "Key", "Outcome", "PopCheckpoint"]


class Key(NamedTuple):
    """Names a checkpoint; everything in it is told to the client, and shown by it again."""

    group: str
    topic: str
    queue_id: int
    start: int
    pop_time: int


class Outcome(Enum):
    """What became of an acknowledgement."""

    #: The message was open and is settled now.
    SETTLED = "settled"
    #: It had been settled before.
    AGAIN = "again"
    #: The time was up: the message was or will be given out again, under another handle.
    EXPIRED = "expired"


class PopCheckpoint:
    """Messages of one queue that one pop gave out; times in ms of the wall clock."""

    __slots__ = ("index", "invisible", "key", "offsets", "open", "was")

    def __init__(self, key: Key, invisible: int, offsets: tuple[int, ...], *, open_: int | None = None) -> None:
        self.key = key
        self.invisible = invisible
        #: Queue offsets, ascending.
        self.offsets = offsets
        #: Bit i: the message at ``offsets[i]`` is not settled.
        self.open = (1 << len(offsets)) - 1 if open_ is None else open_
        #: Where in the journal it was written last.
        self.index = 0
        #: The handles this message had before its invisible time was changed.
        self.was: list[tuple[Key, int, int]] = []

    @property
    def deadline(self) -> int:
        return self.key.pop_time + self.invisible

    def open_offsets(self) -> list[int]:
        return [offset for i, offset in enumerate(self.offsets) if self.open >> i & 1]

    def bit(self, offset: int) -> int:
        """The bit of an offset, 0 when it is not one of these."""
        try:
            return 1 << self.offsets.index(offset)
        except ValueError:
            return 0

    def __repr__(self) -> str:
        return f"<checkpoint {self.key} {self.offsets} open={self.open:b}>"


class Checkpoints:
    """All checkpoints of a broker that have an open message."""

    def __init__(self) -> None:
        self._table: dict[Key, PopCheckpoint] = {}
        self._due: list[tuple[int, int, PopCheckpoint]] = []
        self._sequence = 0
        #: (old key, offset) to the checkpoint of its own that a message got, None once that one has expired.
        self._moved: dict[tuple[Key, int], PopCheckpoint | None] = {}
        #: When entries of ``_moved`` whose message is settled may be forgotten.
        self._forget: list[tuple[int, int, tuple[Key, int]]] = []
        self._in_flight: dict[tuple[str, str, int], int] = {}

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[PopCheckpoint]:
        """The one written to the journal longest ago first."""
        return iter(self._table.values())

    def get(self, key: Key) -> PopCheckpoint | None:
        return self._table.get(key)

    def in_flight(self, group: str, topic: str, queue_id: int) -> int:
        """Open messages of a group in a queue."""
        return self._in_flight.get((group, topic, queue_id), 0)

    def free_pop_time(self, pops: Iterable[tuple[str, str, int, int]], now: int) -> int:
        """The pop time for checkpoints that start at these (group, topic, queue id, start): now, or a little later."""
        pops = list(pops)
        while any(Key(*pop, now) in self._table or (Key(*pop, now), pop[3]) in self._moved for pop in pops):
            now += 1
        return now

    def add(self, checkpoint: PopCheckpoint) -> None:
        """Take in a checkpoint, in place of one with its key (a journal may say the same twice)."""
        old = self._table.pop(checkpoint.key, None)
        if old is not None:
            self._count(old.key, -old.open.bit_count())
            old.open = 0
            checkpoint.was = old.was
            for key, offset, _ in old.was:
                self._moved[key, offset] = checkpoint
        if not checkpoint.open:
            return
        self._table[checkpoint.key] = checkpoint
        self._count(checkpoint.key, checkpoint.open.bit_count())
        self._schedule(checkpoint, checkpoint.deadline)

    def rewritten(self, checkpoint: PopCheckpoint, index: int) -> None:
        """It stands at the end of the journal now."""
        if self._table.pop(checkpoint.key, None) is not None:
            self._table[checkpoint.key] = checkpoint
        checkpoint.index = index

    def find(self, key: Key, offset: int) -> PopCheckpoint | None:
        """The checkpoint in which a message is open that was given out with this handle."""
        checkpoint = self._table.get(key)
        if checkpoint is not None and checkpoint.open & checkpoint.bit(offset):
            return checkpoint
        seen = 0
        moved = self._moved.get((key, offset))
        while moved is not None and not moved.open and seen < 1000:
            moved = self._moved.get((moved.key, offset))
            seen += 1
        return moved if moved is not None and moved.open & moved.bit(offset) else None

    def ack(self, key: Key, offset: int, deadline: int, now: int) -> tuple[Outcome, PopCheckpoint | None]:
        """Settle a message.

        :param deadline: what the handle says.
        :returns: the outcome, and the checkpoint when this call has settled it.
        """
        checkpoint = self.find(key, offset)
        if checkpoint is not None:
            self.settle(checkpoint, (offset,), now)
            return Outcome.SETTLED, checkpoint
        if (key, offset) in self._moved and self._moved[key, offset] is None:
            return Outcome.EXPIRED, None
        # Of a checkpoint that is gone nothing is kept. While its time runs it is gone because everything of it is
        # settled; afterwards it may be because the messages were given back.
        held = self._table.get(key)
        known = held is not None and held.bit(offset) != 0
        return (Outcome.AGAIN if known or now < deadline else Outcome.EXPIRED), None

    def settle(self, checkpoint: PopCheckpoint, offsets: Iterable[int], now: int, *, expired: bool = False) -> None:
        """Close messages of a checkpoint.

        :param expired: they were given back, not acknowledged.
        """
        closed = 0
        for offset in offsets:
            closed |= checkpoint.bit(offset)
        closed &= checkpoint.open
        if not closed:
            return
        checkpoint.open &= ~closed
        self._count(checkpoint.key, -closed.bit_count())
        if checkpoint.open:
            return
        self._table.pop(checkpoint.key, None)
        for key, offset, until in checkpoint.was:
            self._sequence += 1
            if expired:
                self._moved[key, offset] = None
            heapq.heappush(self._forget, (max(until, now), self._sequence, (key, offset)))
        while self._forget and self._forget[0][0] < now:
            self._moved.pop(heapq.heappop(self._forget)[2], None)

    def change(self, checkpoint: PopCheckpoint, offset: int, pop_time: int, invisible: int, now: int) -> PopCheckpoint:
        """Give a message a checkpoint of its own, with a new deadline; handles it had keep working.

        :param checkpoint: where it is open, as :meth:`find` said.
        :param pop_time: from :meth:`free_pop_time`.
        """
        key = checkpoint.key._replace(start=offset, pop_time=pop_time)
        own = PopCheckpoint(key, invisible, (offset,))
        own.was = [(checkpoint.key, offset, checkpoint.deadline)]
        if len(checkpoint.offsets) == 1:
            own.was += checkpoint.was[-7:]
            checkpoint.was = checkpoint.was[:-7]
        for old, moved, _ in own.was:
            self._moved[old, moved] = own
        self.settle(checkpoint, (offset,), now)
        self.add(own)
        return own

    def in_flight_by_group(self) -> dict[tuple[str, str], int]:
        """Open messages by (group, topic)."""
        found: Counter[tuple[str, str]] = Counter()
        for (group, topic, _), count in self._in_flight.items():
            found[group, topic] += count
        return found

    def overdue(self, now: int) -> tuple[int, int]:
        """How many checkpoints are past their deadline, and for how long the first of them has been, ms."""
        first = self.next_deadline()
        if first is None or first > now:
            return 0, 0
        return sum(when <= now and one.open != 0 for when, _, one in self._due), now - first

    def next_deadline(self) -> int | None:
        """When the next checkpoint is due, ms."""
        while self._due and not self._due[0][2].open:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def take_due(self, now: int, limit: int) -> list[PopCheckpoint]:
        """Up to ``limit`` checkpoints whose time is up; whoever takes them settles them, or calls :meth:`later`."""
        found: list[PopCheckpoint] = []
        while self._due and len(found) < limit and (self._due[0][0] <= now or not self._due[0][2].open):
            checkpoint = heapq.heappop(self._due)[2]
            if checkpoint.open:
                found.append(checkpoint)
        return found

    def later(self, checkpoint: PopCheckpoint, when: int) -> None:
        """Look at a due checkpoint again: it could not be given back."""
        if checkpoint.open:
            self._schedule(checkpoint, when)

    def _schedule(self, checkpoint: PopCheckpoint, when: int) -> None:
        self._sequence += 1
        heapq.heappush(self._due, (when, self._sequence, checkpoint))
        if len(self._due) > 2 * len(self._table) + 1024:
            self._due = [item for item in self._due if item[2].open]
            heapq.heapify(self._due)

    def _count(self, key: Key, change: int) -> None:
        place = (key.group, key.topic, key.queue_id)
        count = self._in_flight.get(place, 0) + change
        if count > 0:
            self._in_flight[place] = count
        else:
            self._in_flight.pop(place, None)
