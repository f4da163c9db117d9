"""Leases on queues for orderly consumption (requests 41 and 42)."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import TypeVar

from rmq.runtime.world import Clock

__all__ = ["LEASE_SECONDS", "RebalanceLocks"]

log = logging.getLogger(__name__)

#: A lock that was not renewed for this long belongs to whoever asks next (store-and-broker.md 8.4).
LEASE_SECONDS = 60.0

Q = TypeVar("Q", bound=Hashable)


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
        self._groups: dict[str, dict[Hashable, tuple[str, float]]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[Q]) -> list[Q]:
        """Take or renew locks.

        :param queues: the wanted queues, any hashable identity of one.
        :returns: those that ``client_id`` holds now, in the order asked.
        """
        now = self._clock.monotonic()
        held = self._groups.setdefault(group, {})
        got: list[Q] = []
        for queue in queues:
            entry = held.get(queue)
            if entry is not None and entry[0] != client_id:
                if now - entry[1] <= self._lease:
                    continue
                log.warning("the lock of %s on %s expired and goes from %s to %s", group, queue, entry[0], client_id)
            held[queue] = (client_id, now)
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
            entry = held.get(queue)
            if entry is not None and entry[0] == client_id:
                del held[queue]
        if not held:
            del self._groups[group]

    def holder(self, group: str, queue: Hashable) -> str | None:
        """The client whose lock on the queue is alive."""
        entry = self._groups.get(group, {}).get(queue)
        if entry is None or self._clock.monotonic() - entry[1] > self._lease:
            return None
        return entry[0]

    def forget_expired(self) -> None:
        """Drop locks nobody renewed, so that groups that are gone take no memory."""
        oldest = self._clock.monotonic() - self._lease
        for group in list(self._groups):
            held = self._groups[group]
            for queue in [queue for queue, entry in held.items() if entry[1] < oldest]:
                del held[queue]
            if not held:
                del self._groups[group]
