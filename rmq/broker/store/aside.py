"""Items that could not be dealt with: each is told of once, with its place, and tried again, while the rest goes on."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from rmq.broker.store.refusal import told
from rmq.protocol.errors import RMQError
from rmq.remoting.limits import Rationed
from rmq.runtime.world import Clock

__all__ = ["SetAside"]

#: Seconds until an item is tried again: at first, and after many tries.
_FIRST_PAUSE = 1.0
_LAST_PAUSE = 60.0
#: Items kept; with more of them it is not the items that are at fault.
_MOST = 10_000
#: Items told of by name in ten seconds: a damaged disk has many.
_TOLD = 20

T = TypeVar("T", bound=Hashable)


class _Item:
    __slots__ = ("at", "pause", "place")

    def __init__(self, place: str, at: float) -> None:
        self.place = place
        self.pause = _FIRST_PAUSE
        #: When it is tried next, monotonic seconds.
        self.at = at


class SetAside(Generic[T]):
    """What one service has set aside. A queue's other items do not wait for it.

    :param log: the log of the service.
    :param what: what it does with an item, with a verb in -ing.
    """

    def __init__(self, clock: Clock, log: logging.Logger, what: str) -> None:
        self._clock = clock
        self._log = log
        self._what = what
        self._items: dict[T, _Item] = {}
        #: No item is due before it.
        self._next = math.inf
        self._notes = Rationed(clock, most=_TOLD)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items))

    @property
    def full(self) -> bool:
        """Whether so many items failed that the fault is not theirs: whoever meets one more waits with all."""
        return len(self._items) >= _MOST

    def failed(self, item: T, place: str, error: Exception) -> None:
        """An item failed, again perhaps.

        :param place: where it is: a topic, queue and offset, or a file.
        """
        now = self._clock.monotonic()
        held = self._items.get(item)
        if held is None:
            held = self._items[item] = _Item(place, now + _FIRST_PAUSE)
            reason = told(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"[:500]
            form = "%s fails for %s: %s; it is tried again, and the others go on"
            if isinstance(error, OSError | RMQError):
                self._notes.say(self._log.error, form, self._what, place, reason)
            else:
                self._notes.say(self._log.exception, form, self._what, place, reason)
        else:
            held.pause = min(2 * held.pause, _LAST_PAUSE)
            held.at = now + held.pause
        self._next = min(self._next, held.at)

    def keep(self, item: T, place: str) -> None:
        """Take over an item that was set aside before a restart: it is tried at once."""
        now = self._clock.monotonic()
        self._items.setdefault(item, _Item(place, now))
        self._next = min(self._next, now)

    def later(self, item: T, seconds: float) -> None:
        """Try an item then: nothing is wrong with it, its time has not come."""
        held = self._items.get(item)
        if held is not None:
            held.at = self._clock.monotonic() + seconds
            self._next = min(self._next, held.at)

    def due(self) -> list[T]:
        """What is to be tried now. Who tries says how it went: :meth:`done`, :meth:`failed` or :meth:`later`."""
        now = self._clock.monotonic()
        if now < self._next:
            return []
        found = []
        for item, held in self._items.items():
            if held.at <= now:
                found.append(item)
                held.at = now + held.pause  # a try that is cut short comes again
        self._next = min((held.at for held in self._items.values()), default=math.inf)
        return found

    def pause(self) -> float | None:
        """Seconds until something is to be tried; None when nothing is set aside."""
        return max(0.001, self._next - self._clock.monotonic()) if self._items else None

    def done(self, item: T) -> None:
        """An item is dealt with, or gone."""
        held = self._items.pop(item, None)
        if held is not None:
            self._notes.say(self._log.info, "%s works for %s at last", self._what, held.place)
