"""Who is told that messages have become visible: parked pulls, and the services that wait for messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rmq.broker.store.state import Queue
from rmq.remoting.limits import Rationed
from rmq.runtime.world import Clock

__all__ = ["Arrivals"]

log = logging.getLogger(__name__)


class Arrivals:
    """Passes on which queues have new messages: they are stored whatever comes of it."""

    def __init__(self, clock: Clock) -> None:
        self._complaints = Rationed(clock)
        #: Told in this order.
        self.told: list[Callable[[Iterable[Queue]], None]] = []

    def tell(self, queues: list[Queue]) -> None:
        """These queues have new messages. Never raises."""
        for told in self.told:
            try:
                told(queues)
            except Exception:
                self._complaints.say(log.exception, "%s did not take that messages have arrived", told.__qualname__)
