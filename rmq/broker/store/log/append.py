"""The first half of the append: records are made of messages, and what follows from them, before anything is changed.

:func:`pack` is pure. What it gives goes to ``Store.commit``, the second half and the only one that writes and moves
state. Record layout: store-and-broker.md 2.1; queue entry: 3.1; the roll at a file's end: 2.2.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from rmq.broker.store.log.sums import sum_of, sums_of
from rmq.broker.store.rows import MOST_ROWS, Rows
from rmq.broker.store.state import ENTRY, Delta, Put, Queue, Span
from rmq.protocol.crc import crc32
from rmq.protocol.errors import StoreError
from rmq.protocol.properties import MAX_BYTES
from rmq.protocol.record import FIXED_SIZE, HEADS, MAGIC_V1

__all__ = ["Packed", "PartlyAppended", "Place", "RecordTooLarge", "Replicated", "pack", "pack_entries"]

#: A file keeps room for the blank record that ends it.
_BLANK = 8
_MAGIC, _FIXED = MAGIC_V1, FIXED_SIZE
_HEADS = {hosts: head.pack for hosts, head in HEADS.items()}
_head = _HEADS[8, 8]
_entry = ENTRY.pack
_rows = Rows("qiq")
_entries = _rows.packs
#: Queue entries as they are on disk, of commit-log offset, size and tags code of each.
pack_entries = _rows.pack
#: The two length bytes of every possible property string.
_LENGTHS = tuple(n.to_bytes(2, "big") for n in range(32768))

#: Where the next record of a log goes: its commit-log offset, the bytes that still fit into that file (the blank record
#: kept back), and the size of a file. A plain tuple: one is made for every append.
Place = tuple[int, int, int]


class RecordTooLarge(StoreError):
    """A record that fits in no commit-log file, or whose properties fit in no record."""


class PartlyAppended(StoreError):
    """The first messages of an append are stored, those behind ``span.offsets`` are not, for ``reason``."""

    def __init__(self, span: Span, reason: Exception) -> None:
        super().__init__(f"{len(span.offsets)} messages are stored, the next ones are not: {reason}")
        self.span = span
        self.reason = reason


class Packed(NamedTuple):
    """Records that are ready to be written, and what follows from them."""

    #: Where the log has to end for them.
    at: int
    #: Their bytes, a piece a file: the log goes on to its next file between two of them.
    pieces: list[bytes]
    #: Store time of the records, ms.
    stamp: int
    #: What each queue gets.
    deltas: list[Delta]
    #: The messages, whose keys go into the index.
    puts: Sequence[Put]
    #: One (queue index, commit-log offset) a message.
    offsets: list[tuple[int, int]]
    #: The sums of their records (:mod:`.sums`), as many as pieces; none: they are not made.
    sums: list[array[int]]


class Replicated(NamedTuple):
    """Bytes of another broker's log, cut anywhere, in one file: what follows from them is read from the log."""

    #: Where they lie in that log, and are to lie in this one.
    at: int
    data: bytes | memoryview
    #: In memory, too.
    kept: bool = True


