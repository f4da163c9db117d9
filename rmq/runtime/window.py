"""A bound on what one sender has under way: whoever comes when it is full waits for a place, in order."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from math import inf
from typing import Protocol

from rmq.protocol.errors import TooManyRequests
from rmq.runtime.patience import LATE, MOST_PUT_OFF
from rmq.runtime.world import Clock

__all__ = ["Entry", "Turn", "Window"]


class Turn(Protocol):
    """What is begun when its turn has come, where the place is given: nothing waits for that."""

    def done(self) -> bool:
        """It was cancelled."""

    def begin(self, timeout: float) -> None:
        """It has its place, and gives it back with :meth:`Window.leave` once it has ended. Never raises."""

    def tell(self, error: TooManyRequests, /) -> None:
        """Its turn did not come."""


class Entry:
    """A place for one send of a thread, which is given back once, wherever a signal handler of that thread raises.

    :param size: KiB.
    """

    __slots__ = ("_back", "_window", "held", "size")

    def __init__(self, window: Window, size: int) -> None:
        self._window = window
        self.size = size
        #: It has its place, and is not the last to which :meth:`Window.enter` gave one: that is noted by the next.
        self.held = False
        self._back = False

    def leave(self, answered: bool = False) -> None:
        """Give the place back, if there is one and it was not. On the loop only, after the thread asked for it."""
        window = self._window
        # In this order: whoever takes its stand as the last has noted before that it is held.
        if (window._entered[2] is self or self.held) and not self._back:
            self._back = True
            window.leave(self.size, answered=answered)


#: A window is looked at so often in the time that somebody waits at most.
_LOOKS = 8
#: Seconds: who comes so close together is of one wave.
_SAME = 0.001
#: Places that are given on the loop in one of its turns: what is made of more than these would stand still until all
#: have it, and what was made first waits longest, in memory and by the clock.
_A_TURN = 256


class _Wave:
    """Those that began to wait together, and for equally long: there may be very many, so this is said of them once."""

    __slots__ = ("count", "since", "timeout")

    def __init__(self, since: float, timeout: float) -> None:
        self.since = since
        self.timeout = timeout
        self.count = 0


class Window:
    """Places for so many sends and so many KiB of them; one that is larger than all may go alone.

    They are given in the order in which they are asked for, and in portions, between which the loop turns. Nobody waits
    for a window that stands still: who has waited for ``timeout`` seconds is told so when nothing that had a place was
    answered in the last ``timeout`` seconds. On the loop only, but for :meth:`enter`: each of the counters is written
    there or by :meth:`enter`, so that the loop waits for no thread.

    :param most: places. :param most_kib: KiB of all that have one.
    :param what: whose it is, for the error: "the producer g".
    """

    def __init__(self, most: int, most_kib: int, clock: Clock, what: str) -> None:
        self._most = most
        self._most_kib = most_kib
        self._clock = clock
        self._what = what
        self._given = self._given_kib = 0
        self._back = self._back_kib = 0
        #: Places and KiB given on threads, ever, and to whom the last. Always written as one: a signal handler that
        #: raises comes before it or behind it, and either way it is known who has a place.
        self._entered: tuple[int, int, Entry] = 0, 0, Entry(self, 0)
        #: Places given in this turn of the loop, or since one that gave a portion; and to those that waited, ever.
        self._portion = 0
        self._woken = 0
        #: A portion was given, or somebody who waited has a place and has not begun yet: who comes now, waits.
        self._pauses = False
        #: Re-entrant: a signal handler may send while the thread that it interrupts is in here.
        self._one_thread = threading.RLock()
        #: What else is to be known of each stands beside them: a future with attributes takes twice as much.
        self._waiting: deque[asyncio.Future[None] | Turn] = deque()
        self._sizes: deque[int] = deque()
        #: Places are being given: what ends meanwhile gives its own back, and whoever gives them goes on.
        self._giving = False
        self._waves: deque[_Wave] = deque()
        #: When something was answered for the last time while somebody waited.
        self._moved = 0.0
        #: Of those that wait, as far as looks go.
        self._shortest = inf
        self._timer: asyncio.TimerHandle | None = None
        self._put_off = 0

    @property
    def used(self) -> int:
        """Places that are taken."""
        return self._given + self._entered[0] - self._back

    @property
    def used_kib(self) -> int:
        return self._given_kib + self._entered[1] - self._back_kib

    def _fits(self, size: int) -> bool:
        entered, entered_kib, _ = self._entered
        used = self._given + entered - self._back
        return used < self._most and (
            self._given_kib + entered_kib - self._back_kib + size <= self._most_kib or used <= 0
        )

    def enter(self, entry: Entry) -> bool:
        """:meth:`take` on a thread that is not the loop's; where it says False, the loop waits (:meth:`turn`).

        Whoever calls it has :meth:`Entry.leave` called on the loop in the end, whatever this gives or raises.
        """
        with self._one_thread:
            if self._waiting or not self._fits(entry.size):
                return False
            entered, entered_kib, last = self._entered
            last.held = True
            self._entered = entered + 1, entered_kib + entry.size, entry
            return True

    def take(self, size: int) -> bool:
        """A place at once, or False: :meth:`turn` waits for one."""
        if self._waiting or self._pauses or not self._fits(size):
            return False
        self._given += 1
        self._given_kib += size
        self._portion += 1
        if self._portion >= _A_TURN:
            self._pause()
        return True

    def run(self, turn: Turn, size: int, timeout: float) -> None:
        """Have something begun at its turn, at once where a place is free.

        :param timeout: seconds, see :meth:`turn`; what is begun is given them.
        """
        if self.take(size):
            turn.begin(timeout)
        else:
            self._wait(turn, size, timeout)

    def turn(self, size: int, timeout: float) -> asyncio.Future[None]:
        """A place to wait for; whoever came before gets one before. :meth:`give_up` is for who is cancelled meanwhile.

        It raises TooManyRequests when the window stands still.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait(place, size, timeout)
        return place

    def _wait(self, place: asyncio.Future[None] | Turn, size: int, timeout: float) -> None:
        now = self._clock.monotonic()
        wave = self._waves[-1] if self._waves else None
        if wave is None or now - wave.since > _SAME or wave.timeout != timeout:
            wave = _Wave(now, timeout)
            self._waves.append(wave)
        wave.count += 1
        self._waiting.append(place)
        self._sizes.append(size)
        if self._fits(self._sizes[0]):  # others of those that wait were cancelled
            self._admit()
        if timeout < self._shortest:
            self._shortest = timeout
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if self._timer is None:
            self._look_in(self._shortest / _LOOKS)

    def give_up(self, place: asyncio.Future[None], size: int) -> None:
        """Whoever waited was cancelled: a place that it got meanwhile is given back."""
        if not place.cancelled() and place.done() and place.exception() is None:
            self.leave(size, answered=False)

    def leave(self, size: int, *, answered: bool) -> None:
        """Give a place back.

        :param answered: by whoever it was sent to, well or not.
        """
        self._back += 1
        self._back_kib += size
        if self._waiting:
            if answered:
                self._moved = self._clock.monotonic()
            self._admit()

    def _admit(self) -> None:
        if self._giving:
            return
        self._giving = True
        waiting, sizes = self._waiting, self._sizes
        try:
            while waiting and (waiting[0].done() or (self._portion < _A_TURN and self._fits(sizes[0]))):
                place, size, wave = self._next()
                if place.done():  # it was cancelled
                    continue
                self._given += 1
                self._given_kib += size
                self._portion += 1
                if isinstance(place, asyncio.Future):
                    self._woken += 1
                    place.set_result(None)
                    self._pause()
                else:
                    if self._portion >= _A_TURN:
                        self._pause()
                    place.begin(wave.timeout)
        finally:
            self._giving = False

    def _pause(self) -> None:
        """Give nothing to who comes now, until those have begun that have a place."""
        if not self._pauses:
            self._pauses = True
            asyncio.get_running_loop().call_soon(self._go_on, self._woken)

    def _go_on(self, woken: int) -> None:
        """A turn of the loop later."""
        self._portion = 0
        self._admit()
        if self._woken == woken and self._portion < _A_TURN:
            self._pauses = False
        else:  # those begin in the turn that comes, before this is called
            asyncio.get_running_loop().call_soon(self._go_on, self._woken)

    def _next(self) -> tuple[asyncio.Future[None] | Turn, int, _Wave]:
        """Take out the first of those that wait."""
        waves = self._waves
        wave = waves[0]
        wave.count -= 1
        if not wave.count:
            waves.popleft()
        return self._waiting.popleft(), self._sizes.popleft(), wave

    # -- a window that stands still -----------------------------------------------------------------------------------

    def _look_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        self._timer = loop.call_at(at, self._look, at)

    def _look(self, at: float) -> None:
        """Tell those for whom it has stood still too long.

        The time of a loop that did not turn is nobody's: what came in meanwhile is read first.
        """
        self._timer = None
        self._admit()
        if not self._waiting:
            self._shortest = inf
            return
        now = self._clock.monotonic()
        if asyncio.get_running_loop().time() - at > LATE and self._put_off < MOST_PUT_OFF:
            self._put_off += 1
            self._moved = now
        else:
            self._put_off = 0
            if now - self._moved >= self._shortest:
                self._tell(now)
        if self._waiting:
            self._look_in(self._shortest / _LOOKS)

    def _tell(self, now: float) -> None:
        self._shortest = inf
        waves: deque[_Wave] = deque()
        for _ in range(len(self._waiting)):
            place, size, wave = self._next()
            if place.done():
                continue
            if now - max(wave.since, self._moved) >= wave.timeout:
                error = self._standing(wave, now)
                if isinstance(place, asyncio.Future):
                    place.set_exception(error)
                else:
                    place.tell(error)
                continue
            self._waiting.append(place)
            self._sizes.append(size)
            if not waves or waves[-1].since != wave.since or waves[-1].timeout != wave.timeout:
                waves.append(_Wave(wave.since, wave.timeout))
            waves[-1].count += 1
            self._shortest = min(self._shortest, wave.timeout)
        self._waves = waves
        self._admit()

    def _standing(self, wave: _Wave, now: float) -> TooManyRequests:
        return TooManyRequests(
            f"{self._what} has {self.used} sends ({self.used_kib} KiB) under way, and none was answered in "
            f"{wave.timeout:g} s: this one waited for its turn for {now - wave.since:.1f} s, and was not sent"
        )
