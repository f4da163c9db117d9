"""What a pull reads: queue entries first, then the records they point at (store-and-broker.md 3.6).

The scan is a generator: it returns at once when everything it needs is in memory or in the page cache, and yields an
awaitable for what has to come from the disk. One algorithm, with and without waiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from rmq.broker.delivery.backlog import Backlog
from rmq.broker.delivery.share import Share
from rmq.broker.store.state import ENTRY_SIZE, Queue

if TYPE_CHECKING:
    from rmq.broker.delivery.filtering import Filter
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.store import Store

__all__ = ["Batch", "ReadLimits", "Reader", "Status"]

_entries = Struct(">qiq").iter_unpack
#: Layouts of runs of entries, by their number.
_RUNS: dict[int, Callable[[bytes], tuple[Any, ...]]] = {}
#: Entries looked at for one pull, however many of them a filter refuses.
_WINDOW = 800
#: Records read at a time when a condition has to see each of them.
_RECORDS_AT_ONCE = 64
#: What conditions on records may weigh in one turn of the loop (:meth:`Filter.judge`): some milliseconds.
_CONDITIONS = 50_000
#: Records further apart in the log are not looked for in its mapped files: each would be in a part of its own.
_WIDE = 32 << 20
#: Filler entries of a queue whose first messages are gone (store-and-broker.md 3.2).
_FILLER_SIZE = 0x7FFFFFFF


class Status(Enum):
    """How a read ended (Java: GetMessageStatus); the name is the remark of the answer."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class Batch(NamedTuple):
    """The outcome of one read."""

    status: Status
    #: Where the client goes on.
    next_offset: int
    min_offset: int
    max_offset: int
    #: Whole records, in order; perhaps as views that are good until the next read of the log. Those of
    #: :meth:`Reader.at_once` may be several in one piece.
    records: Sequence[bytes | memoryview]
    #: Bytes of the records.
    size: int = 0
    #: Bytes of the commit log behind the last record looked at.
    behind: int = 0


@dataclass(slots=True)
class ReadLimits:
    """How much one pull may carry (``maxTransfer...`` keys), and what counts as being in memory.

    One object for the whole broker: it is asked for with every message, and follows the settings while they change.
    """

    bytes_in_memory: int = 262_144
    count_in_memory: int = 32
    bytes_on_disk: int = 65_536
    count_on_disk: int = 8
    #: A message further back than this is on the disk: 40 % of the machine's memory.
    memory_bound: int = 24 * 1024**3 * 40 // 100

    @classmethod
    def following(cls, settings: BrokerSettings, physical_memory: int) -> Self:
        """The limits that the settings say, now and after each update of them.

        :param physical_memory: of the machine, bytes.
        """
        limits = cls()

        def follow(_: list[str]) -> None:
            limits.bytes_in_memory = settings.max_transfer_bytes_on_message_in_memory
            limits.count_in_memory = settings.max_transfer_count_on_message_in_memory
            limits.bytes_on_disk = settings.max_transfer_bytes_on_message_in_disk
            limits.count_on_disk = settings.max_transfer_count_on_message_in_disk
            limits.memory_bound = physical_memory * settings.access_message_in_memory_max_ratio // 100

        follow([])
        settings.on_update.append(follow)
        return limits


#: Yields what it waits for; is sent what came of it.
Scan = Generator[Awaitable[Any], Any, Batch]