def pack(puts: Sequence[Put], at: Place, stamp: int, *, together: bool = False, sums: bool = False) -> Packed:
    """Make records of messages, in order.

    :param puts: at least one message.
    :param at: where the first record goes.
    :param stamp: their store time, ms.
    :param together: a batch: all records land in one file (store-and-broker.md 2.5).
    :param sums: their sums are made, too.
    :raises RecordTooLarge: a record, or a batch, fits in no file.
    """
    if len(puts) == 1:
        return _pack_one(puts, at, stamp, sums)
    end, room, file_size = at
    pieces: list[bytes] = []
    made: list[array[int]] = []
    physical = end
    if together:
        whole = sum(
            _FIXED - 16 + len(p.born_host) + len(p.store_host) + len(p.body) + len(p.properties)
            + len(p.queue.topic_field) - 1 for p in puts
        )  # fmt: skip
        if whole > room:
            if whole + _BLANK > file_size:
                raise RecordTooLarge(f"a batch of {whole} bytes fits in no commit-log file of {file_size}")
            pieces.append(b"")
            if sums:
                made.append(sums_of(()))
            physical += room + _BLANK
            room = file_size - _BLANK
    parts: list[bytes] = []
    offsets: list[tuple[int, int]] = []
    #: Offset, size and tags code of each queue's new entries.
    entries: dict[Queue, list[int]] = {}
    known = entries.get
    lengths = _LENGTHS
    longest = MAX_BYTES
    for (
        queue, body, properties, flag, sys_flag, born_timestamp, born_host, store_host,
        reconsume_times, prepared_offset, tags_code, _,
    ) in puts:  # fmt: skip
        body_size = len(body)
        properties_size = len(properties)
        size = queue.overhead + body_size + properties_size
        if sys_flag & 0x30:
            size += len(born_host) + len(store_host) - 16
            head = _HEADS[len(born_host), len(store_host)]
        else:
            head = _head
        if size > room or properties_size > longest:
            _check_fits(size, properties_size, file_size)
            pieces.append(b"".join(parts))
            if sums:
                made.append(sums_of(parts))
            parts.clear()
            physical += room + _BLANK
            room = file_size - _BLANK
        new = known(queue)
        if new is None:
            entries[queue] = [physical, size, tags_code]
            index = queue.next
        else:
            index = queue.next + len(new) // 3
            new += (physical, size, tags_code)
        parts += (
            head(
                size, _MAGIC, crc32(body) & 0x7FFFFFFF if body_size else 0, queue.id, flag, index, physical,
                sys_flag, born_timestamp, born_host, stamp, store_host, reconsume_times, prepared_offset,
                body_size,
            ),
            body,
            queue.topic_field,
            lengths[properties_size],
            properties,
        )  # fmt: skip
        offsets.append((index, physical))
        physical += size
        room -= size
    pieces.append(b"".join(parts))
    if sums:
        made.append(sums_of(parts))
    deltas: list[Delta] = []
    for queue, new in entries.items():
        count = len(new) // 3
        packed = _entries[count](*new) if count <= MOST_ROWS else pack_entries(new)
        deltas.append((queue, packed, count, sum(new[1::3]), new[-3] + new[-2]))
    return Packed(end, pieces, stamp, deltas, puts, offsets, made)


def _pack_one(puts: Sequence[Put], at: Place, stamp: int, sums: bool) -> Packed:
    """The same for one message, which is what a sender that waits for each answer gives: nothing is gathered."""
    ((
        queue, body, properties, flag, sys_flag, born_timestamp, born_host, store_host,
        reconsume_times, prepared_offset, tags_code, _,
    ),) = puts  # fmt: skip
    end, room, file_size = at
    body_size = len(body)
    properties_size = len(properties)
    size = queue.overhead + body_size + properties_size
    if sys_flag & 0x30:
        size += len(born_host) + len(store_host) - 16
        head = _HEADS[len(born_host), len(store_host)]
    else:
        head = _head
    physical = end
    rolls = size > room
    if rolls or properties_size > MAX_BYTES:
        _check_fits(size, properties_size, file_size)
        physical += room + _BLANK
    index = queue.next
    front = head(
        size, _MAGIC, crc32(body) & 0x7FFFFFFF if body_size else 0, queue.id, flag, index, physical,
        sys_flag, born_timestamp, born_host, stamp, store_host, reconsume_times, prepared_offset,
        body_size,
    )  # fmt: skip
    field = queue.topic_field
    record = b"".join((front, body, field, _LENGTHS[properties_size], properties))
    delta = (queue, _entry(physical, size, tags_code), 1, size, physical + size)
    pieces = [b"", record] if rolls else [record]
    made = [] if not sums else [array("I", (sum_of(front, field, properties),))]
    if rolls and sums:
        made.insert(0, array("I"))
    # What ``Packed(...)`` makes, without its call.
    return tuple.__new__(Packed, (end, pieces, stamp, [delta], puts, [(index, physical)], made))


def _check_fits(size: int, properties_size: int, file_size: int) -> None:
    """Refuse what fits in no file of the log, or in no record."""
    if properties_size > MAX_BYTES:
        raise RecordTooLarge(f"a property string of {properties_size} bytes: at most {MAX_BYTES} are allowed")
    if size + _BLANK > file_size:
        raise RecordTooLarge(f"a record of {size} bytes fits in no commit-log file of {file_size}")
