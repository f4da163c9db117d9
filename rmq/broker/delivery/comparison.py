"""Comparing what a pull has read with its queue entries, and with the checksums of what was there before the start.

What a record and its entry say of each other is compared each time (:mod:`rmq.broker.store.queues.fitting`): bytes that
came from the disk are not believed. Checksums cost more than the pull: of messages that are in memory they are compared
once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Generator, Iterable, Sequence
from itertools import chain, repeat
from operator import sub
from typing import TYPE_CHECKING, Any

from rmq.broker.store.queues.fitting import MANY, all_fit, run_fits
from rmq.broker.store.state import Queue

if TYPE_CHECKING:
    from rmq.broker.store.store import Store

__all__ = ["Comparison", "Run", "runs_of"]

#: Readers whose place is remembered, up to which messages from before the start were compared with their checksums.
_MOST_PLACES = 10_000
#: Tags of a reader whose place is remembered.
_MOST_CODES = 64
#: Records that are copied together, to be compared.
_COPIED = 512
#: Bytes of a record, as a rule, from which on it is looked at where it is.
_COPIED_SIZE = 4096
#: Records of one size that are taken for behind one another when the last of them lies where it then would.
_STRIDE = 32

#: Records that follow one another in the log: its offsets where they begin and end, and how many they are.
Run = tuple[int, int, int]


def runs_of(offsets: Sequence[int], sizes: Sequence[int]) -> list[Run]:
    """Where records lie in the log; those that follow one another, as in a batch of messages, as one.

    Of many that are of one size some are looked at. An entry between them that points elsewhere is found out when
    records are compared: the one in its place does not say that it lies there.
    """
    size = sizes[0]
    if len(sizes) >= _STRIDE and sizes.count(size) == len(sizes):
        return _runs_alike(offsets, size)
    runs: list[Run] = []
    begin = end = offsets[0]
    count = 0
    for at, size in zip(offsets, sizes, strict=True):
        if at != end:
            runs.append((begin, end, count))
            begin, count = at, 0
        end = at + size
        count += 1
    runs.append((begin, end, count))
    return runs


def _runs_alike(offsets: Sequence[int], size: int) -> list[Run]:
    runs: list[Run] = []
    total, done = len(offsets), 0
    while done < total:
        begin = end = offsets[done]
        first = done
        while done + _STRIDE <= total and offsets[done + _STRIDE - 1] == end + (_STRIDE - 1) * size:
            done += _STRIDE
            end += _STRIDE * size
        while done < total and offsets[done] == end:
            done += 1
            end += size
        runs.append((begin, end, done - first))
    return runs


class Comparison:
    """What one reader compares.

    :param store: where it reads.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = store.log
        #: Queue and tags -> indexes between which such messages from before the start were found to be as they were.
        self._found: dict[tuple[Queue, frozenset[int] | None], tuple[int, int]] = {}
        #: Room for records that are compared with their entries.
        self._copy = bytearray()

    def counts_bodies(self, offset: int) -> bool:
        """Whether bodies' checksums count for records that are in memory, from a place of the log on.

        What was there before this process may be there because a start, or a reader, has brought it from the disk.
        """
        return offset < self._log.written_from or self._store.settings.check_crc_in_memory

    def fit(
        self,
        queue: Queue,
        indexes: Sequence[int],
        offsets: Sequence[int],
        sizes: Sequence[int],
        runs: Sequence[Run],
        pieces: Sequence[memoryview],
        *,
        crc: bool,
    ) -> bool:
        """Whether records in some runs are the messages that their entries stand for.

        :param pieces: the bytes of each run. :param crc: bodies' checksums are compared, too.
        """
        if len(offsets) < MANY * len(runs) or sum(sizes) > _COPIED_SIZE * len(sizes):
            counts = [count for _, _, count in runs]
            held = list(chain.from_iterable(map(repeat, pieces, counts)))
            at = list(map(sub, offsets, chain.from_iterable(map(repeat, (begin for begin, _, _ in runs), counts))))
            return all_fit(queue, indexes, offsets, sizes, held, at, crc=crc)
        copy = self._copy
        done = 0
        for (begin, _, count), piece in zip(runs, pieces, strict=True):
            for first in range(done, done + count, _COPIED):
                part = slice(first, min(first + _COPIED, done + count))
                places, lengths = offsets[part], sizes[part]
                # Copied: memory is slow to be looked at here and there, and fast to be gone through; to the same place
                # each time, as new memory of this size comes page by page from the kernel.
                some = piece[places[0] - begin : places[-1] + lengths[-1] - begin]
                if len(some) > len(copy):
                    copy.extend(bytes(len(some) - len(copy)))
                with memoryview(copy) as room:
                    room[: len(some)] = some
                if not run_fits(queue, indexes[part], places, lengths, copy, crc=crc):
                    return False
            done += count
        return True

    def wrong(
        self,
        queue: Queue,
        indexes: Sequence[int],
        spans: Sequence[tuple[int, int]],
        records: Sequence[bytes],
        *,
        cold: bool,
    ) -> Generator[Awaitable[Any], Any, list[int]]:
        """The indexes of those messages that are not what their entries stand for, or not as they were.

        :param spans: offset in the log and size of each, as its entry says. :param cold: they came from the disk.
        """
        first = spans[0][0]
        wrong = _misfits(queue, indexes, spans, records, crc=cold or self.counts_bodies(first))
        if not wrong and (cold or first < self._log.written_from) and self._store.settings.checksums:
            differing = yield self._log.checksums.differing([offset for offset, _ in spans], records)
            wrong = [indexes[number] for number in differing]
        return wrong

    def is_as_it_was(self, queue: Queue, codes: frozenset[int] | None, offset: int, end: int) -> bool:
        """Whether messages with some tags were found to be as they were, between two indexes: once is enough."""
        low, high = self._found.get((queue, codes), (0, 0))
        return (low <= offset and end <= high) or not self._store.settings.checksums

    def note(self, queue: Queue, codes: frozenset[int] | None, offset: int, end: int) -> None:
        """The messages with some tags between two indexes are as they were.

        Of a reader of very many tags that is forgotten: whoever reads may name as many as a request has room for.
        """
        if codes is not None and len(codes) > _MOST_CODES:
            return
        if len(self._found) >= _MOST_PLACES:
            self._found.clear()
        low, high = self._found.get((queue, codes), (offset, offset))
        self._found[queue, codes] = (min(low, offset), max(high, end)) if low <= offset <= high else (offset, end)


def _misfits(
    queue: Queue, indexes: Collection[int], spans: Iterable[tuple[int, int]], records: Sequence[bytes], *, crc: bool
) -> list[int]:
    """The indexes of those messages that are not what their entries stand for."""
    offsets, sizes = zip(*spans, strict=True)
    if tuple(map(len, records)) == sizes and all_fit(queue, indexes, offsets, sizes, records, repeat(0), crc=crc):
        return []
    return [
        index
        for index, offset, size, record in zip(indexes, offsets, sizes, records, strict=True)
        if len(record) != size or not all_fit(queue, (index,), (offset,), (size,), (record,), (0,), crc=crc)
    ]
