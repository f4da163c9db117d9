"""Records as the store itself reads them: is it whole, and what goes into queues and index.

Layout: store-and-broker.md 2.1 (V1; the V2 of 5.x, whose topic length has two bytes, is read, too). What makes a record
good: its magic, lengths that add up, its own offset in it, and the checksum of its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple
from zlib import crc32

from rmq.broker.store.index.words import words
from rmq.broker.store.log.commit_log import BLANK_MAGIC
from rmq.protocol.names import SCHEDULE_TOPIC
from rmq.protocol.numbers import INT_MAX, whole
from rmq.protocol.tags import string_hash

__all__ = [
    "MAGIC",
    "MAGIC_V2",
    "SMALLEST",
    "Derived",
    "TagsRule",
    "check",
    "derive",
    "index_keys",
    "is_blank",
    "layout",
    "store_time",
    "topic_of",
]

MAGIC = -626843481
MAGIC_V2 = -626843477
#: Bytes of a record without body, topic and properties.
SMALLEST = 91
#: No record is larger, whatever a damaged length says.
_LARGEST = 32 << 20
#: What a disk writes whole or not at all.
_SECTOR = 512

_head = Struct(">iii16xqi44xi").unpack_from
_pair = Struct(">ii").unpack_from
_int = Struct(">i").unpack_from
_short = Struct(">h").unpack_from
_long = Struct(">q").unpack_from
_fields = Struct(">12xi4xqqi").unpack_from


def check(data: bytes, at: int, offset: int, limit: int, *, crc: bool = True) -> int:
    """Bytes of the good record at ``at``, 0 when there is none, or minus the bytes that are needed to tell.

    :param data: bytes read from the log.
    :param at: position in ``data``.
    :param offset: commit-log offset of that position; a good record says the same.
    :param limit: bytes from there to the end of its file.
    :param crc: whether the body's checksum is compared.
    """
    have = len(data) - at
    if have < SMALLEST:
        return 0 if limit < SMALLEST else -SMALLEST
    size, magic, body_crc, physical, sys_flag, body_size = _head(data, at)
    if (magic != MAGIC and magic != MAGIC_V2) or physical != offset:
        return 0
    if size < SMALLEST or size > limit or size > _LARGEST:
        return 0
    if have < size:
        return -int(size)
    body_at = at + 88
    end = at + size
    try:
        if sys_flag & 0x30:
            body_at += 12 * (sys_flag >> 4 & 1) + 12 * (sys_flag >> 5 & 1)
            body_size = _int(data, body_at - 4)[0]
        topic_at = body_at + body_size
        if body_size < 0 or topic_at >= end:
            return 0
        if magic == MAGIC:
            name_at = topic_at + 1
            behind = name_at + data[topic_at]
        else:
            name_at = topic_at + 2
            behind = name_at + _short(data, topic_at)[0]
        if behind <= name_at or behind + 2 + _short(data, behind)[0] != end:
            return 0
    except (error, IndexError):
        return 0
    if crc:
        if body_size and crc32(data[body_at:topic_at]) & 0x7FFFFFFF != body_crc:
            return 0
        # No checksum covers what comes behind the body: a sector of it that never got to the disk reads as zeros.
        find = data.find
        if find(0, name_at, behind) >= 0 or (
            find(0, behind + 2, end) >= 0 and _lost_sector(data, name_at, end, offset - at)
        ):
            return 0
        # The end of the log: a write that a kill cut short within the properties leaves them ending in zeros, with
        # nothing behind. (A value may end in NUL, too; such a record is taken back only when it is the very last.)
        if have >= size + 4 and end > behind + 2 and not data[end - 1] and not any(data[end : end + 4]):
            return 0
    return int(size)


def _lost_sector(data: bytes, start: int, end: int, shift: int) -> bool:
    """Whether the part of ``data`` from ``start`` to ``end`` that lies in some sector is all zeros."""
    while start < end:
        stop = min(end, (start + shift) // _SECTOR * _SECTOR + _SECTOR - shift)
        if not any(data[start:stop]):
            return True
        start = stop
    return False


def is_blank(data: bytes, at: int, limit: int) -> bool:
    """Whether the rest of a file, ``limit`` bytes, is marked as blank at ``at``."""
    return len(data) - at >= 8 and _int(data, at + 4)[0] == BLANK_MAGIC and _int(data, at)[0] == limit


def store_time(data: bytes, at: int = 0) -> int:
    """Store time of the record at ``at``, ms; its first 76 bytes suffice."""
    return int(_long(data, at + (68 if data[at + 39] & 0x10 else 56))[0])


class Derived(NamedTuple):
    """What dispatch needs of a record."""

    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    tags_code: int
    #: Unique key first, then the tokens of KEYS.
    keys: Sequence[bytes]


class TagsRule:
    """The tags code of a stored message: the hash of its tag, or when a delayed one is due (store-and-broker.md 2.13).

    :param delays_ms: delay of level 1, 2, ...
    """

    __slots__ = ("_delays", "_known")

    def __init__(self, delays_ms: Sequence[int]) -> None:
        self._delays = tuple(delays_ms)
        self._known: dict[bytes, int] = {}

    def tag(self, tags: bytes) -> int:
        """Java's hash of a tag text, 0 for none."""
        if not tags:
            return 0
        code = self._known.get(tags)
        if code is None:
            if len(self._known) >= 4096:
                self._known.clear()
            code = self._known[tags] = string_hash(tags.decode(errors="replace"))
        return code

    def code(self, data: bytes, start: int, end: int) -> int | None:
        """What :meth:`tag` says of the TAGS in a property string; None when only splitting it can tell.

        :param start: position of the property string in ``data``, and
        :param end: the position behind it.
        """
        find = data.find
        at = find(b"TAGS\1", start, end)
        if at < 0:
            return 0
        if at > start and data[at - 1] != 2:
            return None
        stop = find(b"\2", at, end)
        if stop < 0:
            stop = end
        elif find(b"TAGS\1", stop, end) >= 0:
            return None
        tags = data[at + 5 : stop]
        code = self._known.get(tags)
        return self.tag(tags) if code is None else code

    def due(self, level: int, store_timestamp: int) -> int:
        """When a message of a delay level is delivered, ms."""
        delay = self._delays[min(level, len(self._delays)) - 1] if self._delays else 1000
        return store_timestamp + delay


