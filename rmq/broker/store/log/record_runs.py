"""Good records one behind the other, found fast: what recovery, dispatch and the index read millions of.

:func:`rmq.broker.store.log.records.check` says what a good record is. Nearly all records are of one kind: V1, IPv4
hosts, a topic seen before, no zero byte in the properties. Those are told here with few operations each; every other
record, and whatever may be none, is handed to ``check``.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from rmq.broker.store.log.records import check
from rmq.protocol.crc import crc32
from rmq.protocol.record import FIXED_SIZE, HEAD_SIZE, MAGIC_V1, fields, places

__all__ = ["Run", "Seen", "Topics", "stored", "take"]

_head = fields("size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "body_size")
_length = Struct(">h").unpack_from
#: Where the store time is, and where behind an IPv6 host, which this bit of the sys flag tells of.
_long = Struct(">q").unpack_from
_STORED, _STORED_V6, _BORN_V6 = 56, 68, 0x10
#: More than this is looked at in slices, so that the loop goes on between them.
_MOST = 1000
_MOST_BYTES = 4 << 20
_MOST_TOPICS = 65536

#: Position in the data, size, sys flag, queue id, queue offset, topic, position of the property string.
Seen = tuple[int, int, int, int, int, str, int]
#: Topics met so far: the field as it is in a V1 record (length and name) -> name.
Topics = dict[bytes, str]


class Run(NamedTuple):
    """Good records without a gap between them."""

    data: bytes
    #: Commit-log offset of the first byte of ``data``.
    base: int
    records: list[Seen]
    #: Position behind the last of them.
    end: int
    #: Positive when there may be more, otherwise what ``check`` said of the bytes at ``end``.
    verdict: int

    def up_to(self, number: int) -> Run:
        """The same, where the record at some position is none."""
        return Run(self.data, self.base, self.records[:number], self.records[number][0], 0)


def stored(run: Run) -> list[int]:
    """The store time of each record, ms."""
    data = run.data
    return [
        _long(data, at + (_STORED_V6 if sys_flag & _BORN_V6 else _STORED))[0] for at, _, sys_flag, *_ in run.records
    ]


def take(data: bytes, at: int, base: int, stop: int, file_end: int, topics: Topics, *, crc: bool) -> Run:
    """The good records at ``at``, as many as one slice should have.

    :param data: bytes read from one file.
    :param base: commit-log offset of the first of them.
    :param stop: commit-log offset before which the last record begins.
    :param file_end: commit-log offset where the file ends.
    :param topics: what was met in the log so far; added to here.
    :param crc: whether bodies' checksums are compared.
    """
    records: list[Seen] = []
    add = records.append
    find = data.find
    have = len(data)
    last = min(have - FIXED_SIZE, stop - base - 1, at + _MOST_BYTES)
    left = _MOST
    verdict = 1
    field, field_size, topic = b"", 0, ""
    while at <= last and left:
        left -= 1
        size, magic, body_crc, queue_id, index, physical, sys_flag, body_size = _head(data, at)
        end = at + size
        topic_at = at + HEAD_SIZE + body_size
        if magic == MAGIC_V1 and physical == base + at and body_size >= 0 and topic_at < end <= have:
            if not field_size or not data.startswith(field, topic_at):
                field = data[topic_at : topic_at + 1 + data[topic_at]]
                topic = topics.get(field, "")
                field_size = len(field) if topic else 0
            text = topic_at + field_size + 2
            if (
                field_size
                and not sys_flag & 0x30
                and text <= end
                and _length(data, text - 2)[0] == end - text
                and (
                    not crc
                    or (
                        find(0, text, end) < 0
                        and (not body_size or crc32(data[at + HEAD_SIZE : topic_at]) & 0x7FFFFFFF == body_crc)
                    )
                )
            ):
                add((at, size, sys_flag, queue_id, index, topic, text))
                at = end
                continue
        verdict = check(data, at, base + at, file_end - base - at, crc=crc)
        if verdict <= 0:
            break
        _, topic_at, name_at, behind = places(data, at)
        field_size = 0
        topic = data[name_at:behind].decode(errors="replace")
        if magic == MAGIC_V1 and len(topics) < _MOST_TOPICS and "\0" not in topic:
            topics[data[topic_at:behind]] = topic
        add((at, verdict, sys_flag, queue_id, index, topic, behind + 2))
        at += verdict
    else:
        if at > have - FIXED_SIZE and base + at < stop:
            verdict = check(data, at, base + at, file_end - base - at, crc=crc)
    return Run(data, base, records, at, verdict)
