"""Sends what is appended to every slave: at once to one that is waited for, to any other after the answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from rmq.broker.replication.master import Extent, Refused, Why
from rmq.broker.store.store import Store
from rmq.runtime.world import Clock

__all__ = ["Follower", "Pump"]

log = logging.getLogger(__name__)

#: Producers send when the log has grown within so many seconds.
_SENDING = 0.02
#: A slave that is no further behind is waited for, and gets all of it at once.
_NEAR = 512 << 10


class Follower(Protocol):
    """A slave's connection, as far as the pump goes."""

    peer: str

    @property
    def next(self) -> int:
        """What is sent to it next; -1 before it has said where it is."""
        ...

    def fill(self, most: int | None = None) -> None:
        """Send it what there is, some ``most`` bytes of it; by default a turn's part."""
        ...


F = TypeVar("F", bound=Follower)


class Pump(Generic[F]):
    """Runs whenever there is something to send.

    :param followers: every connection, in the order in which each gets its part.
    :param refuse: closes one that cannot be given the log.
    """

    def __init__(
        self, clock: Clock, store: Store, followers: Iterable[F], refuse: Callable[[F, Refused], None]
    ) -> None:
        self._clock = clock
        self._store = store
        self._followers = followers
        self._refuse = refuse
        #: Up to where others can have the log: where it ended when this broker became master, and what was sent since.
        self._given = 0
        self._soon = False
        #: When the log has grown last, monotonic seconds.
        self._grown_at = -_SENDING

    def begin(self) -> None:
        """This broker is master from now on, with the log as it is."""
        self._given = self._store.log.end

    def be_woken(self, wanted: bool) -> None:
        """Whether there is anybody who waits for the log to grow."""
        told = self._store.events.appended
        if wanted and self.wake not in told:
            told.append(self.wake)
        elif not wanted and self.wake in told:
            told.remove(self.wake)

    def wake(self) -> None:
        """The log has grown. A slave that producers wait for has it at once, any other when they have their answers."""
        self._grown_at = self._clock.monotonic()
        followers = list(self._followers)
        waited_for: list[F] = []
        if self._store.settings.sync_master:
            end = self._store.log.end
            waited_for += [one for one in followers if end - one.next <= _NEAR]
            self._fill(waited_for, _NEAR)
        if len(waited_for) < len(followers):
            self.fill_soon()

    def producers_send(self, now: float) -> bool:
        """Whether the log grows at present."""
        return now - self._grown_at < _SENDING

    def fill_soon(self) -> None:
        """There is something to send: once the loop is through with this turn, all of it together."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._soon = False
        self._fill(list(self._followers), None)

    def _fill(self, followers: Iterable[F], most: int | None) -> None:
        for one in followers:
            try:
                one.fill(most)
            except Exception as error:  # of one slave: the others get their part
                log.exception("the commit log could not be sent to the slave at %s", one.peer)
                self._refuse(one, Refused(Why.UNREADABLE, repr(error)))

    def extent(self) -> Extent:
        """What there is of the log."""
        commit_log = self._store.log
        # The log may have been cut back since.
        return Extent(commit_log.start, commit_log.end, min(self._given, commit_log.end), commit_log.file_size)

    def gave(self, end: int) -> None:
        """The log was sent up to ``end``."""
        if end > self._given:
            self._given = end
