"""What members say to each other, as bytes: units of the HA stream (:mod:`rmq.broker.replication.wire`).

A connection is one way: who has opened it speaks, and each member opens one to each other. A unit of the HA stream has
an offset, a size and a body; here the body begins with a byte that says what it is, and the offset is that of the first
byte of the log that it carries (0 where it carries none)::

    kind  what                 behind the byte
    0     hello                JSON: who speaks to whom (:class:`Hello`); the first unit of a connection
    1     asks for a vote      term i8, last (term i8, end i8), bits: 1 only asks, 2 told by the leader
    2     answers that         term i8, bits: 1 granted, 2 only asked
    3     the log goes on      term i8, before (i8, i8), after (i8, i8), commit i8, asked i8, the bytes between them
    4     answers that         term i8, bits: 1 match, 2 rejected, 4 nearest; three positions (i8, i8), asked i8,
                               returning i8
    5     the log begins anew  term i8, at (i8, i8), commit i8, asked i8
    6     lead                 term i8
    7     refused              text; it goes the other way, before the connection is closed
    8     be counted again     term i8, returning i8
    9     tells of a span      term i8, then :mod:`rmq.broker.store.told`; only to who has said that it listens
    10    listens              nothing; it goes the other way, and means that kind 9 is understood

The first unit may come again on a connection, when there is more to say.

A unit without a body goes the other way, too: it says that what has come was heard.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from struct import Struct, error
from typing import Final

import orjson

from rmq.broker.replication.wire import header
from rmq.broker.store.told import Told
from rmq.protocol.errors import ReplicationError
from rmq.raft.messages import Admit, Append, AppendReply, Install, Message, TimeoutNow, VoteReply, VoteRequest
from rmq.raft.position import Position

__all__ = [
    "HELLO",
    "LISTENS",
    "REFUSED",
    "Hello",
    "SpanTold",
    "Word",
    "decode",
    "encode",
    "listens",
    "refusal",
    "tells",
]

HELLO: Final = 0
REFUSED: Final = 7
LISTENS: Final = 10
_SPAN: Final = 9
_ASK: Final = Struct(">BqqqB")
_ANSWER: Final = Struct(">BqB")
_APPEND: Final = Struct(">Bqqqqqqq")
_REPLY: Final = Struct(">BqBqqqqqqqq")
_INSTALL: Final = Struct(">Bqqqqq")
_LEAD: Final = Struct(">Bq")
_ADMIT: Final = Struct(">Bqq")
_TELL: Final = Struct(">Bq")
_VERSION: Final = 1
#: Terms and offsets are less: what is counted on from them still fits.
_MOST: Final = 1 << 62
_NOWHERE: Final = Position(0, 0)


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
        body = bytes([HELLO]) + orjson.dumps(asdict(self))
        return header(0, len(body)) + body

    @classmethod
    def decode(cls, body: bytes | memoryview) -> Hello:
        """:raises ReplicationError: it is none, or one of another version."""
        try:
            found = orjson.loads(body[1:]) if body[:1] == bytes([HELLO]) else None
            if not isinstance(found, dict):
                raise ReplicationError("this is no member of a group: it does not say who it is")
            if found.get("version") != _VERSION:
                raise ReplicationError(f"it speaks version {found.get('version')!r:.20}, and this member {_VERSION}")
            hello = cls(**found)
        except (ValueError, TypeError) as fault:
            raise ReplicationError(f"it does not say who it is: {fault}") from None
        texts = (hello.group, hello.source, hello.to, hello.disk, hello.members, hello.broker, hello.name, hello.known)
        if not all(
            isinstance(text, str) and text.isprintable() and len(text) < 1024 for text in texts
        ) or not isinstance(hello.file_size, int):
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
    return header(0, 1) + bytes([LISTENS])


def tells(body: bytes | memoryview) -> bool:
    """Whether a unit is a :class:`SpanTold`, good or not: nobody needs it."""
    return body[:1] == bytes([_SPAN])


def refusal(why: str) -> bytes:
    """The last unit, to who has opened a connection."""
    body = bytes([REFUSED]) + why.encode()[:1024]
    return header(0, len(body)) + body


def encode(message: Word) -> bytes:
    """As a unit."""
    return b"".join(pieces(message))


def pieces(message: Word) -> tuple[bytes, bytes]:
    """The same in two pieces: bytes of the log are the second, as they are."""
    data, at = b"", 0
    match message:
        case VoteRequest(term, _, last, pre, told):
            body = _ASK.pack(1, term, *last, pre + 2 * told)
        case VoteReply(term, _, granted, pre):
            body = _ANSWER.pack(2, term, granted + 2 * pre)
        case Append(term, _, before, after, commit, data, asked):
            at = before.end
            body = _APPEND.pack(3, term, *before, *after, commit, asked)
        case AppendReply(term, _, match, rejected, nearest, asked, returning):
            places = (match, rejected, nearest)
            bits = sum(1 << number for number, place in enumerate(places) if place is not None)
            values = (value for place in places for value in place or _NOWHERE)
            body = _REPLY.pack(4, term, bits, *values, asked, returning)
        case Install(term, _, place, commit, asked):
            body = _INSTALL.pack(5, term, *place, commit, asked)
        case Admit(term, _, returning):
            body = _ADMIT.pack(8, term, returning)
        case TimeoutNow(term, _):
            body = _LEAD.pack(6, term)
        case SpanTold(term, _, told):
            body, data = _TELL.pack(_SPAN, term), told.encode()
    return header(at, len(body) + len(data)) + body, data


def decode(source: str, body: bytes | memoryview) -> Word:
    """What a member says.

    :param source: who has opened the connection.
    :raises ReplicationError: it is nothing that a member says.
    """
    try:
        if body[0] == _SPAN:
            _, term = _TELL.unpack_from(body)
            return SpanTold(term, source, Told.decode(bytes(body[_TELL.size :])))
        message = _decode(source, body)
    except (error, IndexError):
        raise ReplicationError(f"{len(body)} bytes are no word of a member") from None
    places = [place for place in _places(message) if place is not None]
    numbers = (message.term, *(number for place in places for number in place))
    if not all(0 <= number < _MOST for number in numbers) or any(place.term > message.term for place in places):
        raise ReplicationError(f"a word of a member names a term or a place that no log has: {message.term}, {places}")
    if isinstance(message, Append) and (
        len(message.data) != message.after.end - message.before.end or message.after < message.before
    ):
        raise ReplicationError(
            f"{len(message.data)} bytes do not go from {message.before} to {message.after}"
        )  # fmt: skip
    return message


def _places(message: Message) -> tuple[Position | None, ...]:
    match message:
        case VoteRequest():
            return (message.last,)
        case Append():
            return message.before, message.after
        case AppendReply():
            return message.match, message.rejected, message.nearest
        case Install():
            return (message.at,)
    return ()


def _decode(source: str, body: bytes | memoryview) -> Message:
    match body[0]:
        case 1:
            _, term, of, end, bits = _ASK.unpack(body)
            return VoteRequest(term, source, Position(of, end), bool(bits & 1), bool(bits & 2))
        case 2:
            _, term, bits = _ANSWER.unpack(body)
            return VoteReply(term, source, bool(bits & 1), bool(bits & 2))
        case 3:
            _, term, of, end, after_of, after_end, commit, asked = _APPEND.unpack_from(body)
            before, after = Position(of, end), Position(after_of, after_end)
            return Append(term, source, before, after, commit, bytes(body[_APPEND.size :]), asked)
        case 4:
            _, term, bits, *values, asked, returning = _REPLY.unpack(body)
            places = [
                Position(values[2 * number], values[2 * number + 1]) if bits >> number & 1 else None
                for number in range(3)
            ]
            return AppendReply(term, source, places[0], places[1], places[2], asked, returning)
        case 5:
            _, term, of, end, commit, asked = _INSTALL.unpack(body)
            return Install(term, source, Position(of, end), commit, asked)
        case 6:
            _, term = _LEAD.unpack(body)
            return TimeoutNow(term, source)
        case 8:
            _, term, returning = _ADMIT.unpack(body)
            return Admit(term, source, returning)
    raise ReplicationError(f"no word of a member begins with {body[0]}")
