"""What users met in the field, as far as bytes decide it (the numbers are those of the case collection)."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import pytest

from rmq.protocol import addresses, batch, compression, frame, message, names, properties, sysflags
from rmq.protocol.bodies.topic import CreateTopicListRequestBody
from rmq.protocol.command import Command, SerializeType
from rmq.protocol.errors import BodyError, ClientError, ConfigError, HeaderError, ProtocolError
from rmq.protocol.headers.send import SendMessageV2Request
from rmq.protocol.message import MessageRecord

HOSTS = {"v4": ("10.0.0.9", 5555), "v6": ("2001:db8::9", 5555)}


def test_b073_an_empty_body_travels_everywhere() -> None:
    request = Command.request(
        310,
        SendMessageV2Request(
            producer_group="g", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
            born_timestamp=1, flag=0,
        ),
    )  # fmt: skip
    for kind in SerializeType:
        request.serialize = kind
        assert frame.decode(frame.encode(request)[4:]).body == b""
    record = MessageRecord("T", body=b"")
    assert message.decode_record(message.encode_record(record)).content() == b""
    assert batch.decode(batch.encode([(0, b"", {}), (0, b"x", {})])) == [(0, b"", {}), (0, b"x", {})]


def test_b074_every_request_of_16_bits_goes_as_binary_and_is_answered_so() -> None:
    from rmq.protocol.codes import RequestCode

    for code in RequestCode:
        if code > 32767:
            continue
        request = Command(code, ext={"x": "1"}, serialize=SerializeType.ROCKETMQ, opaque=9)
        read = frame.decode(frame.encode(request)[4:])
        answer = frame.decode(frame.encode(read.reply(0))[4:])
        assert (answer.serialize, answer.opaque, answer.is_response) == (SerializeType.ROCKETMQ, 9, True)


@pytest.mark.parametrize("ending", ["", "\x02"])
@pytest.mark.parametrize("last", ["TAGS", "DELAY"])
def test_b076_nothing_is_glued_to_the_last_property(ending: str, last: str) -> None:
    text = f"KEYS\x01k\x02{last}\x014{ending}"
    read = properties.decode(properties.append(text, "CLUSTER\x01c1"))
    assert read == {"KEYS": "k", last: "4", "CLUSTER": "c1"}
    assert properties.get(text, last) == "4"
    [(_, _, inner)] = batch.decode_raw(batch.encode([(0, b"x", {last: "4"})]))
    assert properties.decode(properties.append(inner.decode() + ending, "WAIT\x01true")) == {last: "4", "WAIT": "true"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", "a\x02DELAY\x0118"), ("k\x01z", "v"), ("UNIQ_KEY", "x"), ("TAGS", "x"), ("", "v"), ("k", ""), ("k", "\x01")],
)
def test_b077_separators_and_reserved_names_are_refused(name: str, value: str) -> None:
    with pytest.raises(ClientError):
        properties.check(name, value)


def test_b077_everything_else_round_trips() -> None:
    value = '中文\n\t;=,"'
    properties.check("k", value)
    assert properties.decode(properties.encode({"k": value})) == {"k": value}


@pytest.mark.parametrize("kind", ["", "zlib", "lz4", "zstd"])
@pytest.mark.parametrize(("born", "store"), list(itertools.product(HOSTS, HOSTS)))
@pytest.mark.parametrize("transaction", [0, 4, 8, 12])
def test_b078_flags_do_not_mix(kind: str, born: str, store: str, transaction: int) -> None:
    plain = b"RocketMQ" * 1000
    flags = transaction | (compression.flags_of(kind) if kind else 0)
    body = compression.compress(plain, kind) if kind else plain
    record = MessageRecord(
        "T", sys_flag=flags, body=body, born_host=HOSTS[born], store_host=HOSTS[store], physical_offset=7
    )
    read = message.decode_record(message.encode_record(record))
    assert read.content() == plain
    assert sysflags.transaction_type(read.sys_flag) == transaction
    assert (read.born_host, read.store_host) == (HOSTS[born], HOSTS[store])
    assert len(read.offset_msg_id) == (56 if store == "v6" else 32)
    assert not read.sys_flag & sysflags.INNER_BATCH


def test_b078_the_old_zlib_flag_is_read() -> None:
    assert compression.decompress(compression.compress(b"x" * 100), sysflags.COMPRESSED) == b"x" * 100


def test_b078_lz4_blocks_stand_alone_as_java_asks() -> None:
    packed = compression.compress(bytes(10_000_000), "lz4")
    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] & 0x2C == 0x20  # independent blocks, no content size, no content checksum
    assert packed[5] == 0x70  # blocks of 4 MiB


@pytest.mark.parametrize("bits", [0x400, 0x500, 0x700])
def test_b078_an_unknown_compression_keeps_the_message(bits: int) -> None:
    record = MessageRecord("T", body=b"x", sys_flag=sysflags.COMPRESSED | bits, properties={"UNIQ_KEY": "U"})
    [read] = message.decode_records(message.encode_record(record))
    assert read.msg_id == "U"
    with pytest.raises(ProtocolError, match="unknown way"):
        read.content()


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_damaged_and_endless_bodies_are_refused(kind: str) -> None:
    packed = compression.compress(bytes(100_000), kind)
    flags = compression.flags_of(kind)
    with pytest.raises(ProtocolError, match="more than"):
        compression.decompress(packed, flags, limit=99_999)
    assert compression.decompress(packed, flags, limit=100_000) == bytes(100_000)
    with pytest.raises(ProtocolError):
        compression.decompress(b"nonsense", flags)
    with pytest.raises(ProtocolError):
        assert len(compression.decompress(packed[:-3], flags)) == 100_000


@pytest.mark.parametrize(("kind", "module"), [("lz4", "lz4.frame"), ("zstd", "zstandard")])
def test_a_missing_library_names_its_extra(kind: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case B137."""
    packed = compression.compress(b"x", kind)
    real = importlib.import_module

    def without(name: str, *args: Any) -> Any:
        if name == module:
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ProtocolError, match=rf"pip install 'rmq\[{kind}\]'"):
        compression.decompress(packed, compression.flags_of(kind))


