"""Reads a store directory by the format description alone; shares no code with ``rmq``.

What the tests believe about files comes from here: positions and magics are spelt out again on purpose
(store-and-broker.md 1.3, 2.1, 2.2, 3.1, 4.1).
"""

from __future__ import annotations

import binascii
import posixpath
from dataclasses import dataclass, field
from typing import Any, Protocol

_MAGIC = bytes.fromhex("daa320a7")


class Tree(Protocol):
    """Where the directory is: the operating system's files or simulated ones."""

    def list(self, path: str) -> list[str]: ...
    def read(self, path: str) -> bytes: ...
    def is_dir(self, path: str) -> bool: ...


def _u(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _i(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big", signed=True)


@dataclass
class Record:
    offset: int
    size: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties: dict[str, str]
    crc: int
    raw: bytes = field(repr=False, default=b"")


@dataclass
class LogScan:
    records: list[Record]
    #: (offset, bytes to the end of the file) of blank records.
    blanks: list[tuple[int, int]]
    #: Behind the last record, or where a last blank begins.
    end: int
    #: Offset of the first byte behind the end that is not zero, or -1.
    dirt: int


def _host(data: bytes, at: int, wide: bool) -> tuple[str, int]:
    size = 16 if wide else 4
    address = data[at : at + size]
    text = ".".join(map(str, address)) if not wide else address.hex()
    return f"{text}:{_u(data, at + size, 4)}", at + size + 4


def parse_record(data: bytes, at: int, offset: int) -> Record | None:
    """The record at a position, or None when there is no good one."""
    if len(data) - at < 91 or data[at + 4 : at + 8] != _MAGIC:
        return None
    size = _i(data, at, 4)
    if size < 91 or at + size > len(data) or _i(data, at + 28, 8) != offset:
        return None
    sys_flag = _i(data, at + 36, 4)
    born_host, p = _host(data, at + 48, bool(sys_flag & 0x10))
    store_timestamp = _i(data, p, 8)
    store_host, p = _host(data, p + 8, bool(sys_flag & 0x20))
    reconsume_times = _i(data, p, 4)
    prepared_offset = _i(data, p + 4, 8)
    body_size = _i(data, p + 12, 4)
    p += 16
    if body_size < 0 or p + body_size + 3 > at + size:
        return None
    body = data[p : p + body_size]
    p += body_size
    topic_size = data[p]
    name = data[p + 1 : p + 1 + topic_size]
    p += 1 + topic_size
    properties_size = _i(data, p, 2)
    # The checksum covers the body alone: behind a torn page the properties are zeros, or of another record.
    try:
        topic, text = name.decode(), data[p + 2 : p + 2 + properties_size].decode()
    except UnicodeDecodeError:
        return None
    if p + 2 + properties_size != at + size or "\0" in text:
        return None
    crc = _u(data, at + 8, 4)
    if (binascii.crc32(body) & 0x7FFFFFFF if body else 0) != crc:
        return None
    properties: dict[str, str] = {}
    for item in text.split("\x02"):
        if "\x01" in item:
            name, value = item.split("\x01", 1)
            properties[name] = value
    return Record(
        offset, size, _i(data, at + 12, 4), _i(data, at + 16, 4), _i(data, at + 20, 8), sys_flag, _i(data, at + 40, 8),
        born_host, store_timestamp, store_host, reconsume_times, prepared_offset, body, topic, properties, crc,
        data[at : at + size],
    )  # fmt: skip


def scan_log(tree: Tree, directory: str, file_size: int) -> LogScan:
    """Every record of a commit log, in order, until the first that is not good."""
    names = tree.list(directory)
    assert all(len(name) == 20 and name.isdigit() for name in names), names
    starts = [int(name) for name in names]
    files = {start: tree.read(posixpath.join(directory, f"{start:020d}")) for start in starts}
    assert all(len(data) == file_size for data in files.values()), {s: len(d) for s, d in files.items()}
    assert starts == [starts[0] + k * file_size for k in range(len(starts))] if starts else True
    records: list[Record] = []
    blanks: list[tuple[int, int]] = []
    end = starts[0] if starts else 0
    at = end
    while at - at % file_size in files:
        start = at - at % file_size
        data = files[start]
        record = parse_record(data, at - start, at)
        if record is not None:
            records.append(record)
            at += record.size
            end = at
            continue
        left = start + file_size - at
        if left >= 8 and _u(data, at - start + 4, 4) == 0xCBD43194 and _i(data, at - start, 4) == left:
            blanks.append((at, left))
            at = start + file_size
            continue
        break
    if blanks and blanks[-1][0] == end:
        blanks.pop()
    dirt = -1
    for start, data in files.items():
        if start + file_size > end:
            rest = data[max(0, end - start) :]
            stripped = rest.lstrip(b"\0")
            if stripped and dirt < 0:
                dirt = max(start, end) + len(rest) - len(stripped)
    return LogScan(records, blanks, end, dirt)


def scan_through(tree: Tree, directory: str) -> list[Record]:
    """Every good record of a commit log, those behind damage, too."""
    records: list[Record] = []
    for name in tree.list(directory):
        data, start = tree.read(posixpath.join(directory, name)), int(name)
        at = data.find(_MAGIC, 4)
        while at >= 0:
            record = parse_record(data, at - 4, start + at - 4)
            if record is not None:
                records.append(record)
            at = data.find(_MAGIC, at + (record.size if record is not None else 1))
    return records


def scan_queues(tree: Tree, root: str, file_size: int, *, exact: bool = True) -> dict[tuple[str, int], dict[str, Any]]:
    """Every consume queue: file names, index of the first byte, entries (offset, size, tags) to the first hole.

    :param exact: every file has its full size; not so after a power cut.
    """
    found: dict[tuple[str, int], dict[str, Any]] = {}
    base = posixpath.join(root, "consumequeue")
    for topic in tree.list(base):
        for queue_id in tree.list(posixpath.join(base, topic)):
            directory = posixpath.join(base, topic, queue_id)
            names = tree.list(directory)
            data = b""
            for name in names:
                piece = tree.read(posixpath.join(directory, name))
                assert len(piece) == file_size or not exact, (directory, name, len(piece))
                data += piece.ljust(file_size, b"\0")
            entries = []
            for at in range(0, len(data), 20):
                entry = (_i(data, at, 8), _i(data, at + 8, 4), _i(data, at + 12, 8))
                if entry[1] <= 0:
                    break
                entries.append(entry)
            dirt = any(data[len(entries) * 20 :])
            first = int(names[0]) // 20 if names else 0
            found[topic, int(queue_id)] = {"files": names, "first": first, "entries": entries, "dirt": dirt}
    return found


def scan_index(tree: Tree, root: str, slots: int, capacity: int, *, exact: bool = True) -> list[dict[str, Any]]:
    """Every index file: header, entries (hash, offset, seconds, previous) and used slots."""
    found = []
    directory = posixpath.join(root, "index")
    for name in tree.list(directory):
        assert len(name) == 17
        assert name.isdigit()
        data = tree.read(posixpath.join(directory, name))
        size = 40 + 4 * slots + 20 * capacity
        assert len(data) == size or not exact
        data = data.ljust(size, b"\0")
        count = _i(data, 36, 4)
        base = 40 + 4 * slots
        entries = [
            (_i(data, base + 20 * n, 4), _i(data, base + 20 * n + 4, 8), _i(data, base + 20 * n + 12, 4),
             _i(data, base + 20 * n + 16, 4))
            for n in range(1, count)
        ]  # fmt: skip
        found.append(
            {
                "file": name,
                "begin_time": _i(data, 0, 8), "end_time": _i(data, 8, 8),
                "begin_offset": _i(data, 16, 8), "end_offset": _i(data, 24, 8),
                "slot_count": _i(data, 32, 4), "count": count, "entries": entries,
                "slots": [_i(data, 40 + 4 * n, 4) for n in range(slots)],
            }
        )  # fmt: skip
    return found


def scan_checkpoint(tree: Tree, root: str) -> tuple[int, int, int]:
    """The three times."""
    data = tree.read(posixpath.join(root, "checkpoint"))
    assert len(data) == 4096
    return _i(data, 0, 8), _i(data, 8, 8), _i(data, 16, 8)


def java_hash(text: str) -> int:
    """``abs(String.hashCode())`` as the index has it."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + _u(units, at, 2)) & 0xFFFFFFFF
    return value if value < 0x80000000 else (0x100000000 - value) & 0x7FFFFFFF


def java_signed_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + _u(units, at, 2)) & 0xFFFFFFFF
    return value if value < 0x80000000 else value - 0x100000000


def check_store(tree: Tree, root: str, *, log_size: int, queue_size: int) -> LogScan:
    """A whole directory is consistent: queues say exactly what the log says, in its order, and nothing is dirty."""
    scan = scan_log(tree, posixpath.join(root, "commitlog"), log_size)
    assert scan.dirt < 0, f"bytes behind the end at {scan.dirt}"
    queues = scan_queues(tree, root, queue_size)
    expected: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for record in scan.records:
        if record.sys_flag & 0xC in (0, 8):
            mine = expected.setdefault((record.topic, record.queue_id), {})
            if mine and record.queue_offset <= next(reversed(mine)):
                # The topic was deleted and made again: its later life counts.
                for index in [index for index in mine if index >= record.queue_offset]:
                    del mine[index]
            mine[record.queue_offset] = (record.offset, record.size)
    for key, wanted in expected.items():
        assert key in queues, f"no queue {key}"
        queue = queues[key]
        assert not queue["dirt"], f"queue {key} is dirty behind its end"
        got = {queue["first"] + n: entry[:2] for n, entry in enumerate(queue["entries"])}
        got = {index: entry for index, entry in got.items() if entry != (0, 0x7FFFFFFF)}
        starts_at = min(wanted)
        assert {i: e for i, e in got.items() if i >= starts_at} == wanted, f"queue {key}"
    return scan
