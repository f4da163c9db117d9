"""Message trace: what clients tell of each message, in the bodies of a topic of its own (protocol.md 6.3).

A body is records one after the other; fields are separated by 0x01, and a record ends with 0x02::

    Pub             at, region, group, topic, msg id, tags, keys, broker, body length, cost, kind, offset msg id, ok
    SubBefore       at, region, group, request, msg id, tries, keys
    SubAfter        request, msg id, cost, ok, keys, outcome, at, group
    EndTransaction  at, region, group, topic, msg id, tags, keys, broker, kind, transaction, state, from a check
    Recall          at, region, group, topic, msg id, ok

Times and costs are milliseconds; what is not there is the text ``null``. Of 4.8.0 Pub and SubBefore have the client's
host as one more field; what is older leaves out fields at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, get_type_hints

__all__ = [
    "ConsumeBegun",
    "ConsumeEnded",
    "ConsumeOutcome",
    "MessageKind",
    "Recalled",
    "Sent",
    "TraceRecord",
    "TransactionEnded",
    "decode",
    "encode",
]

_FIELD = "\x01"
_RECORD = "\x02"


class MessageKind(IntEnum):
    """What kind of message it is (Java: MessageType)."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeOutcome(IntEnum):
    """How a listener call ended (Java: ConsumeReturnType)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class _Record:
    """One record. The fields stand in the order in which they are written."""

    #: What it begins with.
    name: ClassVar[str]
    #: Fields without which it says nothing.
    least: ClassVar[int]


@dataclass(frozen=True, slots=True)
class Sent(_Record):
    """A message was sent."""

    name = "Pub"
    least = 12

    at: int
    region: str | None
    group: str | None
    topic: str | None
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_length: int
    cost: int
    kind: MessageKind
    offset_msg_id: str | None = None
    ok: bool = True
    #: Of clients of 4.8.0 alone.
    client_host: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumeBegun(_Record):
    """A listener is given a message; ``request`` names the call."""

    name = "SubBefore"
    least = 6

    at: int
    region: str | None
    group: str | None
    request: str
    msg_id: str
    tries: int
    keys: str | None = None
    client_host: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumeEnded(_Record):
    """The call has ended."""

    name = "SubAfter"
    least = 4

    request: str
    msg_id: str
    cost: int
    ok: bool
    keys: str | None = None
    outcome: ConsumeOutcome = ConsumeOutcome.SUCCESS
    at: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionEnded(_Record):
    """The broker was told how a transaction ended."""

    name = "EndTransaction"
    least = 11

    at: int
    region: str | None
    group: str | None
    topic: str | None
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    kind: MessageKind
    transaction_id: str | None
    #: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
    state: str
    from_check: bool = False


@dataclass(frozen=True, slots=True)
class Recalled(_Record):
    """A message that waited was taken back."""

    name = "Recall"
    least = 6

    at: int
    region: str | None
    group: str | None
    topic: str | None
    msg_id: str
    ok: bool


TraceRecord = Sent | ConsumeBegun | ConsumeEnded | TransactionEnded | Recalled


def encode(record: TraceRecord) -> str:
    """A record as clients of 4.9.8 write it, with what ends it."""
    values = [getattr(record, name) for name, _ in _LAYOUTS[record.name][1]]
    if record.name in _WITH_HOST and values[-1] is None:
        del values[-1]  # the client's host, which only 4.8.0 wrote
    return f"{_FIELD.join((record.name, *map(_text, values)))}{_RECORD}"


def decode(body: bytes) -> Iterator[TraceRecord]:
    """The records of a body, of any release. One that is damaged is left out."""
    for line in body.decode("utf-8", "replace").split(_RECORD):
        # One record, but for clients of 4.9.8 in a cloud, whose SubAfter does not end.
        while joined := _UNENDED.match(line):
            yield from _record(joined[1])
            line = line[joined.end(1) :]
        yield from _record(line)


def _record(line: str) -> Sequence[TraceRecord]:
    """The record of a line, if it is one."""
    name, *texts = line.split(_FIELD)
    kind, layout = _LAYOUTS.get(name, (None, ()))
    if kind is None or len(texts) < kind.least:
        return ()
    if kind is Sent and len(texts) == _SENT_BEFORE_IDS:
        texts.insert(-1, "null")
    try:
        return (kind(**{field: read(text) for (field, read), text in zip(layout, texts, strict=False)}),)
    except ValueError:
        return ()


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int) else str(value)


def _read_text(text: str) -> str | None:
    return None if text == "null" else text


def _read_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _read_kind(text: str) -> MessageKind:
    return MessageKind(_read_number(text))


def _read_outcome(text: str) -> ConsumeOutcome:
    return ConsumeOutcome(_read_number(text))


_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_READERS: dict[object, Callable[[str], object]] = {
    int: _read_number,
    int | None: _read_number,
    bool: "true".__eq__,
    str: str,
    str | None: _read_text,
    MessageKind: _read_kind,
    ConsumeOutcome: _read_outcome,
}
_KINDS: tuple[type[TraceRecord], ...] = (Sent, ConsumeBegun, ConsumeEnded, TransactionEnded, Recalled)
#: By a record's name: its class, and the fields with what reads them.
_LAYOUTS: dict[str, tuple[type[Any], tuple[tuple[str, Callable[[str], object]], ...]]] = {
    kind.name: (kind, tuple((field.name, _READERS[get_type_hints(kind)[field.name]]) for field in fields(kind)))
    for kind in _KINDS
}
_WITH_HOST = frozenset(kind.name for kind in _KINDS if fields(kind)[-1].name == "client_host")
#: Fields behind the name of a Pub that knows no offset id.
_SENT_BEFORE_IDS = 12
#: A SubAfter up to its outcome, and the name of the next record right behind it.
_UNENDED = re.compile(
    rf"(SubAfter(?:\x01[^\x01]*){{5}}\x01[0-9])(?=(?:{'|'.join(kind.name for kind in _KINDS)})\x01)", re.ASCII
)
