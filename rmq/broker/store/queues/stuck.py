"""Consume queues whose entries the disk does not take: each costs itself.

Its entries wait in memory, where consumers read them, and it is tried again in every interval, behind all others. When
more wait than its share of what all such queues may take together, clients' messages for it are refused; what the
broker owes it (delayed messages that are due, ends of transactions) still comes in.
"""

from __future__ import annotations

import logging
from itertools import islice

from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.refusal import told
from rmq.broker.store.state import ENTRY_SIZE, Queue
from rmq.remoting.limits import Rationed
from rmq.runtime.world import Clock

__all__ = ["StuckQueues"]

log = logging.getLogger(__name__)

#: Bytes of entries that wait for one queue before messages for it are refused (50,000 messages), and for all of them.
_MOST_WAITING = 1 << 20
_MOST_TOGETHER = 64 << 20
#: Queues tried in one interval, in turn.
_AT_ONCE = 64
#: Queues told of by name in ten seconds: a damaged disk has many.
_TOLD = 20


class StuckQueues:
    """Which they are.

    :param table: its ``full`` names those that take no messages.
    """

    def __init__(self, clock: Clock, table: QueueTable) -> None:
        self._table = table
        #: Each with the reason, the one that was tried last at the end.
        self._stuck: dict[Queue, str] = {}
        self._notes = Rationed(clock, most=_TOLD)
        table.on_dropped.append(self._dropped)

    def __len__(self) -> int:
        return len(self._stuck)

    def __contains__(self, queue: object) -> bool:
        return queue in self._stuck

    def next(self) -> list[Queue]:
        """Those that are to be tried in this interval."""
        return list(islice(self._stuck, _AT_ONCE))

    def failed(self, queue: Queue, error: OSError) -> None:
        """Entries of a queue could not be written: the others of these queues have their turn first."""
        if self._stuck.pop(queue, None) is None:
            form = "the entries of %s-%d cannot be written (%s); they stay in memory, and the other queues go on"
            self._notes.say(log.error, form, queue.topic, queue.id, told(error, queue.files.directory))
        self._stuck[queue] = error.strerror or type(error).__name__

    def written(self, queue: Queue) -> None:
        """Nothing of a queue waits any more."""
        if self._stuck.pop(queue, None) is not None:
            self._table.takes(queue)
            self._notes.say(log.info, "the entries of %s-%d are on disk again", queue.topic, queue.id)

    def _dropped(self, queue: Queue) -> None:
        self._stuck.pop(queue, None)
        self._table.takes(queue)

    def weigh(self) -> None:
        """Have messages refused for queues of which too much waits, and for no others."""
        for queue in [queue for queue in self._stuck if not queue.tail]:
            self.written(queue)  # or cut
        if not self._stuck:
            return
        most = min(_MOST_WAITING, _MOST_TOGETHER // len(self._stuck))
        for queue, reason in self._stuck.items():
            if len(queue.tail) < most:
                self._table.takes(queue)
            elif queue not in self._table.full:
                self._table.takes_none(queue, f"its entries cannot be written ({reason})")
                form = "%s-%d takes no messages until its entries can be written: %d of them wait in memory"
                self._notes.say(log.error, form, queue.topic, queue.id, len(queue.tail) // ENTRY_SIZE)
