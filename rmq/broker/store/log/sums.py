"""Sums of what stands beside the body in a record, and the blocks in which they are kept (:mod:`.checksums`).

A record has a checksum of its body, and of nothing else. A sum is the Adler-32 of its topic field (length and name),
of everything before the body, and of its property string, in that order; the lengths between them add up, or it is no
record. It is made for every message that is appended: of what zlib has, it is the least work for so few bytes.

A block holds the sums of all records that begin in one stretch of a commit-log file. Which of them is whose need not be
said, since every record has its own commit-log offset in it. All numbers are little-endian::

    at  width  field
    0   4      magic, "rmqS"
    4   4      CRC-32 of everything behind it in the block
    8   4      number of sums, n
    12  4      body CRC of the last record, as it says
    16  8      commit-log offset where the stretch begins
    24  8      and where it ends
    32  8      commit-log offset of the last record; -1: not known
    40  8      its store time, ms
    48  8      its born time, ms
    56  4 n    the sums, in the order of the records
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import adler32

from rmq.broker.store.log.record_runs import Run
from rmq.protocol.crc import crc32
from rmq.protocol.record import HEAD_SIZE, MAGIC_V1, fields, places, store_time

__all__ = ["MOST", "Block", "Identity", "decode", "encode", "identity", "own_sum", "sum_of", "sums_in", "sums_of"]

#: Sums in a block, at most.
MOST = 1 << 16
_MAGIC = b"rmqS"
_HEADER = Struct("<4sIIIqqqqq")
_CRC_FROM = 8
#: Topics whose fields were met.
_MOST_FIELDS = 65536
_named = fields("body_crc", "born_timestamp")
#: Where the last byte of the magic is, and what it is of V1.
_KIND_AT, _V1 = 7, MAGIC_V1 & 0xFF
#: Stands in a topic for bytes that are no UTF-8.
_LOST = "\N{REPLACEMENT CHARACTER}"


class _Seeds(dict[bytes, int]):
    """Topic field -> what its bytes begin a sum with."""

    def __missing__(self, field: bytes) -> int:
        if len(self) >= _MOST_FIELDS:
            self.clear()
        seed = self[field] = adler32(field)
        return seed


_seed = _Seeds().__getitem__


class Identity(NamedTuple):
    """What tells one message from another that lies where it did: no damage changes all of it."""

    body_crc: int
    stamp: int
    born: int


class Block(NamedTuple):
    """A block, without its sums."""

    start: int
    end: int
    #: Its records.
    records: int
    #: The last record: its commit-log offset, -1 where that is not known, and who it is.
    last: int
    identity: Identity
    #: Where it lies in its file.
    at: int = 0

    @property
    def size(self) -> int:
        """Its bytes."""
        return _HEADER.size + 4 * self.records


def sums_of(parts: Sequence[bytes]) -> array[int]:
    """Of records that are to be joined: head, body, topic field, length of the properties, and these, of each."""
    return array("I", map(adler32, parts[4::5], map(adler32, parts[::5], map(_seed, parts[2::5]))))


def sum_of(head: bytes, topic_field: bytes, properties: bytes) -> int:
    """The same of one."""
    return adler32(properties, adler32(head, _seed(topic_field)))


def sums_in(run: Run) -> array[int]:
    """Of good records that were read."""
    data, records = run.data, run.records
    topics = {record[5] for record in records}
    if any(_LOST in topic for topic in topics):
        return array("I", [own_sum(data, at, size) for at, size, _, _, _, _, _ in records])
    seeds = {topic: _seed(_field(topic)) for topic in topics}
    return array(
        "I",
        [
            adler32(data[text : at + size], adler32(data[at : at + HEAD_SIZE], seeds[topic]))
            if data[at + _KIND_AT] == _V1 and not sys_flag & 0x30
            else own_sum(data, at, size)
            for at, size, sys_flag, _, _, topic, text in records
        ],
    )


def own_sum(data: bytes, at: int, size: int) -> int:
    """Of a good record of whatever kind."""
    body_at, topic_at, _, behind = places(data, at)
    return sum_of(data[at:body_at], data[topic_at:behind], data[behind + 2 : at + size])


def _field(topic: str) -> bytes:
    encoded = topic.encode()
    return bytes((len(encoded) & 0xFF,)) + encoded


def identity(data: bytes, at: int) -> Identity:
    """Who the good record at ``at`` is."""
    body_crc, born = _named(data, at)
    return Identity(body_crc, store_time(data, at), born)


def encode(block: Block, sums: array[int]) -> bytes:
    """The bytes of a block."""
    body = sums.tobytes() if sys.byteorder == "little" else _swapped(sums).tobytes()
    header = _HEADER.pack(
        _MAGIC, 0, len(sums), block.identity.body_crc, block.start, block.end, block.last, block.identity.stamp,
        block.identity.born,
    )  # fmt: skip
    check = crc32(body, crc32(header[_CRC_FROM:]))
    return header[:4] + check.to_bytes(4, "little") + header[_CRC_FROM:] + body


def decode(data: bytes) -> Iterator[tuple[Block, array[int]]]:
    """The blocks in some bytes, whatever is between them."""
    at = 0
    while (at := data.find(_MAGIC, at)) >= 0 and at + _HEADER.size <= len(data):
        _, check, count, body_crc, start, end, last, stamp, born = _HEADER.unpack_from(data, at)
        block = Block(start, end, count, last, Identity(body_crc, stamp, born), at)
        behind = at + block.size
        if not 0 < count <= MOST or behind > len(data) or crc32(data[at + _CRC_FROM : behind]) != check:
            at += 1
            continue
        sums = array("I", data[at + _HEADER.size : behind])
        yield block, sums if sys.byteorder == "little" else _swapped(sums)
        at = behind


def _swapped(sums: array[int]) -> array[int]:
    other = sums[:]
    other.byteswap()
    return other
