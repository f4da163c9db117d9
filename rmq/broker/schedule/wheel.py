"""Which waiting message is due next: the order of delivery, without the messages.

A message is known by its index in the queue it waits in. 8 bytes are kept of each: its millisecond within a second and
that index, in an array a second. A million messages take 8 MB, and some more where they lie in many different seconds.
Messages that are due in the same millisecond come in the order in which they were stored.
"""

from __future__ import annotations

from array import array
from collections import Counter
from heapq import heappop, heappush

__all__ = ["Wheel"]

_BITS = 54
_INDEX = (1 << _BITS) - 1


class Wheel:
    """Indexes by due time (ms). What was taken back elsewhere is still handed out: the taker knows."""

    __slots__ = ("_count", "_open", "_opened", "_seconds", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, array[int]] = {}
        self._seconds: list[int] = []  # heap of the keys of _slots
        self._open: list[int] = []  # heap of what lies in seconds that have begun: due << _BITS | index
        self._opened = -1  # the last second that was opened
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due: int, index: int) -> None:
        """Note that the message at ``index`` is due at ``due``, ms."""
        self._count += 1
        second, part = divmod(due, 1000)
        if second <= self._opened:
            heappush(self._open, due << _BITS | index)
            return
        slot = self._slots.get(second)
        if slot is None:
            slot = self._slots[second] = array("Q")
            heappush(self._seconds, second)
        slot.append(part << _BITS | index)

    def take(self, now: int, limit: int) -> list[tuple[int, int]]:
        """Up to ``limit`` messages that are due at ``now``, as (due, index), the earliest first; they are gone."""
        found: list[tuple[int, int]] = []
        opened = self._open
        end = (now + 1) << _BITS
        while len(found) < limit:
            if not opened:
                if not self._seconds or self._seconds[0] > now // 1000:
                    break
                self._open_next()
                continue
            if opened[0] >= end:
                break
            value = heappop(opened)
            found.append((value >> _BITS, value & _INDEX))
        self._count -= len(found)
        return found

    def seconds(self) -> list[tuple[int, int]]:
        """(second, messages due in it), those due first in no order."""
        opened: Counter[int] = Counter((value >> _BITS) // 1000 for value in self._open)
        return [*opened.items(), *((second, len(slot)) for second, slot in self._slots.items())]

    def overdue(self, now: int) -> tuple[int, int]:
        """How many messages are due at ``now`` and not taken, and for how long the first of them has been, ms."""
        soonest = self.next_due()
        if soonest is None or soonest > now:
            return 0, 0
        due = [value >> _BITS for value in self._open if value >> _BITS <= now]
        for second in [second for second in self._seconds if second <= now // 1000]:
            due += [time for value in self._slots[second] if (time := second * 1000 + (value >> _BITS)) <= now]
        return len(due), now - min(due) if due else 0

    def next_due(self) -> int | None:
        """A time, ms, before which nothing is due."""
        due = self._open[0] >> _BITS if self._open else None
        if self._seconds and (due is None or self._seconds[0] * 1000 < due):
            return self._seconds[0] * 1000
        return due

    def _open_next(self) -> None:
        """Sort the next second. Only when the seconds before it are empty: then a sorted list is a heap."""
        second = heappop(self._seconds)
        self._opened = second
        base = second * 1000 << _BITS
        self._open.extend(base + value for value in sorted(self._slots.pop(second)))
