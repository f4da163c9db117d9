"""Frames: what is written, what is taken, what closes the connection."""

from __future__ import annotations

import tracemalloc

import pytest

from rmq.protocol import frame
from rmq.protocol.codes import Language
from rmq.protocol.command import Command, SerializeType
from rmq.protocol.errors import FrameError
from rmq.protocol.frame import FrameDecoder


def _json(text: str | bytes, body: bytes = b"") -> bytes:
    header = text.encode() if isinstance(text, str) else text
    return b"\0" + len(header).to_bytes(3, "big") + header + body


def _whole(inner: bytes) -> bytes:
    return len(inner).to_bytes(4, "big") + inner


def _binary(header: bytes) -> bytes:
    return b"\1" + len(header).to_bytes(3, "big") + header


BINARY_FIXED = bytes.fromhex("0069 00 0191 00000007 00000000")


def test_a_request_as_json() -> None:
    command = Command(105, ext={"topic": "T1"}, opaque=7, language=Language.JAVA)
    header = (
        b'{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    assert frame.encode(command) == _whole(_json(header))


def test_members_that_are_not_there_are_left_out() -> None:
    bare = Command(0, flag=1, language=None, version=0)
    assert frame.encode(bare) == _whole(
        _json('{"code":0,"flag":1,"opaque":0,"serializeTypeCurrentRPC":"JSON","version":0}')
    )
    # No ext fields and empty ones are two things on the wire.
    assert frame.decode(frame.encode(bare)[4:]).ext == {} or frame.decode(frame.encode(bare)[4:]).ext is None
    assert frame.decode(frame.encode(Command(0, ext={}))[4:]).ext == {}
    assert frame.decode(frame.encode(Command(0, ext=None))[4:]).ext is None


@pytest.mark.parametrize("kind", list(SerializeType))
@pytest.mark.parametrize("ext", [None, {"a": "1"}, {"i": "KEYS\x01k\x02TAGS\x01\x0b\x1f中😀\x7f\u2028"}])
@pytest.mark.parametrize("remark", [None, 'no "such" topic\n中'])
@pytest.mark.parametrize("body", [b"", b"\0\xff" * 500])
def test_both_serialisations_carry_the_same(
    kind: SerializeType, ext: dict[str, str | None] | None, remark: str | None, body: bytes
) -> None:
    command = Command(-5, ext=ext, body=body, flag=3, opaque=-7, remark=remark, serialize=kind, language=Language.GO)
    assert frame.decode(frame.encode(command)[4:]) == command


def test_an_empty_body_is_no_body() -> None:
    assert frame.decode(frame.encode(Command(310, body=b""))[4:]).body == b""


def test_null_ext_values_are_not_written() -> None:
    for kind in SerializeType:
        command = Command(1, ext={"a": "1", "b": None}, serialize=kind)
        assert frame.decode(frame.encode(command)[4:]).ext == {"a": "1"}


def test_what_has_no_place_in_utf_8_becomes_a_question_mark() -> None:
    for kind in SerializeType:
        command = Command(1, ext={"a": "x\ud800y"}, remark="\udfff", serialize=kind)
        read = frame.decode(frame.encode(command)[4:])
        assert (read.ext, read.remark) == ({"a": "x?y"}, "?")


def test_an_empty_text_survives_only_in_json() -> None:
    assert frame.decode(frame.encode(Command(1, ext={"a": ""}))[4:]).ext == {"a": ""}
    binary = Command(1, ext={"a": ""}, serialize=SerializeType.ROCKETMQ)
    assert frame.decode(frame.encode(binary)[4:]).ext == {"a": None}


def test_the_last_of_two_equal_fields_wins() -> None:
    entry = b"\0\1a\0\0\0\1%d"
    block = entry % 1 + entry % 2
    header = BINARY_FIXED + bytes(4) + len(block).to_bytes(4, "big") + block
    assert frame.decode(_binary(header)).ext == {"a": "2"}
    assert frame.decode(_json('{"code":1,"extFields":{"a":"1","a":"2"}}')).ext == {"a": "2"}


def test_an_unknown_language_is_none() -> None:
    assert frame.decode(_binary(BINARY_FIXED[:2] + b"\x63" + BINARY_FIXED[3:] + bytes(8))).language is None
    assert frame.decode(_json('{"code":1,"language":"COBOL"}')).language is None
    assert frame.decode(_json('{"code":1,"language":"go"}')).language == Language.GO
    assert frame.decode(_json('{"code":1}')).language == Language.JAVA
    read = frame.decode(frame.encode(Command(1, language=None, serialize=SerializeType.ROCKETMQ))[4:])
    assert read.language == Language.OTHER


def test_text_that_is_not_utf_8_is_replaced_not_refused() -> None:
    assert frame.decode(_json(b'{"code":1,"remark":"\xff\xfe"}')).remark == "��"
    header = BINARY_FIXED + b"\0\0\0\1\xff" + bytes(4)
    assert frame.decode(_binary(header)).remark == "�"


@pytest.mark.parametrize("length", ["00000000", "00000001", "00000003", "ffffffff", "80000000", "00fffffd", "16030100"])
def test_an_impossible_length_is_refused_at_once(length: str) -> None:
    decoder = FrameDecoder()
    decoder.receive_data(bytes.fromhex(length))
    with pytest.raises(FrameError):
        decoder.next_command()
    # and it stays refused, holding nothing
    decoder.receive_data(bytes(1000))
    with pytest.raises(FrameError):
        decoder.next_command()
    assert decoder.held == 0


def test_the_longest_frame_is_taken() -> None:
    header = frame.encode(Command(310))[8:]
    inner = _json(header)
    inner += bytes(frame.MAX_FRAME - 4 - len(inner))
    decoder = FrameDecoder()
    decoder.receive_data(_whole(inner))
    command = decoder.next_command()
    assert command is not None
    assert len(command.body) == frame.MAX_FRAME - 8 - len(header)


def test_a_frame_too_long_for_any_peer_is_not_written() -> None:
    with pytest.raises(FrameError, match="16777216"):
        frame.encode(Command(310, body=bytes(frame.MAX_FRAME)))
    with pytest.raises(FrameError, match="header"):
        frame.encode(Command(310, ext={"i": "x" * (frame.MAX_HEADER + 1)}))


@pytest.mark.parametrize("serialize", list(SerializeType))
def test_the_header_of_an_answer_may_fill_its_frame(serialize: SerializeType) -> None:
    """A batch is answered with the ids of all its messages."""
    answer = Command(0, flag=1, ext={"msgId": ",".join(["7F00000100002A9F0000000000000000"] * 20_000)})
    answer.serialize = serialize
    assert frame.decode(frame.encode(answer)[4:]) == answer
    answer.ext = {"msgId": "0" * frame.MAX_FRAME}
    with pytest.raises(FrameError, match="16777216"):
        frame.encode(answer)


@pytest.mark.parametrize("serialize", list(SerializeType))
@pytest.mark.parametrize("char", ["x", "\x7f", "\0", '"', "é", "\u2028", "日", "😀", "\ud800"])
def test_a_remark_too_long_is_cut(char: str, serialize: SerializeType) -> None:
    """However much longer it gets when it is written."""
    for size in (60_000, 3_000_000):
        whole = frame.encode(Command(1, flag=1, remark=char * size, serialize=serialize))
        assert len(whole) < 6 * frame.MAX_REMARK + 200
        assert frame.decode(whole[4:]).remark == (char * frame.MAX_REMARK).replace("\ud800", "?")
    whole = frame.encode(Command(1, flag=1, remark=char * frame.MAX_REMARK, serialize=serialize))
    assert frame.decode(whole[4:]).remark == (char * frame.MAX_REMARK).replace("\ud800", "?")


def test_a_header_beyond_the_limit_is_refused() -> None:
    text = '{"code":1,"remark":"' + "x" * frame.MAX_HEADER + '"}'
    with pytest.raises(FrameError, match="at most"):
        frame.decode(_json(text))
    # Lenient reading is slow and has a limit of its own.
    with pytest.raises(FrameError, match="strict"):
        frame.decode(_json("{'code':1,'remark':'" + "x" * frame.MAX_LENIENT_HEADER + "'}"))


def test_more_fields_than_anybody_sends_are_refused() -> None:
    most = Command(10, ext={f"k{number}": "v" for number in range(1_000)}, serialize=SerializeType.ROCKETMQ)
    assert frame.decode(frame.encode(most)[4:]) == most
    assert most.ext is not None
    most.ext["one"] = "more"
    with pytest.raises(FrameError, match="more than 1000 ext fields"):
        frame.decode(frame.encode(most)[4:])


def test_codes_of_more_than_16_bits_need_json() -> None:
    with pytest.raises(FrameError, match="200050"):
        frame.encode(Command(200050, serialize=SerializeType.ROCKETMQ))
    assert frame.decode(frame.encode(Command(200050))[4:]).code == 200050


@pytest.mark.parametrize(
    "inner",
    [
        b"",
        b"\0",
        b"\0\0\0\0",  # no header
        b"\0\0\0\x64xxxx",  # header longer than the frame
        b"\2\0\0\2{}",  # unknown serialize types
        b"\xff\0\0\2{}",
        _json("[1,2]"),
        _json("[]"),
        _json("null"),
        _json("5"),
        _json("{"),
        _json('{"code":1}x'),
        _json('{"code":1}{"code":2}'),
        _json('{"code":"x"}'),
        _json('{"opaque":2147483648}'),
        _json('{"opaque":-2147483649}'),
        _json('{"opaque":1e400000000}'),
        _json('{"opaque":1e99999999999999999999999}'),
        _json('{"opaque":' + "9" * 5000 + "}"),
        _json('{"code":1,"extFields":[]}'),
        _json('{"code":1,"extFields":"x"}'),
        _json('{"@type":"java.lang.Object","code":1}'),
        _json('{"code":1,"extFields":{"@type":"x"}}'),
        _json('{"code":1,"extFields":' + "[" * 5000 + "]" * 5000 + "}"),
        _json("{" + '"a":{' * 5000),
        _binary(b""),
        _binary(bytes(20)),
        _binary(BINARY_FIXED + bytes(9)),  # bytes left over
        _binary(BINARY_FIXED + b"\xff\xff\xff\xff" + bytes(4)),  # negative lengths
        _binary(BINARY_FIXED + bytes(4) + b"\xff\xff\xff\xff"),
        _binary(BINARY_FIXED + b"\x7f\xff\xff\xff" + bytes(4)),
        _binary(BINARY_FIXED + bytes(4) + b"\0\0\0\1\0"),
        _binary(BINARY_FIXED + bytes(4) + b"\0\0\0\4\x7f\xffab"),
        _binary(BINARY_FIXED + bytes(4) + b"\0\0\0\7\0\1a\x7f\xff\xff\xff"),
        _binary(BINARY_FIXED + bytes(4) + b"\0\0\0\7\0\1a\xff\xff\xff\xff"),
    ],
)
def test_damage_closes_the_connection(inner: bytes) -> None:
    with pytest.raises(FrameError):
        frame.decode(inner)


def test_the_smallest_headers_java_takes() -> None:
    empty = frame.decode(_json("{}"))
    assert (empty.code, empty.flag, empty.opaque, empty.version, empty.ext) == (0, 0, 0, 0, None)
    odd = frame.decode(_json("{'code':106.0,'opaque':'7',}"))
    assert (odd.code, odd.opaque) == (106, 7)


def test_commands_come_out_whatever_the_pieces() -> None:
    commands = [Command(n, ext={"n": str(n)}, body=b"x" * n * 100, opaque=n) for n in range(20)]
    data = b"".join(map(frame.encode, commands))
    for step in (1, 3, 7, 64, 1000, len(data)):
        decoder = FrameDecoder()
        seen = []
        for at in range(0, len(data), step):
            decoder.receive_data(data[at : at + step])
            while (command := decoder.next_command()) is not None:
                seen.append(command)
        assert seen == commands
        assert decoder.held == 0


def test_an_incomplete_frame_is_held_once() -> None:
    size = 8 * 1024 * 1024
    data = _whole(_json("{}", bytes(size)))
    tracemalloc.start()
    try:
        decoder = FrameDecoder()
        for at in range(0, len(data) - 1024, 1024):
            decoder.receive_data(data[at : at + 1024])
            assert decoder.next_command() is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.held > size - 2048
    assert peak < 2.5 * size  # what is held, and what growing it takes for a moment
    decoder.receive_data(data[-1024 - (len(data) % 1024) :][-(len(data) - decoder.held) :])
    command = decoder.next_command()
    assert command is not None
    assert len(command.body) == size


def test_bytearray_and_memoryview_are_taken() -> None:
    data = frame.encode(Command(34, body=b"{}"))
    assert frame.decode(bytearray(data[4:])) == frame.decode(memoryview(data)[4:]) == frame.decode(data[4:])


@pytest.mark.parametrize("name", ["code", "flag", "opaque", "version"])
def test_numbers_of_a_header_have_32_bits(name: str) -> None:
    for value in (-(1 << 31), (1 << 31) - 1):
        assert getattr(frame.decode(_json(f'{{"code":1,"{name}":{value}}}')), name) == value
    for value in (-(1 << 31) - 1, 1 << 31, 10**30):
        with pytest.raises(FrameError, match=f"whose {name} is no 32-bit number"):
            frame.decode(_json(f'{{"code":1,"{name}":{value}}}'))


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (b"\0", "ends within an ext field"),
        (b"\0\1a\0\0\0\0\0", "ends within an ext field"),
        (b"\0\1", "ends within the name of an ext field"),
        (b"\0\1a\0\0\0", "ends within the name of an ext field"),
        (b"\xff\xffa\0\0\0\0", "ends within the name of an ext field"),
        (b"\0\1a\0\0\0\1", "ends within the value of an ext field"),
        (b"\0\1a\xff\xff\xff\xffb", "ends within the value of an ext field"),
    ],
)
def test_a_binary_header_that_ends_within_a_field_is_refused(block: bytes, fault: str) -> None:
    header = BINARY_FIXED + bytes(4) + len(block).to_bytes(4, "big") + block
    with pytest.raises(FrameError, match=fault):
        frame.decode(_binary(header))


@pytest.mark.parametrize(
    ("serialize", "null"), [(SerializeType.JSON, False), (SerializeType.JSON, True), (SerializeType.ROCKETMQ, False)]
)
def test_a_header_has_so_many_fields_and_no_more(serialize: SerializeType, null: bool) -> None:
    """A null among them takes the tolerant reader."""
    for count, taken in ((1_000, True), (1_001, False)):
        ext: dict[str, str | None] = {f"f{number}": "xx" for number in range(count)}
        data = frame.encode(Command(1, ext=ext, serialize=serialize))[4:]
        if null:
            data = data.replace(b'"f0":"xx"', b'"f0":null')
        if taken:
            assert len(frame.decode(data).ext or {}) == count
        else:
            with pytest.raises(FrameError, match="1000 "):
                frame.decode(data)
