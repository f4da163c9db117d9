"""What members say, as bytes, and what nobody says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rmq.broker.raft import wire
from rmq.broker.raft.wire import Hello, Kind, SpanTold, Word, decode, encode, listens, refusal
from rmq.broker.replication.wire import HEADER_SIZE, UnitDecoder
from rmq.broker.store.told import Told, ToldQueue
from rmq.protocol.crc import crc32
from rmq.protocol.errors import ReplicationError
from rmq.raft.messages import Admit, Append, AppendReply, Install, TimeoutNow, VoteReply, VoteRequest
from rmq.raft.position import Position

A, B = Position(3, 400), Position(4, 410)
MESSAGES: list[Word] = [
    VoteRequest(5, "n1", A, pre=True, told=False),
    VoteRequest(5, "n1", A, pre=False, told=True),
    VoteReply(5, "n1", granted=True, pre=False),
    VoteReply(5, "n1", granted=False, pre=True),
    Append(5, "n1", A, B, 390, b"0123456789"),
    Append(5, "n1", A, A, 390),
    Append(5, "n1", A, B, 390, b"0123456789", 77),
    AppendReply(5, "n1", match=A, asked=78, returning=79),
    Install(5, "n1", A, 400, 80),
    Admit(5, "n1", 81),
    AppendReply(5, "n1"),
    AppendReply(5, "n1", match=A),
    AppendReply(5, "n1", rejected=B, nearest=Position(0, 0)),
    Install(5, "n1", A, 400),
    TimeoutNow(5, "n1"),
    SpanTold(
        5, "n1", Told(10, 200, 7, 8, [ToldQueue("T", 1, 4, bytes(40)), ToldQueue("U", 0, 0, bytes(20))], bytes(60))
    ),
    SpanTold(5, "n1", Told(10, 200, 7, 8, [ToldQueue("T", 1, 4, bytes(40))], None)),
]
HELLO = Hello("group", "n1", "n0", "abc", "n0;n1;n2", 1 << 30, "10.0.0.1:10911", "broker")


def body_of(unit: bytes) -> bytes:
    return unit[HEADER_SIZE:]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_what_is_said_is_heard(message: Word) -> None:
    ((offset, body),) = UnitDecoder().units(encode(message))
    assert decode("n1", body) == message
    assert wire.checked(offset, body) == crc32(getattr(message, "data", b""))
    assert wire.head(encode(message), 0) == (offset, len(body))


def test_each_kind_has_the_number_that_the_table_says() -> None:
    rows = re.findall(r"^ +(\d+)  ([A-Z_]+)  ", wire.__doc__ or "", re.MULTILINE)
    assert [(int(number), name) for number, name in rows] == [(kind.value, kind.name) for kind in Kind]
    said = {type(message).__name__: body_of(encode(message))[0] for message in MESSAGES}
    assert said == {
        "VoteRequest": 1, "VoteReply": 2, "Append": 3, "AppendReply": 4, "Install": 5, "TimeoutNow": 6, "Admit": 8,
        "SpanTold": 9,
    }  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_what_is_said_is_heard_where_it_was_received(message: Word) -> None:
    memory = bytearray(body_of(encode(message)))
    heard = decode("n1", memoryview(memory))
    assert heard == message
    if isinstance(heard, Append) and heard.data:
        assert isinstance(heard.data, memoryview)
        assert heard.data.obj is memory


def test_who_opens_a_connection_says_who_he_is() -> None:
    assert Hello.decode(body_of(HELLO.encode())) == HELLO


def test_who_understands_what_is_told_of_spans_says_so() -> None:
    ((offset, body),) = UnitDecoder().units(listens())
    assert (offset, body) == (0, b"\x0a")


def test_a_refusal_is_text() -> None:
    ((_, body),) = UnitDecoder().units(refusal("no"))
    assert body == b"\x07no"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\x01", b"\x08abc", b"\x06" + b"\xff" * 8, body_of(encode(MESSAGES[4]))[:-1],
        body_of(encode(MESSAGES[4])) + b"x", body_of(encode(Append(5, "n1", B, A, 0))), b"\x05" + bytes(41),
        body_of(encode(Append(5, "n1", Position(4, 400), Position(3, 410), 0, bytes(10)))),
        body_of(encode(VoteRequest(5, "n1", Position(6, 0), pre=False))),
        body_of(encode(Install(5, "n1", Position(-1, 0), 0))),
        body_of(encode(Install(5, "n1", Position(1, 1 << 62), 0))),
        *(body_of(encode(AppendReply(5, "n1", **{place: wrong})))
          for place in ("match", "rejected", "nearest")
          for wrong in (Position(6, 0), Position(-1, 0), Position(1, -1), Position(1, 1 << 62))),
        *(body_of(encode(Append(term, "n1", before, after, 0, bytes(max(0, after.end - before.end)))))
          for term, before, after in (
              (5, Position(-1, 0), Position(2, 10)), (5, Position(1, -10), Position(1, 0)),
              (5, Position(3, 0), Position(2, 10)), (5, Position(3, 0), Position(6, 10)),
              (1 << 62, Position(3, 0), Position(3, 10)), (5, Position(3, 20), Position(4, 10)),
              (5, Position(3, (1 << 62) - 10), Position(3, 1 << 62)))),
    ],
)  # fmt: skip
def test_what_no_member_says_is_refused(body: bytes) -> None:
    with pytest.raises(ReplicationError):
        decode("n1", body)


@pytest.mark.parametrize("cut", range(0, len(encode(MESSAGES[4])) - HEADER_SIZE, 7))
def test_half_a_word_is_refused(cut: int) -> None:
    with pytest.raises(ReplicationError):
        decode("n1", body_of(encode(MESSAGES[4]))[:cut])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\x00", b"\x00[]", b"\x00{}", b"\x00{", b'\x00{"version":2}', b'\x00{"version":1,"group":3}',
        body_of(HELLO.encode()).replace(b'"n1"', b"7"), body_of(HELLO.encode()).replace(b"1073741824", b'"x"'),
        body_of(HELLO.encode()).replace(b'"version":1', b'"version":2'), b"\x06" + body_of(HELLO.encode())[1:],
        body_of(HELLO.encode()).replace(b'"begun":false', b'"begun":"no"'),
        body_of(HELLO.encode()).replace(b'"returned":false', b'"returned":1'),
        body_of(replace(HELLO, broker="x" * 1024).encode()), body_of(replace(HELLO, name="a\nb").encode()),
        body_of(HELLO.encode()) + b" " * (32 << 10), body_of(HELLO.encode()).replace(b'"group"', b'"a\\nb"'),
    ],
)  # fmt: skip
def test_who_does_not_say_who_he_is_is_refused(body: bytes) -> None:
    with pytest.raises(ReplicationError) as refused:
        Hello.decode(body)
    assert str(refused.value).isprintable()
