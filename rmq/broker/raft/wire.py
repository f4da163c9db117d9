"""What members say to each other, as bytes: units of the HA stream (:mod:`rmq.broker.replication.wire`).

A connection is one way: who has opened it speaks, and each member opens one to each other. A unit of the HA stream has
an offset, a size and a body; here the body begins with a byte that says what it is::

    kind               behind the byte
     0  HELLO          JSON: who speaks to whom (:class:`Hello`); the first unit of a connection
     1  VOTE_REQUEST   term i8, last (term i8, end i8), bits: 1 only asks, 2 told by the leader
     2  VOTE_REPLY     term i8, bits: 1 granted, 2 only asked
     3  APPEND         the log goes on: term i8, before (i8, i8), after (i8, i8), commit i8, asked i8, the bytes between
     4  APPEND_REPLY   term i8, bits: 1 match, 2 rejected, 4 nearest; three positions (i8, i8), asked i8, returning i8
     5  INSTALL        the log begins anew: term i8, at (i8, i8), commit i8, asked i8
     6  TIMEOUT_NOW    lead: term i8
     7  REFUSED        text; it goes the other way, before the connection is closed
     8  ADMIT          be counted again: term i8, returning i8
     9  SPAN_TOLD      term i8, then :mod:`rmq.broker.store.told`; before the bytes of the span or behind them, and only
                       to who has said that it listens
    10  LISTENS        nothing; it goes the other way, and means that SPAN_TOLD is understood

The first unit may come again on a connection, when there is more to say.

A unit without a body goes the other way, too: it says that what has come was heard.

Nobody needs the offset of a unit. Who speaks puts there what shows that nothing has changed on its way, from its first
unit on or never, as members of the release before, which have 0 there, or the offset of the first byte of the log::

    bits     content
    0..31    CRC-32 of the body; of an APPEND that of what is before the bytes of the log, XOR that of these
    32..60   the size again
    61       1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from struct import Struct, error
from typing import Final, Protocol

import orjson

from rmq.broker.replication import wire
from rmq.broker.replication.wire import header
from rmq.broker.store.told import Told
from rmq.protocol.crc import crc32
from rmq.protocol.errors import ReplicationError
from rmq.raft.messages import Admit, Append, AppendReply, Install, Message, TimeoutNow, VoteReply, VoteRequest
from rmq.raft.position import Position

__all__ = [
    "Hello",
    "Kind",
    "Say",
    "SpanTold",
    "Word",
    "checked",
    "decode",
    "encode",
    "head",
    "listens",
    "pieces",
    "refusal",
    "sum_of",
    "tells",
]

_VOTE_REQUEST: Final = Struct(">BqqqB")
_VOTE_REPLY: Final = Struct(">BqB")
_APPEND: Final = Struct(">Bqqqqqqq")
_APPEND_REPLY: Final = Struct(">BqBqqqqqqqq")
_INSTALL: Final = Struct(">Bqqqqq")
_TIMEOUT_NOW: Final = Struct(">Bq")
_ADMIT: Final = Struct(">Bqq")
_SPAN_TOLD: Final = Struct(">Bq")
_VERSION: Final = 1
#: Bytes of a first unit, at most: each of its eight texts has its place.
_LONGEST: Final = 32 << 10
#: Terms and offsets are less: what is counted on from them still fits.
_MOST: Final = 1 << 62
_NOWHERE: Final = Position(0, 0)
#: Of the offset of a unit, as the module's docstring has it.
_SUMMED: Final = 1 << 61
_SIZE_AT: Final = 32
_CHANGED: Final = (
    "a word has changed on its way: the network between the two members, or the memory of a machine, is bad"
)


class Kind(IntEnum):
    """What the first byte of a body says that it is; the module's docstring has what follows each."""

    HELLO = 0
    VOTE_REQUEST = 1
    VOTE_REPLY = 2
    APPEND = 3
    APPEND_REPLY = 4
    INSTALL = 5
    TIMEOUT_NOW = 6
    REFUSED = 7
    ADMIT = 8
    SPAN_TOLD = 9
    LISTENS = 10


