"""(d) The stored record and the queue entry."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from benchmark.micro.messages import CLUSTER, COUNT, TOPIC, property_text
from benchmark.micro.timing import check_same, compare, show

Item = tuple[int, int, int, bytes]

MAGIC = 0xDAA320A7
BODY = bytes(range(128))
SIZE = len(BODY)
CRC = zlib.crc32(BODY) & 0x7FFFFFFF
BORN, STORE = b"\x7f\0\0\x01\0\0\xc3\x50", b"\x7f\0\0\x01\0\0\x2a\x9f"
NOW = 1_700_000_000_005
CELL = bytes([len(TOPIC)]) + TOPIC.encode()
FIXED = 90 + len(CELL)
LENGTHS = [struct.pack(">h", n) for n in range(1024)]
pack15 = struct.Struct(">IIIiiqqiq8sq8siqi").pack
pack12 = struct.Struct(">IIIiiqqiq8s28si").pack
pack10 = struct.Struct(">III8sqqiq36si").pack
#: Store time, store host, reconsume times, prepared offset: one value a tick.
TICK = struct.pack(">q8siq", NOW, STORE, 0, 0)
BORN_TICK = BORN + TICK
QUEUE = struct.pack(">ii", 2, 0)
join = b"".join


def head(item: Item) -> bytes:
    offset, physical, at, stored = item
    return pack15(FIXED + SIZE + len(stored), MAGIC, CRC, 2, 0, offset, physical, 0, at, BORN, NOW, STORE, 0, 0, SIZE)


def joined(item: Item) -> bytes:
    stored = item[3]
    return join((head(item), BODY, CELL, LENGTHS[len(stored)], stored))


def added(item: Item) -> bytes:
    stored = item[3]
    return head(item) + BODY + CELL + LENGTHS[len(stored)] + stored


def percent(item: Item) -> bytes:
    stored = item[3]
    return b"%b%b%b%b%b" % (head(item), BODY, CELL, LENGTHS[len(stored)], stored)


def tick28(item: Item) -> bytes:
    offset, physical, at, stored = item
    size = FIXED + SIZE + len(stored)
    first = pack12(size, MAGIC, CRC, 2, 0, offset, physical, 0, at, BORN, TICK, SIZE)
    return join((first, BODY, CELL, LENGTHS[len(stored)], stored))


def tick36(item: Item) -> bytes:
    offset, physical, at, stored = item
    first = pack10(FIXED + SIZE + len(stored), MAGIC, CRC, QUEUE, offset, physical, 0, at, BORN_TICK, SIZE)
    return join((first, BODY, CELL, LENGTHS[len(stored)], stored))


shapes: dict[tuple[int, int], Callable[..., bytes]] = {}


def whole(item: Item) -> bytes:
    offset, physical, at, stored = item
    length = len(stored)
    packed = shapes.get((SIZE, length))
    if packed is None:
        form = f">III8sqqiq36si{SIZE}s{len(CELL)}sh{length}s"
        packed = shapes[SIZE, length] = struct.Struct(form).pack
    size = FIXED + SIZE + length
    return packed(size, MAGIC, CRC, QUEUE, offset, physical, 0, at, BORN_TICK, SIZE, BODY, CELL, length, stored)


def run() -> None:
    stored = [f"{property_text(i)}\x02{CLUSTER}".encode() for i in range(COUNT)]
    items = [(i, 1_000_000 + i * 400, 1_700_000_000_000 + i, text) for i, text in enumerate(stored)]
    compare(
        "(d) one record, 128 B body",
        items,
        [
            ("head of 15 values, join of five", joined),
            ("head of 15 values, + four times", added),
            ("head of 15 values, %b of five", percent),
            ("28 bytes packed once a tick, join of five", tick28),
            ("36 bytes packed once a tick and connection, queue's 8 once, join of five", tick36),
            ("the same, whole record by one Struct remembered by lengths", whole),
        ],
    )

    def extended() -> bytes:
        parts: list[bytes] = []
        extend = parts.extend
        for item in items:
            text = item[3]
            extend((head(item), BODY, CELL, LENGTHS[len(text)], text))
        return join(parts)

    def appended() -> bytes:
        parts: list[bytes] = []
        append = parts.append
        for item in items:
            text = item[3]
            append(head(item))
            append(BODY)
            append(CELL)
            append(LENGTHS[len(text)])
            append(text)
        return join(parts)

    def grown() -> bytes:
        out = bytearray()
        for item in items:
            text = item[3]
            out += head(item)
            out += BODY
            out += CELL
            out += LENGTHS[len(text)]
            out += text
        return bytes(out)

    batch = [
        ("list.extend of five cells, one join", extended),
        ("list.append five times, one join", appended),
        ("a record each, one join", lambda: join([joined(item) for item in items])),
        ("bytearray +=", grown),
    ]
    check_same(batch)
    show("(d) 256 records to one bytes object, a record", batch, COUNT)

    entries = [(1_000_000 + i * 400, 400, 2598919) for i in range(COUNT)]
    one = struct.Struct(">qiq").pack
    many = struct.Struct(">" + "qiq" * COUNT).pack

    def flat() -> bytes:
        values: list[int] = []
        for entry in entries:
            values += entry
        return many(*values)

    def entries_grown() -> bytes:
        out = bytearray()
        for physical, size, tag in entries:
            out += one(physical, size, tag)
        return bytes(out)

    queue = [
        ("pack each, one join", lambda: join([one(*entry) for entry in entries])),
        ("pack each, bytearray +=", entries_grown),
        ("flat list, one pack of the batch", flat),
    ]
    check_same(queue)
    show("(d) queue entries, an entry", queue, COUNT)