def layout(data: bytes, at: int) -> tuple[int, int, int]:
    """Where topic field, topic and the length of the properties of the good record at ``at`` begin."""
    sys_flag = _int(data, at + 36)[0]
    body_at = at + 88 + 12 * (sys_flag >> 4 & 1) + 12 * (sys_flag >> 5 & 1)
    topic_at = body_at + _int(data, body_at - 4)[0]
    if _int(data, at + 4)[0] == MAGIC:
        return topic_at, topic_at + 1, topic_at + 1 + data[topic_at]
    return topic_at, topic_at + 2, topic_at + 2 + _short(data, topic_at)[0]


def topic_of(record: bytes) -> str:
    """The topic of a good record."""
    _, name_at, behind = layout(record, 0)
    return record[name_at:behind].decode(errors="replace")


def derive(data: bytes, at: int, rule: TagsRule) -> Derived:
    """What the good record at ``at`` (see :func:`check`) puts into queues and index."""
    queue_id, queue_offset, _, sys_flag = _fields(data, at)
    size = _int(data, at)[0]
    store_timestamp = store_time(data, at)
    _, topic_at, behind = layout(data, at)
    topic = data[topic_at:behind].decode(errors="replace")
    tags, delay, keys = _texts(data[behind + 2 : at + size])
    tags_code = rule.tag(tags)
    if delay and topic == SCHEDULE_TOPIC and (level := whole(delay, INT_MAX, 1)) is not None:
        tags_code = rule.due(level, store_timestamp)
    return Derived(topic, queue_id, queue_offset, sys_flag, store_timestamp, tags_code, keys)


def index_keys(data: bytes, start: int, end: int) -> Sequence[bytes]:
    """Index keys in the property string from ``start`` to ``end``: the unique key first, then the tokens of KEYS."""
    return _texts(data[start:end])[2]


def _texts(properties: bytes) -> tuple[bytes, bytes, Sequence[bytes]]:
    """TAGS, DELAY and the index keys of a property string; of a name that is repeated the last value that is one."""
    properties = b"\2" + properties
    unique = _value(properties, b"\2UNIQ_KEY\1")
    keys = words(_value(properties, b"\2KEYS\1"))
    return _value(properties, b"\2TAGS\1"), _value(properties, b"\2DELAY\1"), (unique, *keys) if unique else keys


def _value(properties: bytes, mark: bytes) -> bytes:
    """The last value behind ``mark``: a property string may have 10,000 items, which are not looked at one by one."""
    at = len(properties)
    while (at := properties.rfind(mark, 0, at)) >= 0:
        start = at + len(mark)
        end = properties.find(b"\2", start)
        if value := properties[start:] if end < 0 else properties[start:end]:
            return value
    return b""