@dataclass(frozen=True, slots=True)
class Hello:
    """Who opens a connection, and what it takes for granted."""

    group: str
    source: str
    to: str
    #: What this member calls its disk towards the other, made when it was new; another one has lost what the first had
    #: promised.
    disk: str
    #: The ids of all members, sorted, separated by ``;``.
    members: str
    #: Bytes of a commit-log file.
    file_size: int
    #: ``host:port`` that clients are told of it.
    broker: str
    #: Its brokerName.
    name: str
    #: A digest of what it keeps as the other's name for its disk; empty where it keeps none.
    known: str = ""
    #: Its group has begun; and its disk has taken the place of one that is lost.
    begun: bool = False
    returned: bool = False
    version: int = _VERSION

    def encode(self) -> bytes:
        """As a unit."""
        return _unit(bytes([Kind.HELLO]) + orjson.dumps(asdict(self)))

    @classmethod
    def decode(cls, body: bytes | memoryview) -> Hello:
        """:raises ReplicationError: it is none, or one of another version."""
        if len(body) > _LONGEST:
            raise ReplicationError(f"it does not say who it is: {len(body)} bytes, and {_LONGEST} are enough")
        try:
            found = orjson.loads(body[1:]) if body[:1] == bytes([Kind.HELLO]) else None
            if not isinstance(found, dict):
                raise ReplicationError("this is no member of a group: it does not say who it is")
            if found.get("version") != _VERSION:
                raise ReplicationError(f"it speaks version {found.get('version')!r:.20}, and this member {_VERSION}")
            hello = cls(**found)
        except ValueError as fault:
            raise ReplicationError(f"it does not say who it is: {fault}") from None
        except TypeError:  # which has the names that it gives in its text
            raise ReplicationError("it does not say who it is: a field is missing, or is none") from None
        texts = (hello.group, hello.source, hello.to, hello.disk, hello.members, hello.broker, hello.name, hello.known)
        flags = (hello.begun, hello.returned)
        if (
            not all(isinstance(text, str) and text.isprintable() and len(text) < 1024 for text in texts)
            or not all(isinstance(flag, bool) for flag in flags)
            or not isinstance(hello.file_size, int)
        ):
            raise ReplicationError("it does not say who it is: a text or a number is something else")
        return hello


@dataclass(frozen=True, slots=True)
class SpanTold:
    """What a leader has made of a span; the election knows nothing of it.

    An older member does not know it, and none needs it: who does not get it reads the log.
    """

    term: int
    source: str
    told: Told


Word = Message | SpanTold


def listens() -> bytes:
    """A unit to who has opened a connection: this member understands :class:`SpanTold`. An older one ignores it."""
    return header(0, 1) + bytes([Kind.LISTENS])


def tells(body: bytes | memoryview) -> bool:
    """Whether a unit is a :class:`SpanTold`, good or not: nobody needs it."""
    return body[:1] == bytes([Kind.SPAN_TOLD])


def refusal(why: str) -> bytes:
    """The last unit, to who has opened a connection."""
    body = bytes([Kind.REFUSED]) + why.encode()[:1024]
    return header(0, len(body)) + body


class Say(Protocol):
    """Says something to a member; what cannot be said now is lost."""

    def __call__(self, to: str, message: Message, data: Sequence[bytes] = ()) -> None:
        """:param data: the bytes of an ``Append``, which has none itself, in pieces."""


def _unit(body: bytes, size: int = 0, of_data: int = 0) -> bytes:
    """What stands before a body, and the body.

    :param size: bytes of the log that follow it, and
    :param of_data: their sum.
    """
    size += len(body)
    return header(_SUMMED | size << _SIZE_AT | crc32(body) ^ of_data, size) + body


def sum_of(data: Sequence[bytes]) -> int:
    """CRC-32 of bytes in pieces."""
    found = 0
    for piece in data:
        found = crc32(piece, found)
    return found


