"""What a pull reads: queue entries first, then the records they point at (store-and-broker.md 3.6).

The scan is a generator: it returns at once when everything it needs is in memory or in the page cache, and yields an
awaitable for what has to come from the disk. One algorithm, with and without waiting.

No record goes out that is not the message its entry stands for (:mod:`rmq.broker.store.queues.fitting`). One that is
not has its entry mended (:mod:`rmq.broker.store.care.mending`), which may bring the message back; then the scan looks
again, and passes over what is lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import compress, islice, repeat
from operator import add
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from rmq.broker.delivery.backlog import Backlog
from rmq.broker.delivery.comparison import Comparison, Run, runs_of
from rmq.broker.share import Share
from rmq.broker.store.queues.fitting import all_fit, is_size
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Queue

if TYPE_CHECKING:
    from rmq.broker.delivery.filtering import Filter
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.store import Store

__all__ = ["Batch", "ReadLimits", "Reader", "Status"]

_entries = ENTRY.iter_unpack
#: Layouts of runs of entries, by their number.
_RUNS: dict[int, Callable[[bytes], tuple[Any, ...]]] = {}
#: Entries looked at for one pull, however many of them a filter refuses.
_WINDOW = 800
#: Entries of a backlog looked at together for tags.
_TAGS_AT_ONCE = 128
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
    #: How many messages they are.
    messages: int = 0


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


class Reader:
    """Reads batches of messages for pulls."""

    def __init__(self, store: Store, limits: ReadLimits) -> None:
        self._store = store
        self._log = store.log
        self._queues = store.queues
        self._backlog = Backlog(store.queues)
        self.limits = limits
        self._conditions = Share(_CONDITIONS)
        self._compared = Comparison(store)

    def at_once(self, queue: Queue, offset: int, wanted: int, codes: frozenset[int] | None = None) -> Batch | None:
        """What :meth:`scan` finds of a backlog, when all of it is at hand; None: scan.

        :param codes: the tags that are wanted (:class:`Filter`).
        """
        least, most = queue.min, queue.visible
        limits = self.limits
        count = min(wanted, most - offset, limits.count_in_memory)
        if offset < least or not 0 < count <= 1024 or offset + count > queue.tail_from:
            return None
        indexes: Sequence[int]
        offsets: Sequence[int]
        sizes: Sequence[int]
        if codes is None:
            run = self._backlog.find(queue, offset, count)
            if run is None:
                return None
            following = offset + count
            indexes, offsets, sizes = range(offset, following), run[::2], run[1::2]
        else:
            tagged = self._tagged(queue, offset, count, codes)
            if tagged is None:
                return None
            indexes, offsets, sizes, following = tagged
        log = self._log
        first, last = offsets[0], offsets[-1]
        total = sum(sizes)
        if first < log.start or total > limits.bytes_in_memory or log.end - first > limits.memory_bound:
            return None
        end = last + sizes[-1]
        if end - first > _WIDE or not is_size(min(sizes)):
            return None
        if first < log.written_from and not self._compared.is_as_it_was(queue, codes, offset, following):
            return None
        crc = self._compared.counts_bodies(first)
        # Where the second record follows the first, whole batches of messages do.
        follow = count > 1 and offsets[1] == first + sizes[0]
        found = None if follow or min(offsets) < first or max(offsets) > last else log.view(first, end)
        if found is not None:
            view, start = found
            pieces = [view[(lo := place - start) : lo + size] for place, size in zip(offsets, sizes, strict=True)]
            fit = all_fit(queue, indexes, offsets, sizes, pieces, repeat(0), crc=crc)
        else:
            # Or some of what lies between them is not in memory, or it is much, or in another file.
            runs = runs_of(offsets, sizes)
            apart = self._apart(runs)
            if apart is None:
                return None
            pieces = apart
            fit = self._compared.fit(queue, indexes, offsets, sizes, runs, pieces, crc=crc)
        if not fit:
            return None
        return Batch(Status.FOUND, following, least, most, pieces, total, log.end - last, len(indexes))

    def _tagged(
        self, queue: Queue, offset: int, count: int, codes: frozenset[int]
    ) -> tuple[Sequence[int], Sequence[int], Sequence[int], int] | None:
        """The next ``count`` messages with some tags: indexes, places and sizes, and the index of the one behind them.

        None when the entries that a scan would look at first have not that many, or one of them is wrong.
        """
        looked = min(max(count, _TAGS_AT_ONCE), queue.visible - offset)
        if offset + looked > queue.tail_from:
            return None
        run = self._backlog.find(queue, offset, looked, tags=True)
        if run is None:
            return None
        offsets, sizes = run[::3], run[1::3]
        log = self._log
        if min(offsets) < log.start or max(map(add, offsets, sizes)) > log.end:
            return None
        if not (is_size(min(sizes)) and is_size(max(sizes))):
            return None
        wanted = list(map(codes.__contains__, run[2::3]))
        indexes = tuple(islice(compress(range(offset, offset + looked), wanted), count + 1))
        if len(indexes) <= count:
            return None
        offsets, sizes = tuple(compress(offsets, wanted)), tuple(compress(sizes, wanted))
        return indexes[:-1], offsets[:count], sizes[:count], indexes[-1]

    def _apart(self, runs: Sequence[Run]) -> list[memoryview] | None:
        """Views of parts of the log; None when one is not in memory."""
        view = self._log.view
        pieces: list[memoryview] = []
        for begin, end, _ in runs:
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
        if wants.codes is None and (batch := self._next(queue, offset, wanted)) is not None:
            return batch
        tried: set[int] = set()
        while True:
            found = yield from self._scan_entries(queue, offset, wanted, wants.codes, tried)
            if isinstance(found, Batch):
                return found
            yield from self._mended(queue, found, tried)

    def _mended(self, queue: Queue, wrong: Sequence[int], tried: set[int]) -> Generator[Awaitable[Any], Any, None]:
        """Have entries put right that do not fit their records.

        :param tried: gets their indexes: those of them that still do not fit are passed over.
        :raises OSError: that takes longer than a pull may.
        """
        if not (yield self._store.mending.settled(queue, wrong)):
            raise TimeoutError(f"what {queue!r} has at {wrong[0]} is looked for in the commit log")
        tried.update(wrong)

    def _next(self, queue: Queue, offset: int, wanted: int) -> Batch | None:
        """The next messages when nothing about them is special: as a rule, the newest."""
        run = self._run(queue, offset, min(wanted, queue.visible - offset))
        if run is None:
            return None
        log = self._log
        offsets, sizes, total = run
        first, last = offsets[0], offsets[-1]
        following = offset + len(offsets)
        records = log.read_many(list(zip(offsets, sizes, strict=True)))
        if records is None or sum(map(len, records)) != total:
            return None
        if first < log.written_from and not self._compared.is_as_it_was(queue, None, offset, following):
            return None
        if not (offset >= queue.tail_from and log.has_written(first)) and not all_fit(
            queue, range(offset, following), offsets, sizes, records, repeat(0), crc=self._compared.counts_bodies(first)
        ):
            return None
        return Batch(Status.FOUND, following, queue.min, queue.visible, records, total, log.end - last, len(records))

    def _scan_entries(
        self, queue: Queue, offset: int, wanted: int, codes: frozenset[int] | None, tried: set[int]
    ) -> Generator[Awaitable[Any], Any, Batch | list[int]]:
        """The scan by entries; or the indexes of messages that are not what these stand for.

        :param tried: those that were to be mended: such of them are passed over.
        """
        least, most = queue.min, queue.visible
        log = self._log
        limits = self.limits
        log_start = log.start
        end = log.end
        spans: list[tuple[int, int]] = []
        indexes: list[int] = []
        wrong: list[int] = []
        total = 0
        position = offset
        # Entries that are in memory, and records, are as this process has made them.
        in_memory = offset >= queue.tail_from
        stop = min(most, offset + max(_WINDOW, wanted))
        refused = removed = full = gone = False
        physical = end
        while position < stop and not full:
            count = min(stop - position, wanted if codes is None else max(wanted, _TAGS_AT_ONCE))
            entries = self._queues.entries(queue, position, count)
            if entries is None:
                entries = yield self._queues.entries_cold(queue, position, count)
            if not entries:
                break
            for physical, size, code in _entries(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]):
                if size == _FILLER_SIZE or (gone and 0 <= physical < log_start):
                    removed = True
                    position += 1
                    continue
                if 0 <= physical < log_start and not spans and (position == queue.min or position in tried):
                    # Retention took its file, and those before it, unless it points to where it should not.
                    removed = gone = True
                    position += 1
                    continue
                if not is_size(size) or not log_start <= physical <= end - size:
                    if position in tried:
                        removed = True
                    else:
                        wrong.append(position)
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
                indexes.append(position)
                total += size
                position += 1
        if wrong:
            return wrong
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
        cold = records is None
        if records is None:
            records = yield log.read_many_cold(spans)
        if not (in_memory and log.has_written(spans[0][0])):
            wrong = yield from self._compared.wrong(queue, indexes, spans, records, cold=cold)
            if not wrong and spans[0][0] < log.written_from:
                self._compared.note(queue, codes, offset, position)
        if wrong:
            # Retention may have taken the oldest files between the entry and its record.
            past = tried.union(index for index, (at, _) in zip(indexes, spans, strict=True) if at < log.start)
            if not past.issuperset(wrong):
                return [index for index in wrong if index not in past]
            records = [record for index, record in zip(indexes, records, strict=True) if index not in wrong]
            total = sum(map(len, records))
            if not records:
                return Batch(Status.MESSAGE_WAS_REMOVING, position, least, most, [])
        return Batch(Status.FOUND, position, least, most, records, total, end - spans[-1][0], len(records))

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
        if not is_size(min(sizes)):
            return None
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
        tried: set[int] = set()
        while position < stop:
            count = min(stop - position, _RECORDS_AT_ONCE)
            entries = self._queues.entries(queue, position, count)
            if entries is None:
                entries = yield self._queues.entries_cold(queue, position, count)
            if not entries:
                break
            spans = [(start, size) for start, size, _ in _entries(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE])]
            readable = {index: span for index, span in enumerate(spans, position) if span[1] != _FILLER_SIZE}
            wrong = []
            least_at = log.start
            gone = position == queue.min
            for index, (start, size) in list(readable.items()):
                if 0 <= start < least_at and (gone or index in tried):
                    del readable[index]  # retention took it, and those before it
                    gone = True
                elif not (is_size(size) and least_at <= start <= end - size):
                    wrong.append(index)
                else:
                    gone = False
            if not tried.issuperset(wrong):
                yield from self._mended(queue, wrong, tried)
                continue
            for index in wrong:
                del readable[index]
            if wants.bits is not None and self._store.ext is not None:
                units = self._store.ext.units(queue, position, len(spans))
                if units is None:
                    units = yield self._store.ext.units_cold(queue, position, len(spans))
                refuses = wants.bits.refuses
                for index, unit in enumerate(units, position):
                    if unit is not None and refuses(unit.bit_map, unit.store_timestamp):
                        refused |= readable.pop(index, None) is not None
            records: dict[int, bytes] = {}
            if readable:
                places = list(readable.values())
                read = log.read_many(places)
                cold = read is None
                if read is None:
                    read = yield log.read_many_cold(places)
                records = dict(zip(readable, read, strict=True))
                wrong = yield from self._compared.wrong(queue, list(readable), places, read, cold=cold)
                for index in wrong:
                    del records[index]
                wrong = [index for index in wrong if readable[index][0] >= log.start]  # retention took the others
                if not tried.issuperset(wrong):
                    yield from self._mended(queue, wrong, tried)
                    continue
            for physical, size in spans:
                record = records.get(position)
                if record is not None:
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
                            return Batch(Status.FOUND, position, least, most, found, total, end - physical, len(found))
                        found.append(record)
                        total += size
                    else:
                        refused = True
                position += 1
        if found:
            return Batch(Status.FOUND, position, least, most, found, total, end - physical, len(found))
        status = Status.NO_MATCHED_MESSAGE if refused else Status.MESSAGE_WAS_REMOVING
        return Batch(status, position, least, most, [])
