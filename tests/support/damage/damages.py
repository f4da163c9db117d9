"""What becomes of bytes: the ways of damage, and the places that it is done to.

A place is a field of one file's format, a record, an entry, or a file. The same name is the same damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import calcsize

from rmq.protocol.record import FIELDS
from tests.support.damage.stored import LOG_SIZE, QUEUE_SIZE, QUEUES, Files, Stored, Where

__all__ = ["CHECKSUMS", "UNSEEN", "Damage", "damages", "together"]

#: The first file of checksums of what stands beside the bodies.
CHECKSUMS = f"/store/checksums/{0:020d}"
#: Fields of a record that nothing else proves: where those are lost, too, they are served as they are.
UNSEEN = frozenset({
    "flag", "sys_flag", "born_timestamp", "born_ip", "born_port", "store_timestamp", "store_ip", "store_port",
    "reconsume_times", "prepared_transaction_offset", "properties",
})  # fmt: skip

#: Name -> place and size of the fields of an entry of a consume queue and of a unit, of an index file, the checkpoint.
_ENTRY = {"offset": (0, 8), "size": (8, 4), "tags": (12, 8)}
_UNIT = {"size": (0, 2), "tags code": (2, 8), "store time": (10, 8), "bit map size": (18, 2)}
_INDEX_ENTRIES = 40 + 16 * 4
_INDEX = {
    "header, begin time": (0, 8), "header, end time": (8, 8), "header, begin offset": (16, 8),
    "header, end offset": (24, 8), "header, slots used": (32, 4), "header, count": (36, 4), "slot": (40 + 4 * 3, 4),
    "entry, hash": (_INDEX_ENTRIES + 100, 4), "entry, offset": (_INDEX_ENTRIES + 104, 8),
    "entry, seconds": (_INDEX_ENTRIES + 112, 4), "entry, previous": (_INDEX_ENTRIES + 116, 4),
}  # fmt: skip
_CHECKSUMS = {"magic": (0, 4), "number": (8, 4), "begin": (16, 8), "end": (24, 8), "last": (32, 8), "sum": (60, 4)}
_CHECKPOINT = {
    "log time": (0, 8), "queue time": (8, 8), "index time": (16, 8), "stop note": (2048, 28), "boot note": (2112, 52),
    "start note": (2176, 16),
}  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """One case of damage.

    :param name: file kind, place, and what was done.
    :param kind: ``log``, ``queue``, ``ext``, ``index`` or ``small``: checkpoint, tables, notes and markers.
    :param changed: what files hold after it; None: they are gone.
    :param records: messages whose records are not as they were: they may be lost.
    :param entries: messages whose queue entries are not as they were: pulls may pass them until the queue is mended.
    :param unseen: only checksums can tell (:data:`UNSEEN`): without them it is delivered as it is.
    """

    name: str
    kind: str
    changed: dict[str, bytes | None]
    records: frozenset[Where] = frozenset()
    entries: frozenset[Where] = frozenset()
    unseen: bool = False

    def done(self, files: Files) -> Files:
        """The files after it."""
        after = {path: self.changed.get(path, data) for path, data in files.items()} | self.changed
        return {path: data for path, data in after.items() if data is not None}


def together(several: Sequence[Damage]) -> Damage:
    """Damages of different files that come at once."""
    changed: dict[str, bytes | None] = {}
    for one in several:
        assert changed.keys().isdisjoint(one.changed)
        changed |= one.changed
    records = frozenset[Where]().union(*(one.records for one in several))
    entries = frozenset[Where]().union(*(one.entries for one in several))
    return Damage(" and ".join(one.name for one in several), "log", changed, records, entries)


def damages(stored: Stored) -> list[Damage]:
    """All cases of damage to a store."""
    return [
        *_fields_of_records(stored),
        *_records(stored),
        *_queues(stored),
        *_waiting(stored),
        *_units(stored),
        *_index(stored),
        *_checksums(stored),
        *_small_files(stored),
    ]


_CHANGES: dict[str, Callable[[bytes], bytes]] = {
    # In the middle: of a number, one that leaves it plausible.
    "flip": lambda data: _flipped(data, len(data) // 2, 0x10),
    "flip the last bit": lambda data: _flipped(data, len(data) - 1, 1),
    "zero": lambda data: bytes(len(data)),
}


def _flipped(data: bytes, at: int, bits: int) -> bytes:
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


def _put(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def _changes(data: bytes, at: int, size: int) -> Iterator[tuple[str, bytes]]:
    """What can become of a field: what was done, and the whole file after it."""
    for how, change in _CHANGES.items():
        if (new := change(data[at : at + size])) != data[at : at + size]:
            yield how, _put(data, at, new)


def _whole(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """What can become of a whole file."""
    yield "cut", data[: len(data) // 3]
    yield "zero", bytes(len(data) or 1)
    yield "empty", b""
    yield "lengthen", data + data[:100].ljust(100, b"x")
    yield "remove", None


# -- the commit log


def _log_path(at: int) -> str:
    return f"/store/commitlog/{at - at % LOG_SIZE:020d}"


def _fields_of_records(stored: Stored) -> Iterator[Damage]:
    """Every field of the first record, of one in a full file, of one in the newest file, and of the last."""
    ordered = stored.ordered
    newest = next(where for where in ordered if _log_path(stored.messages[where].at) == stored.paths("/commitlog/")[1])
    for which, where in {
        "first": ordered[0], "middle": ordered[len(ordered) // 3], "newest": newest, "last": ordered[-1],
    }.items():  # fmt: skip
        message = stored.messages[where]
        path = _log_path(message.at)
        for name, at, size in _record_fields(where, message.size, len(message.body)):
            for how, data in _changes(stored.files[path], message.at % LOG_SIZE + at, size):
                yield Damage(f"log, {which} record, {name}: {how}", "log", {path: data}, frozenset({where}),
                             unseen=name in UNSEEN)  # fmt: skip


def _record_fields(where: Where, size: int, body: int) -> Iterator[tuple[str, int, int]]:
    """Name, place and size of every field of a V1 record with IPv4 hosts."""
    for name, (at, letter) in FIELDS.items():
        yield name, at, calcsize(f">{letter}")
    topic_at = 88 + body + 1
    properties_at = topic_at + len(where[0]) + 2
    yield "body", 88, body
    yield "topic_size", topic_at - 1, 1
    yield "topic", topic_at, len(where[0])
    yield "properties_size", properties_at - 2, 2
    yield "properties", properties_at, size - properties_at


def _records(stored: Stored) -> Iterator[Damage]:
    """Records in each other's places, holes, bytes that slid, and tails that are gone."""
    path, ordered = _log_path(0), stored.ordered
    data = stored.files[path]

    def record(where: Where) -> tuple[int, bytes]:
        message = stored.messages[where]
        return message.at, data[message.at : message.at + message.size]

    one = ordered[10]
    at, bytes_ = record(one)
    for name, other in (("of its queue", ordered[13]), ("of another queue", ordered[11]),
                        ("of another topic", next(w for w in ordered[10:] if w[0] == "B"))):  # fmt: skip
        there, others = record(other)
        assert len(others) == len(bytes_)
        swapped = _put(_put(data, at, others), there, bytes_)
        yield Damage(f"log: swap a record with one {name}", "log", {path: swapped}, frozenset({one, other}))
        yield Damage(f"log: duplicate a record over one {name}", "log", {path: _put(data, there, bytes_)},
                     frozenset({other}))  # fmt: skip
    for start in (4096, 8192 + 100):
        hole, slid = bytes(4096), data[start + 8 : start + 4104]
        yield Damage(
            f"log: a hole at {start}", "log", {path: _put(data, start, hole)}, stored.within(start, start + 4096)
        )
        yield Damage(f"log: move bytes at {start}", "log", {path: _put(data, start, slid)},
                     stored.within(start, start + 4104))  # fmt: skip
    for count in (1, 4, 15):
        begin = stored.messages[ordered[-count]].at
        last = _log_path(stored.messages[ordered[-1]].at)
        if _log_path(begin) != last:
            continue
        kept = stored.files[last][: begin % LOG_SIZE]
        gone = stored.within(begin, begin + LOG_SIZE)
        yield Damage(f"log: zero a tail of {count} records", "log", {last: kept.ljust(LOG_SIZE, b"\0")}, gone)
        yield Damage(f"log: cut the newest file {count} records before the end", "log", {last: kept}, gone)


