"""Leases on queues for orderly consumption (requests 41 and 42).

A lock ends when it is given back, or when nobody has renewed it for a minute. Sooner when its holder's connection has
ended and it does not come back. How soon depends on what the holder does meanwhile, for no queue may have two readers:

- Clients of ours say with the lock that they begin no call without a connection (``lost_with_connection``), and they
  are back within two seconds of losing one: those that are not there after 10 s are gone.
- Java's clients go on. They reconnect with their next pull, but do not say who they are before they renew their locks
  (20 s after the last time) or send a heartbeat (30 s). By themselves they stop 30 s after the last renewal, and 10 s
  more are left for the call under way then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rmq.runtime.world import Clock

__all__ = ["GONE_SECONDS", "LEASE_SECONDS", "RebalanceLocks"]

log = logging.getLogger(__name__)

#: A lock that was not renewed for this long belongs to whoever asks next (store-and-broker.md 8.4).
LEASE_SECONDS = 60.0
#: Who is without a connection for this long does not come back.
GONE_SECONDS = 10.0
#: The last renewal after which a client without a connection has stopped by itself, its last call included.
_STOPPED_SECONDS = 40.0

Q = TypeVar("Q", bound=Hashable)


@dataclass(slots=True)
class _Lease:
    """One client's lock on one queue; times of the monotonic clock."""

    client_id: str
    renewed: float
    #: Its client does without it while it has no connection.
    lost_with_connection: bool
    #: When its client's last connection ended; None while there is one.
    gone: float | None = None

    def end(self, lease: float) -> float:
        """After which time the lock is nobody's."""
        end = self.renewed + lease
        if self.gone is None:
            return end
        left = self.gone + GONE_SECONDS
        if not self.lost_with_connection:
            left = max(left, self.renewed + _STOPPED_SECONDS)
        return min(end, left)


class RebalanceLocks:
    """Which client of a group holds which queue (Java: RebalanceLockManager).

    Advisory: pulls and sends are not blocked by them. Queues need not exist. Leases run on the monotonic clock, so a
    step of the wall clock neither frees nor prolongs them.

    :param clock: the world's clock.
    :param lease: seconds a lock lives without being renewed.
    """

    def __init__(self, clock: Clock, lease: float = LEASE_SECONDS) -> None:
        self._clock = clock
        self._lease = lease
        self._groups: dict[str, dict[Hashable, _Lease]] = {}
        #: Whether locks are this broker's to grant: in a group, the leader's that surely is the only one.
        self.may_grant: Callable[[], bool] = lambda: True

    def lock(self, group: str, client_id: str, queues: Iterable[Q], *, lost_with_connection: bool = False) -> list[Q]:
        """Take or renew locks.

        :param queues: the wanted queues, any hashable identity of one.
        :param lost_with_connection: the client does without them while it has no connection.
        :returns: those that ``client_id`` holds now, in the order asked.
        """
        if not self.may_grant():
            return []
        now = self._clock.monotonic()
        held = self._groups.setdefault(group, {})
        got: list[Q] = []
        for queue in queues:
            lease = held.get(queue)
            if lease is not None and lease.client_id != client_id:
                if now <= lease.end(self._lease):
                    continue
                log.warning(
                    "the lock of %s on %s expired and goes from %s to %s", group, queue, lease.client_id, client_id
                )
            held[queue] = _Lease(client_id, now, lost_with_connection)
            got.append(queue)
        if not held:
            del self._groups[group]
        return got

    def unlock(self, group: str, client_id: str, queues: Iterable[Hashable]) -> None:
        """Free what ``client_id`` holds of these queues; locks of others stay."""
        held = self._groups.get(group)
        if held is None:
            return
        for queue in queues:
            lease = held.get(queue)
            if lease is not None and lease.client_id == client_id:
                del held[queue]
        if not held:
            del self._groups[group]

    def left(self, group: str, client_id: str) -> None:
        """A member's last connection has ended: its locks end soon when it does not come back."""
        self._mark(group, client_id, self._clock.monotonic())

    def came(self, group: str, client_id: str) -> None:
        """A member is there on a new connection: its locks live as long as any."""
        self._mark(group, client_id, None)

    def _mark(self, group: str, client_id: str, gone: float | None) -> None:
        for lease in self._groups.get(group, {}).values():
            if lease.client_id == client_id:
                lease.gone = gone

    def holder(self, group: str, queue: Hashable) -> str | None:
        """The client whose lock on the queue is alive."""
        lease = self._groups.get(group, {}).get(queue)
        return None if lease is None or self._clock.monotonic() > lease.end(self._lease) else lease.client_id

    def forget_all(self) -> None:
        """Others grant locks from now on; those here would be in their owners' way when this broker does again."""
        self._groups.clear()

    def forget_expired(self) -> None:
        """Drop locks nobody renewed, so that groups that are gone take no memory."""
        now = self._clock.monotonic()
        for group in list(self._groups):
            held = self._groups[group]
            for queue in [queue for queue, lease in held.items() if now > lease.end(self._lease)]:
                del held[queue]
            if not held:
                del self._groups[group]
