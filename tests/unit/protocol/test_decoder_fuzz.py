"""No input gets anything but a command or an error of the protocol out of the decoders."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.protocol import batch, fastjson, frame, message, properties
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.bodies.lock import LockBatchRequestBody
from rmq.protocol.bodies.stats import ConsumeStats
from rmq.protocol.bodies.topic import RegisterBrokerBody
from rmq.protocol.errors import FrameError, HeaderError, ProtocolError
from rmq.protocol.frame import FrameDecoder
from rmq.protocol.headers.table import REQUEST_HEADERS

GOLDEN = Path(__file__).parents[2] / "golden" / "protocol"
LINES = [json.loads(line) for line in (GOLDEN / "golden-4.9.8.jsonl").read_text("utf-8").splitlines()]
FRAMES = [bytes.fromhex(one["bytes"]) for one in LINES if one["kind"] in ("frame", "header")]
RECORDS = [bytes.fromhex(one["bytes"]) for one in LINES if one["kind"] == "record"]
BODIES = [bytes.fromhex(one["bytes"]) for one in LINES if one["kind"] == "body"]

PIECES = (
    *"{}[],:\"'\\", "code", "opaque", "extFields", "language", "flag", "remark", "@type", "$ref", "null", "true", "NaN",
    "0", "-1", "1.5", "1e9", "99999999999", "\\u00", "\\x4", "/*", "*/", "//", "\ufeff", "\0", "\x1a", "中", "😀",
)  # fmt: skip
JSON_PIECES = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def _mutated(source: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 4, 16))):
        how = source.randrange(5)
        at = source.randrange(len(changed) or 1)
        if how == 0 and changed:
            changed[at] = source.randrange(256)
        elif how == 1:
            del changed[at : at + source.randrange(1, 9)]
        elif how == 2:
            changed[at:at] = source.randbytes(source.randrange(1, 9))
        elif how == 3:
            changed[at : at + 4] = source.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\1\0\0"))
        else:
            changed[at:at] = source.choice((b'"', b"{", b"[", b",", b"\\", b"'", b"}", b"\0", b"\x80", b"@type"))
    return bytes(changed)


def _feed(data: bytes, step: int) -> None:
    decoder = FrameDecoder(max_frame=65_536)
    for at in range(0, len(data), step):
        decoder.receive_data(data[at : at + step])
        try:
            while (command := decoder.next_command()) is not None:
                frame.encode(command)  # whatever was read can be written
                kind = REQUEST_HEADERS.get(command.code)
                if kind is not None:
                    try:
                        command.header(kind).encode()
                    except HeaderError:
                        pass
        except FrameError:
            assert decoder.held == 0
            return
        assert decoder.held <= 65_536


def test_mutated_frames() -> None:
    source = random.Random(20230711)
    for _ in range(6000):
        data = _mutated(source, source.choice(FRAMES))
        if source.random() < 0.5:  # the length word right again, so that the header is reached
            data = len(data[4:]).to_bytes(4, "big") + data[4:]
        _feed(data, source.choice((1, 7, 4096)) if len(data) < 200 else 4096)


def test_mutated_streams() -> None:
    source = random.Random(20230712)
    for _ in range(300):
        data = b"".join(source.choice(FRAMES) for _ in range(10))
        _feed(_mutated(source, data), source.choice((13, 500, 4096)))


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=300)
def test_any_bytes(data: bytes) -> None:
    _feed(data, 5)
    _feed(len(data).to_bytes(4, "big") + data, 64)


@given(JSON_PIECES)
@settings(deadline=None, max_examples=200)
def test_any_json_header(text: str) -> None:
    header = text.encode()
    try:
        command = frame.decode(b"\0" + len(header).to_bytes(3, "big") + header)
    except FrameError:
        return
    frame.encode(command)


@given(st.one_of(JSON_PIECES, st.text(max_size=60)))
@settings(deadline=None, max_examples=200)
def test_any_json_body(text: str) -> None:
    try:
        value = fastjson.loads(text)
    except ProtocolError:
        return
    fastjson.dumps(value)


def test_mutated_bodies() -> None:
    source = random.Random(20230713)
    kinds = (HeartbeatData, LockBatchRequestBody, ConsumeStats, RegisterBrokerBody)
    for _ in range(3000):
        data = _mutated(source, source.choice(BODIES))
        for kind in kinds:
            try:
                kind.decode(data).encode()
            except ProtocolError:
                pass


def test_mutated_registrations() -> None:
    source = random.Random(20230714)
    packed = next(bytes.fromhex(one["bytes"]) for one in LINES if one["kind"] == "registration")
    for _ in range(1000):
        for data in (_mutated(source, packed), zlib.compress(_mutated(source, zlib.decompress(packed)))):
            try:
                RegisterBrokerBody.decode(data, compressed=True)
            except ProtocolError:
                pass


def test_mutated_records_and_batches() -> None:
    source = random.Random(20230715)
    for _ in range(3000):
        data = _mutated(source, source.choice(RECORDS))
        try:
            record = message.decode_record(data)
            assert record.size <= len(data)
            record.content()
        except ProtocolError:
            pass
        message.decode_records(data + source.choice(RECORDS))
        try:
            batch.decode(data)
        except ProtocolError:
            pass


@given(st.text(alphabet="ab\x01\x02中", max_size=40))
@settings(deadline=None)
def test_any_property_string(text: str) -> None:
    read = properties.decode(text)
    for name, value in read.items():
        assert properties.get(text, name) == value
    # Written again it says the same, unless a value holds a separator of names.
    assert properties.decode(properties.encode(read)) == read
