"""Records as the store itself reads them: is it whole, and what goes into queues and index.

What makes a record good: its magic, lengths that add up (:mod:`rmq.protocol.record`; V1, and the V2 of 5.x, too), its
own offset in it, and the checksum of its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rmq.broker.store.index.words import words
from rmq.protocol.crc import crc32
from rmq.protocol.errors import ProtocolError
from rmq.protocol.names import SCHEDULE_TOPIC
from rmq.protocol.numbers import INT_MAX, whole
from rmq.protocol.record import FIXED_SIZE, MAGIC_V1, MAGIC_V2, fields, fitted, places, store_time
from rmq.protocol.tags import string_hash

__all__ = ["LARGEST", "Derived", "TagsRule", "check", "derive", "index_keys"]

#: No record is larger, whatever a damaged length says.
LARGEST = 32 << 20
#: What a disk writes whole or not at all.
_SECTOR = 512

_head = fields("size", "magic", "body_crc", "physical_offset")
_dispatched = fields("size", "queue_id", "queue_offset", "sys_flag")


def check(data: bytes, at: int, offset: int, limit: int, *, crc: bool = True) -> int:
    """Bytes of the good record at ``at``, 0 when there is none, or minus the bytes that are needed to tell.

    :param data: bytes read from the log.
    :param at: position in ``data``.
    :param offset: commit-log offset of that position; a good record says the same.
    :param limit: bytes from there to the end of its file.
    :param crc: whether the body's checksum is compared.
    """
    have = len(data) - at
    if have < FIXED_SIZE:
        return 0 if limit < FIXED_SIZE else -FIXED_SIZE
    size, magic, body_crc, physical = _head(data, at)
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or physical != offset:
        return 0
    if size < FIXED_SIZE or size > limit or size > LARGEST:
        return 0
    if have < size:
        return -int(size)
    end = at + size
    try:
        body_at, topic_at, name_at, behind = fitted(data, at, size)
    except ProtocolError:
        return 0
    if not 0 < behind - name_at <= 0x7FFF:
        return 0
    if crc:
        if topic_at > body_at and crc32(data[body_at:topic_at]) & 0x7FFFFFFF != body_crc:
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


#: No message waits longer, ms: what an entry says of a later delivery is wrong.
_LONGEST_DELAY = 400 * 86_400_000
#: How long before its store time a message was admitted, ms: within a turn of the loop, and where the clock was set.
_TICK, _ADMITTED_BEFORE = 100, 60_000


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

    @staticmethod
    def may_have_been_due(code: int, right: int) -> bool:
        """Whether an entry may say so, times in ms, where its message is not at hand.

        A message is due as the levels were when it came, whose delays are whole seconds, and counts from when it was
        admitted: some ms before its store time, or more where that stood still for a clock that had been set back.

        :param right: what the levels say of it now.
        """
        differs = code - right
        if abs(differs) <= _ADMITTED_BEFORE:
            return True
        return abs(differs) <= _LONGEST_DELAY and not 0 < differs % 1000 < 1000 - _TICK

    @staticmethod
    def may_be_due(code: int, right: int, store_timestamp: int) -> bool:
        """The same of a message that is at hand."""
        waits = code - store_timestamp
        return -_ADMITTED_BEFORE <= waits <= _LONGEST_DELAY and TagsRule.may_have_been_due(code, right)


def derive(data: bytes, at: int, rule: TagsRule) -> Derived:
    """What the good record at ``at`` (see :func:`check`) puts into queues and index."""
    size, queue_id, queue_offset, sys_flag = _dispatched(data, at)
    store_timestamp = store_time(data, at)
    _, _, name_at, behind = places(data, at)
    topic = data[name_at:behind].decode(errors="replace")
    tags, delay, keys = _texts(data[behind + 2 : at + size])
    tags_code = rule.tag(tags)
    if delay and topic == SCHEDULE_TOPIC and (level := whole(delay, INT_MAX, 1)) is not None:
        tags_code = rule.due(level, store_timestamp)
    return Derived(topic, queue_id, queue_offset, sys_flag, store_timestamp, tags_code, keys)


def index_keys(data: bytes, start: int, end: int) -> Sequence[bytes]:
    """Index keys in the property string from ``start`` to ``end``: the unique key first, then the tokens of KEYS."""
    unique, keys = _value_in(data, b"UNIQ_KEY\1", start, end), _value_in(data, b"KEYS\1", start, end)
    if unique is None or keys is None:
        return _texts(data[start:end])[2]
    found = words(keys) if keys else ()
    return (unique, *found) if unique else found


def _value_in(data: bytes, mark: bytes, start: int, end: int) -> bytes | None:
    """The last value behind ``mark`` from ``start`` to ``end``, nothing copied before; None where that says too little.

    It is what :func:`_value` finds in most property strings, for a third of the cost.
    """
    at = data.rfind(mark, start, end)
    if at < 0:
        return b""
    begins = at + len(mark)
    stop = data.find(b"\2", begins, end)
    value = data[begins : end if stop < 0 else stop]
    return value if value and (at == start or data[at - 1] == 2) else None


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
