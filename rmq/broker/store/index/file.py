"""One index file: a hash table of message keys on disk (store-and-broker.md 4.1).

========  ====  ==========================================================
offset    type  field
========  ====  ==========================================================
0         i8    begin store timestamp
8         i8    end store timestamp
16        i8    begin physical offset
24        i8    end physical offset
32        i4    used slots
36        i4    index count: number of the next entry, 1 in an empty file
40        i4    x slots: newest entry of each slot, 0 = none
then      20 B  x entries: key hash i4, offset i8, seconds since begin i4,
                previous entry of the slot i4
========  ====  ==========================================================

The slot table of the file being filled lives in anonymous memory; it is written, and the header for it, once a minute,
when the file is full, and at a clean stop. Entries follow in the background. What a crash leaves is verified entry by
entry and completed.
"""

from __future__ import annotations

import mmap
import sys
from array import array
from struct import Struct, pack
from typing import NamedTuple

from rmq.broker.store.log.stamps import AHEAD_MS
from rmq.broker.store.open_files import SharedFile
from rmq.broker.store.rows import MOST_ROWS, Rows

__all__ = ["HEADER_SIZE", "INDEX_ENTRY", "INDEX_ENTRY_SIZE", "IndexFile", "IndexHeader"]

HEADER_SIZE = 40
INDEX_ENTRY_SIZE = 20
#: An entry: hash, commit-log offset, seconds after the file's first message, and the entry before it of its slot.
INDEX_ENTRY = Struct(">iqii")
_header = Struct(">qqqqii")
_rows = Rows("iqii")
_entries = _rows.packs
_INT_MAX = 0x7FFFFFFF
#: An entry as numbers of 4 bytes: hash, the halves of the offset, seconds, the entry before it.
_WORDS = INDEX_ENTRY_SIZE // 4
_PIECE = 256 << 10
_EMPTY = bytes(_PIECE)
_UNFINISHED = (1 << 63) - 1


class IndexHeader(NamedTuple):
    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    slot_count: int
    next: int

    @classmethod
    def decode(cls, data: bytes) -> IndexHeader:
        """From a file's first 40 bytes; a file shorter than that reads as empty."""
        return cls._make(_header.unpack(data[:HEADER_SIZE].ljust(HEADER_SIZE, b"\0")))

    def encode(self) -> bytes:
        return _header.pack(*self)


