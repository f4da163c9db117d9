"""Answers to those who send: held until what the configuration promises has happened, or the time for it is over.

:mod:`~rmq.broker.store.log.durability` decides; here are its events and its one timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable

from rmq.broker.store.log.durability import FLUSH, REPLICA, Answers, Durability
from rmq.broker.store.settings import StoreSettings
from rmq.runtime.world import Clock

__all__ = ["Acknowledgements"]

log = logging.getLogger(__name__)

_SLAVE_NOT_AVAILABLE = 11


class Acknowledgements:
    """Who waits for the log to be as durable as configured.

    :param send: sends answers that are due; by default ``conn.send(data)`` of each.
    """

    def __init__(
        self,
        clock: Clock,
        settings: StoreSettings,
        durability: Durability,
        send: Callable[[Answers], None] | None = None,
    ) -> None:
        self._monotonic = clock.monotonic
        self._settings = settings
        self._durability = durability
        self.send = send if send is not None else _send
        self._deadline: asyncio.TimerHandle | None = None
        #: Whether a replica is connected that a sync master can wait for (set by replication).
        self.has_replica: Callable[[], bool] = lambda: False

    def close(self) -> None:
        """Nobody's time ends any more."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    @property
    def waits(self) -> bool:
        """Whether SEND_OK has to wait for a flush or a replica."""
        return self._settings.sync_flush or self._settings.sync_master

    def hold(self, end: int, answers: Answers, otherwise: Callable[[int], Answers]) -> None:
        """Send ``answers`` when the log is as durable as configured up to ``end``, or what ``otherwise`` makes of it.

        :param otherwise: builds the answers for FLUSH_DISK_TIMEOUT (10), SLAVE_NOT_AVAILABLE (11) or
            FLUSH_SLAVE_TIMEOUT (12).
        """
        need = FLUSH if self._settings.sync_flush else 0
        if self._settings.sync_master:
            if self._settings.group or self.has_replica():
                need |= REPLICA
            else:
                answers = otherwise(_SLAVE_NOT_AVAILABLE)
                self._durability.waive(end)
        self._hold(end, need, answers, otherwise)

    def _hold(self, end: int, need: int, answers: Answers, otherwise: Callable[[int], Answers]) -> None:
        settings, now = self._settings, self._monotonic()
        ready = self._durability.hold(
            end, need, now + settings.sync_flush_timeout_ms / 1000, now + settings.slave_timeout_ms / 1000, answers,
            otherwise,
        )  # fmt: skip
        if ready:
            self.send(ready)
        else:
            self._arm()

    def set_sync_master(self, on: bool) -> None:
        """From now on sends wait for replicas, or do not, whatever the broker was when the store was made."""
        self._settings.sync_master = on or self._settings.group
        self._durability.set_sync_master(on)

    def appended_as_sync_master(self, end: int) -> None:
        """What is appended is seen once a replica has it or will not have it, whether anybody waits for that or not."""
        if self._settings.group:
            return  # seen when it is committed, and not before
        if self.has_replica():
            self._hold(end, REPLICA, [], lambda _: [])
        else:
            self._durability.waive(end)

    def replicated(self, replica: Hashable, to: int) -> None:
        """The replica with this id has everything up to ``to``: answer who has waited for that."""
        self._send_due(self._durability.on_replica(replica, to))

    def replica_gone(self, replica: Hashable) -> None:
        """The replica with this id reports no more. Without enough of them left, who waits for one is answered."""
        self._durability.replica_gone(replica)
        if not self.has_replica():
            self.no_replica()

    def no_replica(self) -> None:
        """Nobody waits for a replica any more."""
        self._send_due(self._durability.on_no_replica())

    def flushed(self, to: int) -> None:
        """The log is on disk up to ``to``."""
        self._send_due(self._durability.on_flushed(to))

    def flush_failed(self) -> None:
        """It does not get there any more."""
        self._send_due(self._durability.on_fsync_error())

    def _send_due(self, answers: Answers) -> None:
        if answers:
            self.send(answers)

    def _arm(self) -> None:
        if self._deadline is None and (deadline := self._durability.deadline) is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(max(0.0, deadline - self._monotonic()), self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        try:
            self._send_due(self._durability.on_tick(self._monotonic()))
        finally:
            self._arm()


def _send(answers: Answers) -> None:
    for conn, data in answers:
        try:
            conn.send(data)
        except Exception:  # the others wait for theirs
            log.exception("an answer could not be sent to %r", conn)
