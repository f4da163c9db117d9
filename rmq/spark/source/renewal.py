"""Whether queues are still the ones that a query has read: a topic may be deleted and made anew under it.

What tells is the oldest message of a queue: it is compared with the one that was there before, both by the broker's
clock. The checkpoint keeps them, so that this holds after a restart as well. Where it has none (an older version wrote
it, or the queue was empty) all that is known is when it was written, by the clock of the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rmq.protocol.queue import MessageQueue
from rmq.spark.cluster.brokers import Brokers

__all__ = ["Oldest", "Renewal"]


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest message of a queue; ``time`` is when it was stored, in milliseconds."""

    offset: int
    time: int


class Renewal:
    """The queues of one query."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._oldest: dict[MessageQueue, Oldest] = {}
        #: Queues that were looked at in this run.
        self._looked: set[MessageQueue] = set()

    def remember(self, queues: Iterable[MessageQueue]) -> None:
        """Queues that a query begins with: they are what they are."""
        found = self._look(list(queues))
        self._oldest.update(found)
        self._looked.update(found)

    def recall(self, known: Mapping[MessageQueue, Oldest]) -> None:
        """What a checkpoint says of queues, where nothing newer is known."""
        self._oldest = {**known, **self._oldest}

    def known(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Oldest]:
        """What a checkpoint is to say of queues."""
        return {queue: self._oldest[queue] for queue in queues if queue in self._oldest}

    def forget(self, queue: MessageQueue) -> None:
        """What is known of a queue is not about the one that the query has read."""
        self._oldest.pop(queue, None)
        self._looked.discard(queue)

    def made_anew(
        self, begin: Mapping[MessageQueue, int], news: Collection[MessageQueue], as_of: int
    ) -> dict[MessageQueue, int]:
        """Those that are not what ``begin`` is about, and where they begin now.

        :param news: queues with something to read. Others are looked at once a run.
        :param as_of: when ``begin`` was written, milliseconds; 0: nobody knows.
        """
        asked = sorted({*news, *(queue for queue, place in begin.items() if place and queue not in self._looked)})
        if not asked:
            return {}
        times = self._brokers.oldest_times(asked)
        self._looked.update(times)
        found: dict[MessageQueue, int] = {}
        changed = [queue for queue in asked if times.get(queue) and not self._is_as_it_was(queue, times[queue])]
        for queue, now in self._look(changed).items():
            before, place = self._oldest.get(queue), begin.get(queue, 0)
            if before is not None:
                # What expires makes queues begin later; a slave that keeps more has older messages.
                anew = now.offset <= before.offset and now.time > before.time
            else:
                anew = bool(as_of) and now.offset < place and now.time > as_of
            if anew and (place or (before is not None and queue in begin)):  # what was there is lost, read or not
                found[queue] = now.offset
            self._oldest[queue] = now
        return found

    def _is_as_it_was(self, queue: MessageQueue, time: int) -> bool:
        before = self._oldest.get(queue)
        return before is not None and before.time == time

    def _look(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, Oldest]:
        """Their oldest messages. What expires meanwhile leaves an offset too low by the side of its time, never too
        high: that is taken for what it is when it is looked at again."""
        if not queues:
            return {}
        offsets = self._brokers.min_offsets(queues)
        times = self._brokers.oldest_times(queues)
        return {
            queue: Oldest(offsets[queue], times[queue]) for queue in queues if queue in offsets and times.get(queue)
        }