class IndexFile:
    """An index file, open; ``slots`` is there only while it is being filled.

    :param slots: slots a file has.
    :param capacity: ``maxIndexNum``; entry numbers stay below it.
    """

    __slots__ = (
        "_buffer",
        "_buffered_from",
        "_memory",
        "_slots",
        "begin_offset",
        "begin_timestamp",
        "capacity",
        "count",
        "end_offset",
        "end_timestamp",
        "forced",
        "in_doubt",
        "name",
        "path",
        "shared",
        "slot_count",
        "slots",
    )

    def __init__(self, name: str, path: str, slots: int, capacity: int) -> None:
        self.name = name
        self.path = path
        self.slots = slots
        self.capacity = capacity
        self.begin_timestamp = 0
        self.end_timestamp = 0
        self.begin_offset = 0
        self.end_offset = 0
        self.slot_count = 0
        self.count = 1
        #: ``count`` when slots and header were last brought to disk.
        self.forced = 1
        #: A flush failed: it is written again before the next.
        self.in_doubt = False
        #: The open file; None for a file that is not made yet.
        self.shared: SharedFile | None = None
        self._memory: mmap.mmap | None = None
        self._slots: memoryview | None = None
        self._buffer = bytearray()
        self._buffered_from = 1

    @property
    def size(self) -> int:
        return HEADER_SIZE + 4 * self.slots + INDEX_ENTRY_SIZE * self.capacity

    @property
    def full(self) -> bool:
        return self.count >= self.capacity

    @property
    def filling(self) -> bool:
        """Whether entries can be put."""
        return self._slots is not None

    def open_slots(self) -> None:
        """Get the slot table, empty. Untouched pages of it cost nothing."""
        self._memory = mmap.mmap(-1, 4 * self.slots)
        self._slots = memoryview(self._memory).cast("i")

    def empty_slots(self) -> memoryview:
        """A slot table without entries, for who follows them."""
        return memoryview(mmap.mmap(-1, 4 * self.slots)).cast("i")

    def take_slots(self, table: memoryview) -> bool:
        """Have the slot table that follows from all entries; whether the one in memory was another."""
        assert self._memory is not None
        right = table.tobytes()
        if self._memory[:] == right:
            return False
        self._memory[:] = right
        return True

    def drop_slots(self) -> None:
        if self._slots is not None and self._memory is not None:
            self._slots.release()
            self._memory.close()
            self._slots = None
            self._memory = None

    def put_many(self, hashes: list[tuple[int, int]], first: int, stamp: int) -> int:
        """Put (hash, physical offset) items from number ``first`` on until the file is full.

        :param stamp: their messages' store time, ms.
        :returns: the number of the first item that another file has to take: there is no room, this one is not being
            filled, or began so much later than ``stamp`` that the time cannot be given in it.
        """
        table = self._slots
        number = self.count
        stop = min(len(hashes), first + self.capacity - number)
        if table is None or stop <= first or (seconds := self._begun(stamp, hashes[first][1])) < 0:
            return first
        slots = self.slots
        used = 0
        fields: list[int] = []
        for value, offset in hashes[first:stop]:
            slot = value % slots
            before = table[slot]
            if not before:
                used += 1
            table[slot] = number
            fields += (value, offset, seconds, before)
            number += 1
        try:
            count = stop - first
            self._buffer += _entries[count](*fields) if count <= MOST_ROWS else _rows.pack(fields)
        except BaseException:
            for at in range(len(fields) - 4, -1, -4):  # no slot may name an entry that is not there
                table[fields[at] % slots] = fields[at + 3]
            raise
        self.slot_count += used
        self.count = number
        self.end_timestamp = stamp
        self.end_offset = hashes[stop - 1][1]
        return stop

    def put_columns(self, hashes: list[int], offsets: list[int], first: int, stamp: int) -> int:
        """:meth:`put_many` of hashes, and the offset of each: quicker where there are many."""
        stop = self._last(len(hashes), first)
        if stop <= first or (seconds := self._begun(stamp, offsets[first])) < 0:
            return first
        part = array("I", hashes[first:stop])
        halves = array("I", pack(f">{len(part)}q", *offsets[first:stop]))
        words = array("I", bytes(INDEX_ENTRY_SIZE * len(part)))
        words[0::_WORDS] = _turned(part[:])
        words[1::_WORDS] = halves[0::2]
        words[2::_WORDS] = halves[1::2]
        self._put(words, part, seconds)
        self.end_timestamp = stamp
        self.end_offset = offsets[stop - 1]
        return stop

    def put_entries(self, entries: bytes, first: int, stamp: int) -> int:
        """:meth:`put_many` of entries as another index has them: hashes and offsets are taken, nothing else."""
        stop = self._last(len(entries) // INDEX_ENTRY_SIZE, first)
        begin, end = INDEX_ENTRY_SIZE * first, INDEX_ENTRY_SIZE * stop
        if stop <= first or (seconds := self._begun(stamp, _offset_in(entries, begin))) < 0:
            return first
        words = array("I", entries[begin:end])
        self._put(words, _turned(words[0::_WORDS]), seconds)
        self.end_timestamp = stamp
        self.end_offset = _offset_in(entries, end - INDEX_ENTRY_SIZE)
        return stop

    def _last(self, size: int, first: int) -> int:
        """The number behind the last of so many items that there is room for, from number ``first`` on."""
        return first if self._slots is None else min(size, first + self.capacity - self.count)

    def _put(self, words: array[int], hashes: array[int], seconds: int) -> None:
        """Put entries of which time and previous entry are missing.

        :param words: they, as they lie in the file.
        :param hashes: of them, as numbers.
        """
        table = self._slots
        assert table is not None
        slots = self.slots
        number = self.count
        befores: list[int] = []
        add = befores.append
        for value in hashes:
            slot = value % slots
            add(table[slot])
            table[slot] = number
            number += 1
        try:
            words[3::_WORDS] = _turned(array("I", (seconds,))) * len(befores)
            words[4::_WORDS] = _turned(array("I", befores))
            self._buffer += words
        except BaseException:
            for value, before in zip(reversed(hashes), reversed(befores), strict=True):
                table[value % slots] = before  # no slot may name an entry that is not there
            raise
        self.slot_count += 0 if all(befores) else befores.count(0)
        self.count = number

    def _begun(self, stamp: int, offset: int) -> int:
        """What entries of this store time say of it; an empty file begins with them. -1: another file has to take them.

        :param offset: commit-log offset of the first of them.
        """
        if self.count <= 1:
            self.begin_timestamp = stamp
            self.begin_offset = offset
        begin = self.begin_timestamp
        # In a file times count from its beginning on.
        seconds = (stamp - begin) // 1000 if begin > 0 else 0
        if seconds < 0:
            return -1 if stamp < begin - AHEAD_MS else 0
        return min(seconds, _INT_MAX)

    def seconds_of(self, stamp: int) -> int:
        """What an entry says of the store time of its message, ms: times count from the file's beginning on."""
        begin = self.begin_timestamp
        return min(max(0, (stamp - begin) // 1000), _INT_MAX) if begin > 0 else 0

    def newest(self, count: int) -> bytes | None:
        """The last entries, if all of so many are here and not in the file yet."""
        size = INDEX_ENTRY_SIZE * count
        return bytes(self._buffer[-size:]) if size <= len(self._buffer) else None

    # -- reading ---------------------------------------------------------------------------------------------------

    def head(self, slot: int) -> int | None:
        """Newest entry of a slot, or None when that must be read from the file."""
        return None if self._slots is None else self._slots[slot]

    def buffered(self, number: int) -> bytes | None:
        """An entry that is not in the file yet, or None."""
        at = (number - self._buffered_from) * INDEX_ENTRY_SIZE
        return bytes(self._buffer[at : at + INDEX_ENTRY_SIZE]) if at >= 0 else None

    def slot_position(self, slot: int) -> int:
        return HEADER_SIZE + 4 * slot

    def entry_position(self, number: int) -> int:
        return HEADER_SIZE + 4 * self.slots + INDEX_ENTRY_SIZE * number

    # -- writing ---------------------------------------------------------------------------------------------------

    @property
    def on_disk(self) -> int:
        """Number of the first entry that is not in the file."""
        return self._buffered_from

    @property
    def waiting(self) -> int:
        """Bytes of entries not in the file."""
        return len(self._buffer)

    def take_buffer(self) -> tuple[int, bytes]:
        """Position and bytes of the waiting entries; :meth:`written` says when they are in the file."""
        return self.entry_position(self._buffered_from), bytes(self._buffer)

    def written(self, size: int) -> None:
        del self._buffer[:size]
        self._buffered_from += size // INDEX_ENTRY_SIZE

    def header(self, *, unfinished: bool = False) -> IndexHeader:
        """The header for what there is now.

        :param unfinished: one that says that the slots on disk do not fit: its end time is later than any checkpoint.
        """
        end = _UNFINISHED if unfinished else self.end_timestamp
        return IndexHeader(self.begin_timestamp, end, self.begin_offset, self.end_offset, self.slot_count, self.count)

    @property
    def unfinished(self) -> bool:
        """Whether the header read says that the slots on disk do not fit."""
        return self.end_timestamp == _UNFINISHED

    def adopt(self, header: IndexHeader) -> None:
        (
            self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset, self.slot_count, count,
        ) = header  # fmt: skip
        self.count = self._buffered_from = self.forced = max(1, count)

    def slot_pieces(self) -> int:
        """In how many pieces the slot table is written."""
        return -(-4 * self.slots // _PIECE)

    def slots_now(self) -> list[bytes]:
        """A copy of the slot table, see :meth:`copied`."""
        assert self._slots is not None
        return self.copied(self._slots)

    @staticmethod
    def copied(slots: memoryview) -> list[bytes]:
        """A copy of a slot table in pieces, as they are in memory; one without an entry is empty, as most are."""
        table = slots.cast("B")
        pieces = (bytes(table[at : at + _PIECE]) for at in range(0, len(table), _PIECE))
        return [b"" if _EMPTY.startswith(raw) else raw for raw in pieces]

    @staticmethod
    def slot_piece(slots: list[bytes], number: int) -> bytes | None:
        """A piece of a copied slot table as the file has it; None for one without an entry."""
        return _swapped(slots[number]) if slots[number] else None

    def load_slot_piece(self, number: int, data: bytes) -> None:
        """Take a piece of the slot table as it is in the file."""
        assert self._memory is not None
        if not _EMPTY.startswith(data):
            at = number * _PIECE
            self._memory[at : at + len(data)] = _swapped(data)

    def piece(self, number: int) -> tuple[int, int]:
        """Size and position of a piece of the slot table."""
        return min(_PIECE, 4 * self.slots - number * _PIECE), HEADER_SIZE + number * _PIECE

    @staticmethod
    def used_slots(data: bytes) -> int:
        """How many slots of a piece have an entry."""
        if _EMPTY.startswith(data):
            return 0
        values = array("i")
        values.frombytes(data[: len(data) // 4 * 4])
        return len(values) - values.count(0)

    def verify(self, first: int, data: bytes) -> bool:
        """Rebuild slots from entries ``first`` on as they are in the file; False at the first that cannot be right.

        Each entry names the one before it in its slot, so that a lost page of entries breaks the chain. ``count``,
        ``end_offset`` and ``slot_count`` follow.
        """
        table = self._slots
        assert table is not None
        slots = self.slots
        number = first
        offset_before = self.end_offset
        for value, offset, seconds, before in INDEX_ENTRY.iter_unpack(data):
            if value < 0 or seconds < 0 or offset < offset_before:
                break
            slot = value % slots
            if table[slot] != before or (value == 0 and offset == 0 and seconds == 0):
                break
            if not before:
                self.slot_count += 1
            table[slot] = number
            number += 1
            offset_before = offset
        whole = number - first == len(data) // INDEX_ENTRY_SIZE
        self.count = self._buffered_from = number
        self.end_offset = offset_before
        return whole

    def take_back(self, first: int, data: bytes, to: int) -> bool:
        """Take the newest entries away, as long as they are of messages from commit-log offset ``to`` on.

        :param first: number of the first entry in ``data``, which ends with the newest.
        :returns: whether an entry of another message was met.
        """
        table = self._slots
        assert table is not None
        for at in range(len(data) - INDEX_ENTRY_SIZE, -1, -INDEX_ENTRY_SIZE):
            value, offset, seconds, before = INDEX_ENTRY.unpack_from(data, at)
            if offset < to:
                self.end_offset = offset
                self.end_timestamp = self.begin_timestamp + 1000 * seconds + 999
                return True
            table[value % self.slots] = before
            if not before:
                self.slot_count -= 1
            self.count = self._buffered_from = first + at // INDEX_ENTRY_SIZE
        return False

    def close(self) -> None:
        self.drop_slots()
        if self.shared is not None:
            self.shared.drop()
            self.shared = None


def _swapped(raw: bytes) -> bytes:
    values = array("i")
    values.frombytes(raw)
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


def _turned(words: array[int]) -> array[int]:
    """Words of a file as numbers, or the other way round; in their place."""
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _offset_in(entries: bytes, at: int) -> int:
    """The commit-log offset in the entry at a position."""
    return int.from_bytes(entries[at + 4 : at + 12], "big")
