"""Where each group's pops go on, and when that is told to the offset table.

The offset that operators see (and that consumerOffset.json holds) follows as soon as the journal's record of the pop is
on the disk: a crash of the machine never leaves an offset behind messages of which nothing else is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.broker.pop.ordered import Place

if TYPE_CHECKING:
    from rmq.broker.groups.offsets import OffsetTable

__all__ = ["Positions"]


class _Position:
    __slots__ = ("offset", "told")

    def __init__(self, offset: int, told: int) -> None:
        self.offset = offset
        #: What the table says because of us, or said before.
        self.told = told


class Positions:
    """The next offset to pop, by group and queue.

    :param offsets: the broker's table. Whoever else writes to it, such as a reset, moves the pops.
    """

    def __init__(self, offsets: OffsetTable) -> None:
        self._offsets = offsets
        self._places: dict[Place, _Position] = {}
        self._pending: deque[tuple[int, int, Place, _Position, int]] = deque()

    def get(self, place: Place) -> int:
        """The next offset to pop, or -1 when the group has none in the queue."""
        told = self._offsets.query(*place)
        known = self._places.get(place)
        if known is None:
            return told
        return known.offset if told == known.told else told

    def advance(self, place: Place, offset: int, end: int, index: int) -> None:
        """The group's pops go on here.

        :param end: the commit-log end behind the journal's record of it.
        :param index: the index of that record.
        """
        told = self._offsets.query(*place)
        known = self._places.get(place)
        if known is None or known.told != told:
            known = self._places[place] = _Position(offset, told)
        else:
            known.offset = offset
        self._pending.append((end, index, place, known, offset))

    def tell(self, durable: int) -> None:
        """Pass on to the table what is on the disk.

        :param durable: the commit log is on disk up to here.
        """
        pending = self._pending
        while pending and pending[0][0] <= durable:
            _, _, place, known, offset = pending.popleft()
            if self._places.get(place) is known and self._offsets.query(*place) == known.told:
                self._offsets.commit(*place, offset)
                known.told = offset

    @property
    def pending(self) -> int:
        """Positions that the table was not told of."""
        return len(self._pending)

    def oldest_pending(self) -> int | None:
        """The journal index of the oldest position that the table was not told of."""
        return self._pending[0][1] if self._pending else None

    def moved(self) -> list[tuple[Place, int]]:
        """Queues whose offset somebody else has changed, with what the table says; each change is told once."""
        found = []
        for place, known in list(self._places.items()):
            told = self._offsets.query(*place)
            if told != known.told:
                found.append((place, told))
                if told < 0:
                    del self._places[place]
                else:
                    # A new object, so that what is pending of the old one is not told any more.
                    self._places[place] = _Position(told, told)
        return found

    def restore(self, place: Place, offset: int) -> None:
        """What the table says of this place comes from the journal."""
        self._places[place] = _Position(offset, offset)

    def forget(self, gone: Callable[[Place], bool]) -> list[Place]:
        """A topic or a group is gone; its places that were known."""
        found = [place for place in self._places if gone(place)]
        for place in found:
            del self._places[place]
        return found
