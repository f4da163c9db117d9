"""Whether the bytes at hand are the message that a queue entry stands for: nothing is handed out that is not.

Entry and record say the same in several ways: the record's place in the log, its size, its topic, queue and index. A
bit that changes in either, an entry that points to another message, and bytes that are no record are told by that,
without reading the body; its checksum is compared where the caller asks for it. What nothing else says as well (flags,
times, hosts, properties) cannot be compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat
from operator import eq
from struct import Struct
from typing import Any

from rmq.broker.store.log.records import LARGEST, check
from rmq.broker.store.queues.multi_dispatch import index_named
from rmq.broker.store.state import Queue
from rmq.protocol.crc import crc32
from rmq.protocol.record import FIELDS, FIXED_SIZE, HEAD_SIZE, MAGIC_V1, Buffer, fields, form, places

__all__ = ["MANY", "all_fit", "fits", "is_size", "run_fits"]

_COMPARED = ("size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "body_size")
_head = fields(*_COMPARED)
_shape = fields("sys_flag", "body_size")
_body_crc = fields("body_crc")
_owner = fields("queue_id", "queue_offset")
#: What reads topic field and length of the properties, by the bytes of the former: at the body's size from the record.
_TAILS: list[Callable[[Buffer, int], tuple[Any, ...]]] = [
    Struct(f">{HEAD_SIZE}x{size}sh").unpack_from for size in range(129)
]
#: Of fewer records, each by itself is compared sooner than all in one go.
MANY = 8
#: Of fewer records behind one another their fields are compared sooner than their bytes.
_COLUMNS = 48
#: What the last bytes of so many numbers that follow one another are cut out of.
_CYCLED = 1024
_CYCLE = bytes(range(256)) * (_CYCLED // 256 + 1)
#: Where the fields are whose bytes are the same in records that are alike, and what makes these bytes.
_ALIKE = ("size", "magic", "queue_id", "sys_flag", "body_size")
_ALIKE_AT = [at for name in _ALIKE for at in range(FIELDS[name][0], FIELDS[name][0] + 4)]
_alike = Struct(">5i").pack
#: Bits of sysFlag that tell of IPv6 hosts.
_IPV6 = 0x30


@lru_cache(maxsize=1024)
def _layout(body: int, ending: int, rest: int) -> Struct:
    """A record: its compared fields, a body of so many bytes, the ``ending`` bytes behind it, and the rest."""
    return Struct(f"{form(*_COMPARED)}{body}x{ending}s{rest}x")


#: What bytes can be taken from here and there in one go, fast.
Copied = bytes | bytearray


@lru_cache(maxsize=512)
def _numbers(count: int) -> Callable[..., bytes]:
    """Makes the bytes of so many numbers."""
    return Struct(f">{count}q").pack


def is_size(size: int) -> bool:
    """Whether a record can be as large as an entry says."""
    return FIXED_SIZE <= size <= LARGEST


def all_fit(
    queue: Queue,
    indexes: Iterable[int],
    offsets: Sequence[int],
    sizes: Sequence[int],
    records: Iterable[Buffer],
    at: Iterable[int],
    *,
    crc: bool,
) -> bool:
    """Whether the records of some messages are those that their entries stand for.

    Nearly all records are V1 with IPv4 hosts, and of the queue itself; these are told here with few operations each.

    :param indexes: of the messages, one at least, in any collection.
    :param offsets: where each entry points to, and
    :param sizes: what it says of the record's size, 91 bytes at least.
    :param records: where each record is found whole; can be gone through again and again, as
    :param at: can: at which position there.
    :param crc: whether bodies' checksums are compared, too.
    """
    if _are_alike(sizes) and _fit_alike(queue, indexes, offsets, sizes[0], records, at, crc=crc):
        return True
    field = queue.topic_field
    tail = _TAILS[len(field)]
    queue_id, overhead = queue.id, queue.overhead
    heads = map(_head, records, at)
    for head, index, offset, size, record, start in zip(heads, indexes, offsets, sizes, records, at, strict=False):
        told, magic, of_queue, place, physical, sys_flag, body = head
        rest = size - overhead - body
        if (
            told != size
            or place != index
            or physical != offset
            or magic != MAGIC_V1
            or of_queue != queue_id
            or sys_flag & _IPV6
            or body < 0
            or rest < 0
            or tail(record, start + body) != (field, rest)
            or (crc and not _is_whole(record, start, size, body, rest))
        ) and not fits(queue, index, offset, size, record[start : start + size], crc=crc):
            return False
    return True


def run_fits(
    queue: Queue, indexes: Collection[int], offsets: Sequence[int], sizes: Sequence[int], run: Copied, *, crc: bool
) -> bool:
    """:func:`all_fit` of records that lie behind one another, as those of a batch do.

    :param run: begins with the bytes of all of them.
    """
    records = repeat(run)
    if _are_alike(sizes):
        size = sizes[0]
        end = size * len(sizes)
        if len(sizes) >= _COLUMNS and not crc:
            fit = _columns_fit(queue, indexes, offsets, size, run)
        else:
            alike = memoryview(run)[:end]
            fit = _fit_alike(queue, indexes, offsets, size, records, range(0, end, size), crc=crc, run=alike)
        if fit:
            return True
    return all_fit(queue, indexes, offsets, sizes, records, [*accumulate(sizes, initial=0)][:-1], crc=crc)


def _are_alike(sizes: Sequence[int]) -> bool:
    return len(sizes) >= MANY and sizes.count(sizes[0]) == len(sizes)


def _fit_alike(
    queue: Queue,
    indexes: Iterable[int],
    offsets: Sequence[int],
    size: int,
    records: Iterable[Buffer],
    at: Iterable[int],
    *,
    crc: bool,
    run: Buffer | None = None,
) -> bool:
    """:func:`all_fit` of records that are like the first of them in all their lengths: no statement is run for each.

    What is expected of them is what the queue and its entries say; of the first record only how long its body is, so
    that everything can be read, and compared, in one go.

    :param run: the records, where they lie behind one another.
    """
    sys_flag, body = next(map(_shape, records, at))
    rest = size - queue.overhead - body
    if sys_flag & _IPV6 or body < 0 or not 0 <= rest <= 0x7FFF:
        return False
    ending = queue.topic_field + rest.to_bytes(2, "big")
    expected = zip(
        repeat(size),
        repeat(MAGIC_V1),
        repeat(queue.id),
        indexes,
        offsets,
        repeat(sys_flag),
        repeat(body),
        repeat(ending),
        strict=False,
    )
    layout = _layout(body, len(ending), rest)
    told = map(layout.unpack_from, records, at) if run is None else layout.iter_unpack(run)
    if not all(map(eq, told, expected)):
        return False
    return not crc or all(map(_is_whole, records, at, repeat(size), repeat(body), repeat(rest)))


def _columns_fit(queue: Queue, indexes: Collection[int], offsets: Sequence[int], size: int, run: Copied) -> bool:
    """:func:`_fit_alike` of records behind one another: no object is made for a record, only for a byte of all of them.

    The first bytes of all the records are compared in one go, then the second ones, of the bytes that are known.
    """
    sys_flag, body = _shape(run, 0)
    rest = size - queue.overhead - body
    if sys_flag & _IPV6 or body < 0 or not 0 <= rest <= 0x7FFF:
        return False
    count = len(offsets)
    end = count * size
    ending = queue.topic_field + rest.to_bytes(2, "big")
    alike = _alike(size, MAGIC_V1, queue.id, sys_flag, body)
    for at, byte in chain(zip(_ALIKE_AT, alike, strict=True), enumerate(ending, HEAD_SIZE + body)):
        if run[at:end:size] != bytes((byte,)) * count:
            return False
    for field, numbers in (("queue_offset", indexes), ("physical_offset", offsets)):
        for at, told in enumerate(_columns(numbers), FIELDS[field][0]):
            if run[at:end:size] != told:
                return False
    return True


def _columns(numbers: Collection[int]) -> list[bytes]:
    """Some numbers of eight bytes: the first byte of each of them, then the second one of each, and so on.

    Of numbers that follow one another, as indexes do, nearly all of that is one byte again and again.
    """
    count = len(numbers)
    if isinstance(numbers, range) and numbers.step == 1 and count <= _CYCLED:
        first, last = numbers[0], numbers[-1]
        if first >> 16 == last >> 16:
            low = _CYCLE[first & 0xFF :][:count]
            hundreds = range(first >> 8, (last >> 8) + 1)
            spans = (min(last, each << 8 | 0xFF) - max(first, each << 8) + 1 for each in hundreds)
            middle = b"".join([bytes((each & 0xFF,)) * span for each, span in zip(hundreds, spans, strict=True)])
            return [*(bytes((byte,)) * count for byte in (first >> 16).to_bytes(6, "big")), middle, low]
    told = _numbers(count)(*numbers)
    return [told[byte::8] for byte in range(8)]


def _is_whole(piece: Buffer, start: int, size: int, body: int, properties: int) -> bool:
    """Whether a body has its checksum, and the properties behind it no zero byte, as of a sector that was lost.

    :param size: bytes of the record at ``start``,
    :param body: of its body, and
    :param properties: of its properties.
    """
    if body and (crc32(piece[start + HEAD_SIZE : start + HEAD_SIZE + body]) & 0x7FFFFFFF,) != _body_crc(piece, start):
        return False
    end = start + size
    return bytes(piece[end - properties : end]).find(0) < 0


def fits(queue: Queue, index: int, offset: int, size: int, record: Buffer, *, crc: bool) -> bool:
    """Whether some bytes, of whatever kind of record, are the message that the entry at ``index`` stands for."""
    record = bytes(record)
    if len(record) != size or check(record, 0, offset, size, crc=crc) != size:
        return False
    queue_id, place = _owner(record, 0)
    _, _, name_at, behind = places(record)
    if place == index and queue_id == queue.id and record[name_at:behind].decode(errors="replace") == queue.topic:
        return True
    return index_named(record[behind + 2 :], queue_id, queue) == index