def head(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Offset and size of a unit's body; a size that has changed is known before anybody waits for so many bytes.

    :raises ReplicationError: no unit begins like this.
    """
    offset, size = wire.head(data, at)
    if offset & _SUMMED and (offset ^ _SUMMED) >> _SIZE_AT != size:
        raise ReplicationError(_CHANGED)
    return offset, size


def checked(offset: int, body: bytes | memoryview) -> int | None:
    """CRC-32 of the bytes of the log that a unit carries, if any; None: it came without a sum.

    :raises ReplicationError: with another one than it has.
    """
    if not offset & _SUMMED:
        return None
    behind = _APPEND.size if body[:1] == bytes([Kind.APPEND]) else len(body)
    of_data = crc32(body[behind:])
    if crc32(body[:behind]) ^ of_data != offset & 0xFFFFFFFF:
        raise ReplicationError(_CHANGED)
    return of_data


def encode(message: Word) -> bytes:
    """As a unit."""
    data = [bytes(message.data)] if isinstance(message, Append) else []
    return b"".join(pieces(message, data, sum_of(data)))


def pieces(message: Word, data: Sequence[bytes] = (), of_data: int = 0) -> list[bytes]:
    """The same in pieces.

    :param data: the bytes of an ``Append``, as they are.
    :param of_data: their sum (:func:`sum_of`), made once for all who get them.
    """
    size = 0
    match message:
        case VoteRequest(term, _, last, pre, told):
            body = _VOTE_REQUEST.pack(Kind.VOTE_REQUEST, term, *last, pre + 2 * told)
        case VoteReply(term, _, granted, pre):
            body = _VOTE_REPLY.pack(Kind.VOTE_REPLY, term, granted + 2 * pre)
        case Append(term, _, before, after, commit, _, asked):
            size = sum(map(len, data))
            body = _APPEND.pack(Kind.APPEND, term, *before, *after, commit, asked)
        case AppendReply(term, _, match, rejected, nearest, asked, returning):
            bits = (match is not None) + 2 * (rejected is not None) + 4 * (nearest is not None)
            body = _APPEND_REPLY.pack(
                Kind.APPEND_REPLY, term, bits, *(match or _NOWHERE), *(rejected or _NOWHERE), *(nearest or _NOWHERE),
                asked, returning,
            )  # fmt: skip
        case Install(term, _, place, commit, asked):
            body = _INSTALL.pack(Kind.INSTALL, term, *place, commit, asked)
        case Admit(term, _, returning):
            body = _ADMIT.pack(Kind.ADMIT, term, returning)
        case TimeoutNow(term, _):
            body = _TIMEOUT_NOW.pack(Kind.TIMEOUT_NOW, term)
        case SpanTold(term, _, told):
            body = _SPAN_TOLD.pack(Kind.SPAN_TOLD, term) + told.encode()
    return [_unit(body, size, of_data), *data]


def decode(source: str, body: bytes | memoryview, crc: int | None = None) -> Word:
    """What a member says.

    :param source: who has opened the connection.
    :param body: the bytes of an :class:`Append` stay where they are in it.
    :param crc: as :func:`checked` found it.
    :raises ReplicationError: it is nothing that a member says.
    """
    try:
        kind = body[0]
        if kind == Kind.SPAN_TOLD:
            _, term = _SPAN_TOLD.unpack_from(body)
            return SpanTold(term, source, Told.decode(bytes(body[_SPAN_TOLD.size :])))
        if kind == Kind.APPEND:
            return _append(source, body, crc)
        message = _decode(source, body)
    except (error, IndexError):
        raise ReplicationError(f"{len(body)} bytes are no word of a member") from None
    return _in_bounds(message)


def _append(source: str, body: bytes | memoryview, crc: int | None) -> Append:
    _, term, of, end, after_of, after_end, commit, asked = _APPEND.unpack_from(body)
    data = body[_APPEND.size :]
    message = Append(term, source, Position(of, end), Position(after_of, after_end), commit, data, asked, crc)
    if 0 <= of <= after_of <= term < _MOST and 0 <= end <= after_end < _MOST and len(data) == after_end - end:
        return message
    places = f"from {message.before} to {message.after} in term {term}"
    raise ReplicationError(f"{len(data)} bytes do not go {places}, or no log has these")


def _in_bounds(message: Message) -> Message:
    """:raises ReplicationError: no log has what it names."""
    term, places = message.term, [place for place in _places(message) if place is not None]
    if not 0 <= term < _MOST or not all(0 <= place.term <= term and 0 <= place.end < _MOST for place in places):
        raise ReplicationError(f"a word of a member names a term or a place that no log has: {term}, {places}")
    return message


def _places(message: Message) -> tuple[Position | None, ...]:
    match message:
        case VoteRequest():
            return (message.last,)
        case AppendReply():
            return message.match, message.rejected, message.nearest
        case Install():
            return (message.at,)
    return ()


def _decode(source: str, body: bytes | memoryview) -> Message:
    match body[0]:
        case Kind.VOTE_REQUEST:
            _, term, of, end, bits = _VOTE_REQUEST.unpack(body)
            return VoteRequest(term, source, Position(of, end), bool(bits & 1), bool(bits & 2))
        case Kind.VOTE_REPLY:
            _, term, bits = _VOTE_REPLY.unpack(body)
            return VoteReply(term, source, bool(bits & 1), bool(bits & 2))
        case Kind.APPEND_REPLY:
            _, term, bits, of, end, no_of, no_end, near_of, near_end, asked, returning = _APPEND_REPLY.unpack(body)
            match = Position(of, end) if bits & 1 else None
            rejected = Position(no_of, no_end) if bits & 2 else None
            nearest = Position(near_of, near_end) if bits & 4 else None
            return AppendReply(term, source, match, rejected, nearest, asked, returning)
        case Kind.INSTALL:
            _, term, of, end, commit, asked = _INSTALL.unpack(body)
            return Install(term, source, Position(of, end), commit, asked)
        case Kind.TIMEOUT_NOW:
            _, term = _TIMEOUT_NOW.unpack(body)
            return TimeoutNow(term, source)
        case Kind.ADMIT:
            _, term, returning = _ADMIT.unpack(body)
            return Admit(term, source, returning)
    raise ReplicationError(f"no word of a member begins with {body[0]}")
