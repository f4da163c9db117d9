"""What was told of the log's end and is not in queues yet, and how it gets there."""

from __future__ import annotations

import logging
from collections import deque

from rmq.broker.store.index.index import Index
from rmq.broker.store.index.putting import put_all, put_each
from rmq.broker.store.parts import OnDisk
from rmq.broker.store.queues.misfits import Misfits
from rmq.broker.store.state import ENTRY_SIZE, PLACE, Queue
from rmq.broker.store.told import LONGEST, Told, sizes_in
from rmq.protocol.errors import StoreError

__all__ = ["ToldSpans"]

log = logging.getLogger(__name__)

#: Bytes of the log that what waits may be of: what is committed late is read from the log.
_MOST_BYTES = 64 << 20
#: And bytes of memory that it may take: of short messages, or of such with many keys, more is told than they have.
_MOST_MEMORY = 32 << 20
_place_at = PLACE.unpack_from


class ToldSpans:
    """Of one store, in the order of the log.

    :param misfits: queues where records wait take nothing that was told.
    """

    def __init__(self, disk: OnDisk, misfits: Misfits) -> None:
        self._log = disk.log
        self._queues = disk.queues
        self._deletions = disk.deletions
        self._damaged = disk.damaged
        self._index = disk.index
        self._misfits = misfits
        self._spans: deque[Told] = deque()
        #: Bytes of memory that they take, about.
        self.memory = 0
        self._warned = False
        #: A topic whose records somebody wants to see: spans with one of them are read from the log.
        self.watched = ""
        #: Bytes of the log that were put as they were told.
        self.put_bytes = 0

    def add(self, told: Told) -> None:
        """A leader tells of a span of the log that is here."""
        spans = self._spans
        if told.end - told.start > LONGEST or (spans and told.start < spans[-1].end):
            return  # or it was told before
        spans.append(told)
        self.memory += told.memory
        while spans and (self.memory > _MOST_MEMORY or told.end - spans[0].start > _MOST_BYTES):
            self._first()

    def _first(self) -> Told:
        """Take the first away."""
        told = self._spans.popleft()
        self.memory -= told.memory
        return told

    def log_ends(self, to: int) -> None:
        """The log is cut back to ``to``."""
        spans = self._spans
        while spans and spans[-1].end > to:
            self.memory -= spans.pop().memory

    def next_after(self, position: int) -> int:
        """Where the next span begins that was told of, from a position on; far away if none does."""
        spans = self._spans
        while spans and spans[0].start < position:
            self._first()
        return spans[0].start if spans else 1 << 62

    def take(self, position: int, stop: int) -> Told | None:
        """What was told of the span that begins at a position and ends not behind ``stop``."""
        if self.next_after(position) != position or self._spans[0].end > stop:
            return None
        return self._first()

    @property
    def _reads_all(self) -> bool:
        """Whether there is more to make of records than is told."""
        return self._queues.unit_code is not None or self._log.checksums.of_new

    def fits(self, told: Told, data: bytes | memoryview, crc: int | None = None) -> bool:
        """Whether what was told of a span is right, and of use.

        :param data: its bytes.
        :param crc: their CRC-32, where it is known.
        """
        if self._reads_all or (self._index is not None and told.keys is None):
            return False
        if told.fits(data, crc) and (self._index is None or told.has_good_keys()):
            return True
        if not self._warned:
            self._warned = True
            log.warning(
                "what the leader tells of the log from %d to %d does not fit it; what is there is read from the "
                "log, and this is not told again", told.start, told.end,
            )  # fmt: skip
        return False

    def put(self, told: Told, index_from: int, touched: dict[Queue, None]) -> bool:
        """Put it into queues and index, if it is right and nothing is special; else nothing is changed.

        :param index_from: keys of records before are put by somebody else.
        :param touched: gets the queues that have got entries.
        :raises IndexStopped: the queues have their entries.
        """
        start, end = told.start, told.end
        indexed = self._index is not None and index_from < end
        if indexed and told.keys is None:
            return False
        if self._reads_all or (self._damaged.parts and self._damaged.bytes_in(start, end)):
            return False
        if not told.proven:
            data = self._log.read(start, end - start)
            if data is None or len(data) != end - start or not self.fits(told, data):
                return False
        queues = self._next_of(told)
        if queues is None:
            return False
        for queue, entries in queues.items():
            queue.tail += entries
            queue.next += len(entries) // ENTRY_SIZE
            queue.bytes_put += sizes_in(entries) if len(queues) > 1 else end - start
            queue.max_phys = sum(_place_at(entries, len(entries) - ENTRY_SIZE))
            touched[queue] = None
        self._queues.note(list(queues), sum(map(len, queues.values())) // ENTRY_SIZE)
        self.put_bytes += end - start
        if indexed and told.keys and self._index is not None:
            self._put_keys(self._index, told, index_from)
        return True

    @staticmethod
    def _put_keys(index: Index, told: Told, index_from: int) -> None:
        if index_from > told.start:
            hashes = [one for one in told.hashes() if one[1] >= index_from]
            if hashes:
                put_all(index, hashes, told.stamp, _refused)
            return
        try:
            index.put_entries(told.keys or b"", told.stamp)
        except Exception:
            put_each(index, told.hashes(), told.stamp, _refused)

    def _next_of(self, told: Told) -> dict[Queue, bytes] | None:
        """The queues that get entries, if each of these is simply the next of its queue."""
        found: dict[Queue, bytes] = {}
        start, misfits, get_or_create = told.start, self._misfits, self._queues.get_or_create
        may_be_dead = start < self._deletions.horizon
        for topic, queue_id, first, entries in told.queues:
            if topic == self.watched or (may_be_dead and self._deletions.is_dead(topic, start)):
                return None
            try:
                queue = get_or_create(topic, queue_id)
            except StoreError:
                return None
            if first != queue.next or start < queue.max_phys or queue in found or queue in misfits:
                return None
            found[queue] = entries
        return found


def _refused(offset: int, error: Exception) -> None:
    log.error("the message at %d is not found by its keys: the index refuses them (%s)", offset, error)
