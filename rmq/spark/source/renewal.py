"""Whether queues are still the ones that a query has read: a topic may be deleted and made anew under it.

What tells is the oldest message of a queue: it is compared with the one that was there before, both by the broker's
clock. The checkpoint keeps them, so that this holds after a restart as well. Where it has none (an older version wrote
it, or the queue was empty) all that is known is when it was written, by the clock of the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rmq.protocol.queue import MessageQueue
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.source.ranges import Oldest, Range
from rmq.spark.source.resolve import until_answered

__all__ = ["Renewal", "renewed"]

#: Seconds after which queues are looked at again though none has anything to read.
_AGAIN = 5.0
#: How often the oldest message of a queue may go, by retention, while it is looked at.
_ROUNDS = 5


class Renewal:
    """The queues of one query."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._oldest: dict[MessageQueue, Oldest] = {}
        #: When the queues were looked at last.
        self._looked = float("-inf")
        #: Queues of which it was not told, when they were looked at last, whether they are what they were.
        self.unknown: set[MessageQueue] = set()
        #: Queues whose oldest message was another one, when they were looked at last, or was not known before.
        self.learned: set[MessageQueue] = set()

    @contextmanager
    def trying(self) -> Iterator[None]:
        """What is learned within counts only when nothing is raised: who failed told nobody what was made anew."""
        before = dict(self._oldest)
        try:
            yield
        except BaseException:
            self._oldest, self._looked = before, float("-inf")
            raise

    def remember(self, queues: Iterable[MessageQueue]) -> None:
        """Queues that a query begins with: they are what they are."""
        self._oldest.update(self._look(list(queues)))

    def recall(self, known: Mapping[MessageQueue, Oldest]) -> None:
        """What a checkpoint says of queues, where nothing newer is known."""
        self._oldest = {**known, **self._oldest}

    def known(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Oldest]:
        """What a checkpoint is to say of queues."""
        return {queue: self._oldest[queue] for queue in queues if queue in self._oldest}

    def forget(self, queue: MessageQueue) -> None:
        """What is known of a queue is not about the one that the query has read."""
        self._oldest.pop(queue, None)

    def ends_before(self, queue: MessageQueue, end: int, place: int) -> bool:
        """Whether a queue that ends there has not what it had: messages up to ``place``, or the oldest one known."""
        before = self._oldest.get(queue)
        return end < place or (before is not None and end <= before.offset)

    def made_anew(
        self, begin: Mapping[MessageQueue, int], news: Collection[MessageQueue], as_of: int
    ) -> dict[MessageQueue, int]:
        """Those that are not what ``begin`` is about, and where they begin now.

        :param news: queues with something to read, or with less than there was. All are looked at, and now and then
            where there are none: a queue that was made anew may have as many messages as before.
        :param as_of: when ``begin`` was written, milliseconds; 0: nobody knows.
        """
        self.unknown, self.learned = set(), set()
        now = self._brokers.dial.monotonic()
        if not news and now - self._looked < _AGAIN:
            return {}
        self._looked = now
        self.unknown = {*begin, *news}
        times = self._brokers.oldest_times(sorted(self.unknown))
        found: dict[MessageQueue, int] = {}
        changed = [queue for queue, time in times.items() if time and not self._is_as_it_was(queue, time)]
        self.unknown -= times.keys() - set(changed)
        for queue, oldest in self._look(changed).items():
            before, place = self._oldest.get(queue), begin.get(queue, 0)
            if before is not None:
                # What expires makes queues begin later; a slave that keeps more has older messages.
                anew = oldest.offset <= before.offset and oldest.time > before.time
            else:
                anew = bool(as_of) and oldest.offset < place and oldest.time > as_of
            if anew and (place or (before is not None and queue in begin)):  # what was there is lost, read or not
                found[queue] = oldest.offset
            self._oldest[queue] = oldest
            self.unknown.discard(queue)
            self.learned.add(queue)
        return found

    def _is_as_it_was(self, queue: MessageQueue, time: int) -> bool:
        before = self._oldest.get(queue)
        return before is not None and before.time == time

    def _look(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, Oldest]:
        """Their oldest messages.

        An offset and a time are two questions, about one message where the offset is the same before and after.
        A queue that does not hold still, or is empty by now, is left out.
        """
        found: dict[MessageQueue, Oldest] = {}
        offsets = self._brokers.min_offsets(queues) if queues else {}
        for _ in range(_ROUNDS):
            if not offsets:
                break
            times = self._brokers.oldest_times(offsets)
            before, offsets = offsets, self._brokers.min_offsets([queue for queue in offsets if times.get(queue)])
            for queue in [queue for queue, offset in offsets.items() if offset == before[queue]]:
                found[queue] = Oldest(offsets.pop(queue), times[queue])
        return found


def renewed(brokers: Brokers, ranges: Iterable[Range]) -> set[MessageQueue]:
    """Queues that were made anew since ranges of them were planned; a broker that is away is waited for.

    :raises ConnectFailed: a broker stays away.
    """
    known = {each.queue: each for each in ranges if each.oldest is not None or each.as_of}
    times = until_answered(brokers, list(known), brokers.oldest_times)
    changed = {
        queue: each.end for queue, each in known.items() if each.oldest is None or each.oldest.time != times[queue]
    }
    renewal = Renewal(brokers)
    renewal.recall({queue: each.oldest for queue, each in known.items() if each.oldest is not None})
    as_of = max((known[queue].as_of for queue in changed), default=0)  # of one batch: all have the same
    return set(renewal.made_anew(changed, changed, as_of))