# -- what is made of it


def _last_entry(data: bytes) -> int:
    return -(-len(data.rstrip(b"\0")) // 20) - 1


def _queues(stored: Stored) -> Iterator[Damage]:
    other = f"/store/consumequeue/A/1/{0:020d}"
    for topic, queue_id in (QUEUES[0], QUEUES[2]):
        name = f"queue {topic}-{queue_id}"
        path = f"/store/consumequeue/{topic}/{queue_id}/{0:020d}"
        data = stored.files[path]
        everything = frozenset(where for where in stored.messages if where[:2] == (topic, queue_id))
        # A kill leaves some entries in memory.
        last = _last_entry(data)
        for index in (0, 7, last):
            hit, at = frozenset({(topic, queue_id, index)}), 20 * index
            for field, (where, size) in _ENTRY.items():
                for how, new in _changes(data, at + where, size):
                    yield Damage(f"{name}, entry {index}, {field}: {how}", "queue", {path: new}, entries=hit)
            mine, its = data[at : at + 20], stored.files[other][at : at + 20]
            swapped: dict[str, bytes | None] = {path: _put(data, at, its), other: _put(stored.files[other], at, mine)}
            yield Damage(f"{name}, entry {index}: swap with another queue's", "queue", swapped,
                         entries=hit | {("A", 1, index)})  # fmt: skip
            beside = index - 1 if index else 1
            doubled = _put(data, 20 * beside, mine)
            yield Damage(f"{name}, entry {index}: duplicate over its neighbour", "queue", {path: doubled},
                         entries=frozenset({(topic, queue_id, beside)}))  # fmt: skip
        for how, whole in _whole(data):
            yield Damage(f"{name}: {how} the file", "queue", {path: whole}, entries=everything)
        moved = f"{os.path.dirname(path)}/{QUEUE_SIZE:020d}"
        yield Damage(f"{name}: move the file", "queue", {path: None, moved: data}, entries=everything)
        odd = f"{os.path.dirname(path)}/{7:020d}"
        yield Damage(f"{name}: give the file a name that none has", "queue", {path: None, odd: data},
                     entries=everything)  # fmt: skip
        elsewhere = f"/store/consumequeue/{topic}/7/{0:020d}"
        yield Damage(f"{name}: move the directory", "queue", {path: None, elsewhere: data}, entries=everything)
        exchanged: dict[str, bytes | None] = {path: stored.files[other], other: data}
        yield Damage(f"{name}: exchange the file with another queue's", "queue", exchanged,
                     entries=everything | {where for where in stored.messages if where[:2] == ("A", 1)})  # fmt: skip


def _waiting(stored: Stored) -> Iterator[Damage]:
    """The newest entry of the queues in which messages wait for their time."""
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        (path,) = stored.paths(f"/consumequeue/{topic}/")
        data = stored.files[path]
        last = 20 * _last_entry(data)
        for field, (at, size) in _ENTRY.items():
            for how, new in _changes(data, last + at, size):
                yield Damage(f"queue {topic}, newest entry, {field}: {how}", "queue", {path: new})


def _units(stored: Stored) -> Iterator[Damage]:
    for path in stored.paths("/consumequeue_ext/A/0/"):
        data = stored.files[path]
        third = 2 * int.from_bytes(data[:2], "big")
        places = {f"unit, {name}": (third + at, size) for name, (at, size) in _UNIT.items()}
        yield from _of_file("units A-0", "ext", path, data, places)


def _index(stored: Stored) -> Iterator[Damage]:
    paths = stored.paths("/index/")
    for which, path in (("first", paths[0]), ("newest", paths[-1])):
        yield from _of_file(f"index, {which} file", "index", path, stored.files[path], _INDEX)


def _checksums(stored: Stored) -> Iterator[Damage]:
    """Hints: whatever becomes of them costs no message."""
    data = stored.files[CHECKSUMS]
    yield from _of_file("checksums", "small", CHECKSUMS, data, _CHECKSUMS)
    other = stored.paths("/checksums/")[-1]
    yield Damage("checksums: swap with another file's", "small", {CHECKSUMS: stored.files[other], other: data})


def _small_files(stored: Stored) -> Iterator[Damage]:
    """Checkpoint, tables, notes and markers."""
    for path in sorted(stored.files):
        name, data = path.removeprefix("/store/"), stored.files[path]
        if name == "checkpoint":
            yield from _of_file(name, "small", path, data, _CHECKPOINT)
        elif name.startswith("config/") or "json" in name or name in {"lock", "abort"}:
            yield from _of_file(name, "small", path, data, {})
            if data:
                yield Damage(f"{name}: flip", "small", {path: _flipped(data, len(data) // 2, 0x10)})
                yield Damage(f"{name}: duplicate", "small", {path: data + data})


def _of_file(name: str, kind: str, path: str, data: bytes, fields: dict[str, tuple[int, int]]) -> Iterable[Damage]:
    for field, (at, size) in fields.items():
        for how, new in _changes(data, at, size):
            yield Damage(f"{name}, {field}: {how}", kind, {path: new})
    for how, whole in _whole(data):
        yield Damage(f"{name}: {how}", kind, {path: whole})
