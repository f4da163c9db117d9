"""What a leader tells of a span that it has appended: the entries of queues and the keys of the index, ready made.

Who follows it writes them, and does not make them again of each record. Bytes, big-endian::

    width  field
    8      commit-log offset where the span begins, with a record
    8      and where it ends, behind one; both lie in one file
    8      store time of all its records, ms
    4      CRC-32 of the span
    4      CRC-32 of everything behind these fields
    4      number of queues
    4      keys in the index; -1: the leader has none
           of each queue:
    2 + n      topic
    4          queue id
    8          index of its first new entry
    4          number of its new entries, k
    20 k       they, as they lie in its file (store-and-broker.md 3.1)
    20     each key, as its entry lies in the index file (4.1); time and previous entry are the leader's, and not used

Nothing of it is believed before :meth:`Told.fits` has held it against the bytes of the span: these are what the leader
has written, bodies, heads and properties; every record is where an entry says, there is no byte besides, and the first
record of each queue says the same of itself. The rest is the leader's word, as it is in its own files; that a queue
goes on by one is seen when they are put.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

from rmq.broker.store.index.file import INDEX_ENTRY_SIZE
from rmq.broker.store.state import ENTRY_SIZE, PLACE
from rmq.protocol.crc import crc32
from rmq.protocol.errors import ProtocolError, ReplicationError
from rmq.protocol.record import FIXED_SIZE, MAGIC_V1, MAGIC_V2, fields, fitted, store_time

__all__ = ["LONGEST", "Told", "ToldQueue", "sizes_in"]

#: Bytes of a span that is told of, at most: it is put in one go. A longer one is read from the log, piece by piece.
LONGEST = 4 << 20

_HEADER = Struct(">qqqIIii")
_LENGTH = Struct(">H")
_QUEUE = Struct(">iqi")
_NO_INDEX = -1
#: Hash and commit-log offset of each entry of the index; the offset alone; and those of many entries, which costs half
#: as much when they are read in one go.
_keys = Struct(">iq8x").iter_unpack
_offsets = Struct(">4xq8x").iter_unpack
_AT_ONCE = 64
_offsets_at_once = Struct(">" + "4xq8x" * _AT_ONCE).unpack_from
_head = fields("size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag")
_size = Struct(">i").unpack_from
#: Commit-log offset and size of each entry of a queue.
_places = Struct(">qi8x").iter_unpack
#: Numbers of four bytes of an entry.
_WORDS = ENTRY_SIZE // 4
#: Bit of the sys flag: the message is in no queue.
_IN_NO_QUEUE = 0x4
#: No store time is so late, ms.
_LATEST = 1 << 53
#: Bytes of memory of one without its entries and keys, and of each of its queues without its entries.
_MEMORY = 512
_QUEUE_MEMORY = 384


class ToldQueue(NamedTuple):
    """What one queue gets."""

    topic: str
    queue_id: int
    #: Index of the first of its new entries, and they.
    first: int
    entries: bytes


class Told(NamedTuple):
    """What follows from the records between two commit-log offsets."""

    start: int
    end: int
    stamp: int
    #: CRC-32 of the bytes between.
    crc: int
    queues: list[ToldQueue]
    #: Entries of the index; None: the leader has no index.
    keys: bytes | None
    #: It was held against the bytes between when these were written (:meth:`fits`).
    proven: bool = False

    def encode(self) -> bytes:
        """As bytes."""
        keys = _NO_INDEX if self.keys is None else len(self.keys) // INDEX_ENTRY_SIZE
        parts: list[bytes] = []
        for topic, queue_id, first, entries in self.queues:
            name = topic.encode()
            parts += (_LENGTH.pack(len(name)), name, _QUEUE.pack(queue_id, first, len(entries) // ENTRY_SIZE), entries)
        if self.keys:
            parts.append(self.keys)
        rest = b"".join(parts)
        return _HEADER.pack(self.start, self.end, self.stamp, self.crc, crc32(rest), len(self.queues), keys) + rest

    @classmethod
    def decode(cls, data: bytes) -> Told:
        """Read it.

        :raises ReplicationError: this is nothing that a leader tells.
        """
        try:
            start, end, stamp, crc, rest, count, keys = _HEADER.unpack_from(data)
            at = _HEADER.size
            if crc32(memoryview(data)[at:]) != rest:
                raise ReplicationError("what a leader tells of a span has changed on its way")
            queues: list[ToldQueue] = []
            while len(queues) < count:
                (length,) = _LENGTH.unpack_from(data, at)
                at += 2 + length
                topic = data[at - length : at].decode()
                queue_id, first, entries = _QUEUE.unpack_from(data, at)
                at += _QUEUE.size
                behind = at + ENTRY_SIZE * entries
                if entries < 1 or behind > len(data) or first < 0 or queue_id < 0:
                    raise ReplicationError(f"a leader tells of {entries} entries of a queue from {first} on")
                queues.append(ToldQueue(topic, queue_id, first, data[at:behind]))
                at = behind
        except (error, UnicodeDecodeError) as fault:
            raise ReplicationError(f"a leader tells nothing that can be read of a span: {fault}") from None
        if not 0 <= start < end or not 0 < stamp < _LATEST or keys < _NO_INDEX or not queues:
            raise ReplicationError(
                f"a leader tells of a span from {start} to {end} with {keys} keys, stored at {stamp}"
            )
        if len(data) - at != INDEX_ENTRY_SIZE * max(0, keys):
            raise ReplicationError(f"a leader tells of {keys} keys in {len(data) - at} bytes")
        return cls(start, end, stamp, crc, queues, None if keys == _NO_INDEX else data[at:])

    @property
    def memory(self) -> int:
        """Bytes that it takes while it waits, about."""
        entries = sum([_QUEUE_MEMORY + len(queue.entries) for queue in self.queues])
        return _MEMORY + entries + len(self.keys or b"")

    def hashes(self) -> list[tuple[int, int]]:
        """What goes into the index: (hash, commit-log offset) of each key, in the order of the records."""
        return list(_keys(self.keys or b""))

    def has_good_keys(self) -> bool:
        """Whether the keys are of records of the span, in their order."""
        keys = self.keys
        if not keys:
            return True
        rest = len(keys) % (_AT_ONCE * INDEX_ENTRY_SIZE)
        offsets: list[int] = []
        for at in range(0, len(keys) - rest, _AT_ONCE * INDEX_ENTRY_SIZE):
            offsets += _offsets_at_once(keys, at)
        offsets += [offset for (offset,) in _offsets(keys[len(keys) - rest :])]
        if offsets[0] < self.start or offsets[-1] >= self.end or offsets != sorted(offsets):
            return False
        # No hash is negative: none of them begins with a byte of more than 127.
        return keys[::INDEX_ENTRY_SIZE].isascii()

    def fits(self, data: bytes | memoryview, crc: int | None = None) -> bool:
        """Whether it is of these bytes of the log, which lie between its offsets, and they are as they were sent.

        Sizes add up to the span, so that every record is where its entry says.

        :param crc: their CRC-32, where it is known.
        """
        start = self.start
        if len(data) != self.end - start or (crc32(data) if crc is None else crc) != self.crc:
            return False
        if (last := self._last()) is None:
            return False
        offset, size = last
        if _size(data, offset - start)[0] != size or store_time(data, offset - start) != self.stamp:
            return False
        if store_time(data, 0) != self.stamp:
            return False
        return _begin(self.queues, data, start)

    def _last(self) -> tuple[int, int] | None:
        """Offset and size of the last record; None where entries do not fill the span, each behind another."""
        queues, at = self.queues, self.start
        if len(queues) == 1:  # its entries are in the order of the log
            places = list(_places(queues[0].entries))
        else:
            places = sorted(_places(b"".join([queue.entries for queue in queues])))
        for offset, size in places:
            if offset != at or size < FIXED_SIZE:
                return None
            at += size
        return places[-1] if at == self.end else None


def sizes_in(entries: bytes) -> int:
    """Bytes of all records that some entries of a queue name."""
    sizes = array("I", entries)[2::_WORDS]
    if sys.byteorder == "little":
        sizes.byteswap()
    return sum(sizes)


def _begin(queues: Sequence[ToldQueue], data: bytes | memoryview, base: int) -> bool:
    """Whether the first of each queue's records is one, where it says that it is, and that entry of that queue.

    :param base: commit-log offset of the first byte.
    """
    for topic, queue_id, first, entries in queues:
        offset, size = PLACE.unpack_from(entries)
        at = offset - base
        said, magic, said_id, index, physical, sys_flag = _head(data, at)
        if (said, said_id, index, physical) != (size, queue_id, first, offset) or sys_flag & _IN_NO_QUEUE:
            return False
        if magic not in (MAGIC_V1, MAGIC_V2):
            return False
        try:
            _, _, name_at, behind = fitted(data, at, size)
        except ProtocolError:
            return False
        if data[name_at:behind] != topic.encode():
            return False
    return True
