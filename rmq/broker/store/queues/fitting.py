"""Whether the bytes at hand are the message that a queue entry stands for: nothing is handed out that is not.

Entry and record say the same in several ways: the record's place in the log, its size, its topic, queue and index. A
bit that changes in either, an entry that points to another message, and bytes that are no record are told by that,
without reading the body; its checksum is compared where the caller asks for it. What nothing else says as well (flags,
times, hosts, properties) cannot be compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any
from zlib import crc32

from rmq.broker.store.log.records import LARGEST, check
from rmq.broker.store.queues.multi_dispatch import index_named
from rmq.broker.store.state import Queue
from rmq.protocol.record import FIXED_SIZE, HEAD_SIZE, MAGIC_V1, Buffer, fields, places

__all__ = ["all_fit", "fits", "is_size"]

_head = fields("size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "body_size")
_owner = fields("queue_id", "queue_offset")
#: What reads topic field and length of the properties, by the bytes of the former.
_TAILS: list[Callable[[Buffer, int], tuple[Any, ...]]] = [Struct(f">{size}sh").unpack_from for size in range(129)]


def is_size(size: int) -> bool:
    """Whether a record can be as large as an entry says."""
    return FIXED_SIZE <= size <= LARGEST


def all_fit(
    queue: Queue,
    index: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    records: Iterable[Buffer],
    at: Iterable[int],
    *,
    crc: bool,
) -> bool:
    """Whether the records of some messages in a row are those that their entries stand for.

    Nearly all records are V1 with IPv4 hosts, and of the queue itself; these are told here with few operations each.

    :param index: of the first of them.
    :param offsets: where each entry points to, and
    :param sizes: what it says of the record's size, 91 bytes at least.
    :param records: where each record is found whole.
    :param at: at which position there.
    :param crc: whether bodies' checksums are compared, too.
    """
    field = queue.topic_field
    head, tail = _head, _TAILS[len(field)]
    queue_id, overhead = queue.id, queue.overhead
    behind_field = HEAD_SIZE + 2 + len(field)
    for offset, size, record, start in zip(offsets, sizes, records, at, strict=False):
        told, magic, body_crc, of_queue, place, physical, sys_flag, body = head(record, start)
        if not (
            told == size
            and place == index
            and physical == offset
            and magic == MAGIC_V1
            and of_queue == queue_id
            and not sys_flag & 0x30
            and 0 <= body <= size - overhead
            and tail(record, start + HEAD_SIZE + body) == (field, size - body - behind_field)
            and (not crc or _is_whole(record, start, body, body_crc, start + body + behind_field, start + size))
        ) and not fits(queue, index, offset, size, record[start : start + size], crc=crc):
            return False
        index += 1
    return True


def _is_whole(piece: Buffer, start: int, body: int, body_crc: int, text: int, end: int) -> bool:
    """Whether a body has its checksum, and the properties behind it no zero byte, as of a sector that was lost."""
    if body and crc32(piece[start + HEAD_SIZE : start + HEAD_SIZE + body]) & 0x7FFFFFFF != body_crc:
        return False
    return bytes(piece[text:end]).find(0) < 0


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