def _runs(offsets: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Where records lie in the log; those that follow one another there, as a batch of messages does, as one."""
    runs: list[tuple[int, int]] = []
    begin = end = offsets[0]
    for at, size in zip(offsets, sizes, strict=True):
        if at != end:
            runs.append((begin, end))
            begin = at
        end = at + size
    runs.append((begin, end))
    return runs


class Reader:
    """Reads batches of messages for pulls."""

    def __init__(self, store: Store, limits: ReadLimits) -> None:
        self._store = store
        self._log = store.log
        self._queues = store.queues
        self._backlog = Backlog(store.queues)
        self.limits = limits
        self._conditions = Share(_CONDITIONS)

    def at_once(self, queue: Queue, offset: int, wanted: int) -> Batch | None:
        """What :meth:`scan` finds of a backlog without a filter, when all of it is at hand; None: scan."""
        least, most = queue.min, queue.visible
        limits = self.limits
        count = min(wanted, most - offset, limits.count_in_memory)
        if offset < least or not 0 < count <= 1024 or offset + count > queue.tail_from:
            return None
        run = self._backlog.find(queue, offset, count)
        if run is None:
            return None
        log = self._log
        offsets, sizes = run[::2], run[1::2]
        first, last = offsets[0], offsets[-1]
        total = sum(sizes)
        if first < log.start or total > limits.bytes_in_memory or log.end - first > limits.memory_bound:
            return None
        end = last + sizes[-1]
        if end - first > _WIDE:
            return None
        # Where the second record follows the first, whole batches of messages do.
        follow = count > 1 and offsets[1] == first + sizes[0]
        found = None if follow else log.view(first, end)
        if found is None:
            # Or some of what lies between them is not in memory, or it is much, or in another file.
            pieces = self._apart(_runs(offsets, sizes))
            if pieces is None:
                return None
        else:
            view, start = found
            pieces = [view[(lo := at - start) : lo + size] for at, size in zip(offsets, sizes, strict=True)]
        return Batch(Status.FOUND, offset + count, least, most, pieces, total, log.end - last)

    def _apart(self, runs: Sequence[tuple[int, int]]) -> list[memoryview] | None:
        """Views of parts of the log; None when one is not in memory."""
        view = self._log.view
        pieces: list[memoryview] = []
        for begin, end in runs:
            found = view(begin, end)
            if found is None:
                return None
            whole, start = found
            pieces.append(whole[begin - start : end - start])
        return pieces

    def scan(self, queue: Queue, offset: int, wanted: int, wants: Filter) -> Scan:
        """Read up to ``wanted`` messages from ``offset`` on that the filter lets through."""
        least, most = queue.min, queue.visible
        if most == 0:
            return Batch(Status.NO_MESSAGE_IN_QUEUE, 0, least, most, [])
        if offset < least:
            return Batch(Status.OFFSET_TOO_SMALL, least, least, most, [])
        if offset == most:
            return Batch(Status.OFFSET_OVERFLOW_ONE, offset, least, most, [])
        if offset > most:
            return Batch(Status.OFFSET_OVERFLOW_BADLY, most, least, most, [])
        wanted = max(wanted, 1)
        if wants.sql is not None:
            return (yield from self._scan_records(queue, offset, wanted, wants))
        codes = wants.codes
        log = self._log
        if codes is None:
            run = self._run(queue, offset, min(wanted, most - offset))
            if run is not None:
                offsets, sizes, total = run
                last = offsets[-1]
                spans = list(zip(offsets, sizes, strict=True))
                records = log.read_many(spans)
                if records is None:
                    records = yield log.read_many_cold(spans)
                if sum(map(len, records)) == total:
                    return Batch(Status.FOUND, offset + len(spans), least, most, records, total, log.end - last)
        limits = self.limits
        log_start = log.start
        end = log.end
        spans = []
        total = 0
        position = offset
        stop = min(most, offset + max(_WINDOW, wanted))
        refused = removed = full = False
        physical = end
        while position < stop and not full:
            count = min(stop - position, wanted if codes is None else max(wanted, 128))
            entries = self._queues.entries(queue, position, count)
            if entries is None:
                entries = yield self._queues.entries_cold(queue, position, count)
            if not entries:
                break
            for physical, size, code in _entries(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]):
                if physical < log_start or size == _FILLER_SIZE:
                    removed = True
                    position += 1
                    continue
                if codes is not None and (code & 0xFFFFFFFF) not in codes:
                    refused = True
                    position += 1
                    continue
                if spans:
                    far = end - physical > limits.memory_bound
                    if (
                        len(spans) >= wanted
                        or len(spans) >= (limits.count_on_disk if far else limits.count_in_memory)
                        or total + size > (limits.bytes_on_disk if far else limits.bytes_in_memory)
                    ):
                        full = True
                        break
                spans.append((physical, size))
                total += size
                position += 1
        if not spans:
            status = (
                Status.NO_MATCHED_MESSAGE
                if refused
                else Status.MESSAGE_WAS_REMOVING
                if removed
                else Status.OFFSET_FOUND_NULL
            )
            return Batch(status, position, least, most, [])
        records = log.read_many(spans)
        if records is None:
            records = yield log.read_many_cold(spans)
        if sum(map(len, records)) != total:
            # Retention took the oldest files between the entry and its record.
            records = [record for record, (_, size) in zip(records, spans, strict=True) if len(record) == size]
            total = sum(map(len, records))
            if not records:
                return Batch(Status.MESSAGE_WAS_REMOVING, position, least, most, [])
        return Batch(Status.FOUND, position, least, most, records, total, end - spans[-1][0])

    def _run(self, queue: Queue, offset: int, count: int) -> tuple[Sequence[int], Sequence[int], int] | None:
        """Offsets, sizes and bytes together of the next ``count`` messages, when nothing about them is special.

        None when they are not all in memory and within the limits of one pull: the scan then looks at each.
        """
        limits = self.limits
        count = min(count, limits.count_in_memory)
        entries = self._queues.entries(queue, offset, count)
        if not entries or len(entries) != count * ENTRY_SIZE:
            return None
        layout = _RUNS.get(count)
        if layout is None:
            layout = _RUNS[count] = Struct(">" + "qi8x" * count).unpack
        values = layout(entries)
        first = values[0]
        if first < self._log.start or self._log.end - first > limits.memory_bound:
            return None
        sizes = values[1::2]
        total = sum(sizes)
        if total > limits.bytes_in_memory:
            return None
        return values[::2], sizes, total

    def _scan_records(self, queue: Queue, offset: int, wanted: int, wants: Filter) -> Scan:
        """The scan with a condition on the record: each one is read before it is known whether it goes out."""
        least, most = queue.min, queue.visible
        log = self._log
        end = log.end
        limits = self.limits
        found: list[bytes] = []
        total = 0
        position = offset
        stop = min(most, offset + max(_WINDOW, wanted))
        refused = False
        physical = end
        asked = self._conditions
        while position < stop:
            count = min(stop - position, _RECORDS_AT_ONCE)
            entries = self._queues.entries(queue, position, count)
            if entries is None:
                entries = yield self._queues.entries_cold(queue, position, count)
            if not entries:
                break
            spans = [(start, size) for start, size, _ in _entries(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE])]
            readable = [span for span in spans if span[0] >= log.start and span[1] != _FILLER_SIZE]
            if wants.bits is not None and self._store.ext is not None:
                units = self._store.ext.units(queue, position, len(spans))
                if units is None:
                    units = yield self._store.ext.units_cold(queue, position, len(spans))
                refuses = wants.bits.refuses
                unwanted = {
                    span
                    for span, unit in zip(spans, units, strict=False)
                    if unit is not None and refuses(unit.bit_map, unit.store_timestamp)
                }
                if unwanted:
                    refused = True
                    readable = [span for span in readable if span not in unwanted]
            records = log.read_many(readable)
            if records is None:
                records = yield log.read_many_cold(readable)
            at = 0
            for physical, size in spans:
                record = b""
                if at < len(readable) and (physical, size) == readable[at]:
                    record = records[at]
                    at += 1
                if len(record) == size:
                    if asked.used_up:
                        yield asked.turn()
                    matches, weight = wants.judge(record)
                    asked.count(weight)
                    if matches:
                        far = end - physical > limits.memory_bound
                        if found and (
                            len(found) >= wanted
                            or len(found) >= (limits.count_on_disk if far else limits.count_in_memory)
                            or total + size > (limits.bytes_on_disk if far else limits.bytes_in_memory)
                        ):
                            return Batch(Status.FOUND, position, least, most, found, total, end - physical)
                        found.append(record)
                        total += size
                    else:
                        refused = True
                position += 1
        if found:
            return Batch(Status.FOUND, position, least, most, found, total, end - physical)
        status = Status.NO_MATCHED_MESSAGE if refused else Status.MESSAGE_WAS_REMOVING
        return Batch(status, position, least, most, [])