@pytest.mark.parametrize(
    ("topic", "good"),
    [
        ("t" * 127, True), ("t" * 128, False), ("a.b", False), ("订单", False), ("a b", False), ("", False),
        (" ", False), (None, False), ("../x", False), ("TBW102", True), ("%RETRY%g", True), ("1digit", True),
        ("a-b_c|d", True), ("a\n", False),
    ],
)  # fmt: skip
def test_b085_one_verdict_on_topics(topic: str | None, good: bool) -> None:
    assert (names.topic_fault(topic) is None) == good
    if not good:
        with pytest.raises(HeaderError):
            names.check_topic(topic)


def test_b085_a_group_leaves_room_for_its_retry_topic() -> None:
    names.check_group("g" * 120)
    names.check_topic(names.retry_topic("g" * 120))
    with pytest.raises(HeaderError, match="120"):
        names.check_group("g" * 121)
    assert names.group_fault("g" * 255, limit=255) is None
    with pytest.raises(HeaderError, match="illegal"):
        names.check_group("a.b")


def test_b085_system_names() -> None:
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_x")
    assert not names.is_system_topic("%RETRY%g")
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert names.group_of_retry_topic("%DLQ%g") == names.group_of_retry_topic("%RETRY%g") == "g"
    assert all(names.is_system_topic(topic) for topic in names.BROKER_TOPICS)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" namesrv-0.ns.svc:9876 ", ("namesrv-0.ns.svc", 9876)),
        ("[::1]:9876", ("::1", 9876)),
        ("::1:9876", ("::1", 9876)),
        ("[fe80::1%lo]:9876", ("fe80::1%lo", 9876)),
    ],
)
def test_b087_addresses(text: str, address: tuple[str, int]) -> None:
    assert addresses.parse(text) == address
    assert addresses.parse(addresses.join(*address)) == address


@pytest.mark.parametrize(
    "text", ["", "9876", ":9876", "host", "host:", "host:x", "host:0", "host:65536", "host:-1", "[::1:9876", "host:9²"]
)
def test_b087_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="write host:port"):
        addresses.parse(text)


def test_b087_lists() -> None:
    both = [("::1", 9876), ("127.0.0.1", 9876)]
    assert addresses.parse_list("[::1]:9876;127.0.0.1:9876") == both
    assert addresses.parse_list(" [::1]:9876 , 127.0.0.1:9876;;[::1]:9876;") == both
    assert addresses.parse_list("") == []


def test_null_among_the_objects_of_an_array_is_refused() -> None:
    """It says nothing of itself: not which topic it is, nor how many queues that has."""
    with pytest.raises(BodyError, match="null among the objects"):
        CreateTopicListRequestBody.decode(b'{"topicConfigList":[{"topicName":"T"},null]}')
    assert CreateTopicListRequestBody.decode(b'{"topicConfigList":null}').topic_config_list == []
