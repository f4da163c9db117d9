"""When a stored message may be acknowledged: at once, or when the log is as durable as the configuration promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.broker.store.durability import FLUSH, REPLICA
from rmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.durability import Answers
    from rmq.broker.store.store import Store
    from rmq.runtime.world import Clock

__all__ = ["Acknowledger"]


class Acknowledger:
    """Keeps answers until their messages are on disk (SYNC_FLUSH) or on a replica (SYNC_MASTER).

    :param replica_in_reach: whether some replica is connected and not too far behind the given end of the log.
    """

    def __init__(
        self, clock: Clock, settings: BrokerSettings, store: Store, replica_in_reach: Callable[[int], bool]
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._store = store
        self._replica_in_reach = replica_in_reach
        durability = store.durability
        self._need = (FLUSH if durability.sync_flush else 0) | (REPLICA if durability.sync_master else 0)

    @property
    def waits(self) -> bool:
        """Whether anything is promised beyond the append itself."""
        return self._need != 0

    def hold(self, end: int, answers: Answers, otherwise: Callable[[int], Answers]) -> None:
        """Send ``answers`` once everything up to ``end`` is durable.

        :param otherwise: builds the answers for another outcome: 10, 11 or 12 (stored, but not as promised).
        """
        need = self._need
        if need & REPLICA and not self._replica_in_reach(end):
            # No replica to wait for: what will be said is that, and the disk alone is waited for
            # (store-and-broker.md 6.5).
            self._store.durability.waive(end)
            answers = otherwise(ResponseCode.SLAVE_NOT_AVAILABLE)
            need &= ~REPLICA
        if need:
            settings = self._settings
            limit = max(
                settings.sync_flush_timeout if need & FLUSH else 0, settings.slave_timeout if need & REPLICA else 0
            )
            answers = self._store.hold(end, need, self._clock.monotonic() + limit / 1000, answers, otherwise)
        for conn, data in answers:
            conn.send(data)
