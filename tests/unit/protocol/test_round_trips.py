"""What one codec writes it reads back equal."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.protocol import addresses, batch, compression, fastjson, frame, ids, message, namespaces, properties, tags
from rmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from rmq.protocol.bodies.offset import ConsumerOffsetTable
from rmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper
from rmq.protocol.command import Command, SerializeType
from rmq.protocol.headers.send import SendMessageRequest, SendMessageV2Request
from rmq.protocol.message import MessageRecord
from rmq.protocol.queue import MessageQueue

relaxed = settings(deadline=None, max_examples=60)

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
names = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1, max_size=20)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)
tables = st.dictionaries(names, names, max_size=6)


@given(
    code=st.integers(-32768, 32767),
    ext=st.one_of(st.none(), st.dictionaries(texts, texts, max_size=5)),
    body=st.binary(max_size=100),
    flag=int32,
    opaque=int32,
    remark=st.one_of(st.none(), texts),
    language=st.integers(0, 13),
    version=st.integers(-32768, 32767),
    kind=st.sampled_from(SerializeType),
)
@relaxed
def test_commands(kind: SerializeType, **fields: Any) -> None:
    command = Command(serialize=kind, **fields)
    read = frame.decode(frame.encode(command)[4:])
    if kind == SerializeType.ROCKETMQ:  # this form does not know empty texts
        command.remark = command.remark or None
        if command.ext is not None:
            command.ext = {name: text or None for name, text in command.ext.items() if name} if command.ext else None
    assert read == command


leaves = st.one_of(st.booleans(), int64, texts, st.floats(allow_nan=False, allow_infinity=False))
trees = st.recursive(
    leaves,
    lambda inner: st.lists(st.none() | inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(trees)
@relaxed
def test_json_values(value: Any) -> None:
    assert fastjson.loads(fastjson.dumps(value)) == value
    assert fastjson.loads(fastjson.pretty(value)) == value
    assert fastjson.loads(fastjson.standard(value)) == value


@given(st.dictionaries(st.builds(MessageQueue, texts, texts, int32), st.builds(OffsetWrapper, int64, int64, int64)))
@relaxed
def test_tables_by_queue(table: dict[MessageQueue, OffsetWrapper]) -> None:
    stats = ConsumeStats(1.5, table)
    assert ConsumeStats.decode(stats.encode()) == stats


@given(st.dictionaries(texts, st.dictionaries(int32, int64, max_size=4), max_size=4))
@relaxed
def test_tables_by_number(table: dict[str, dict[int, int]]) -> None:
    offsets = ConsumerOffsetTable(table)
    assert ConsumerOffsetTable.decode(offsets.encode()) == offsets
    assert ConsumerOffsetTable.decode(fastjson.pretty(offsets.to_object())) == offsets


subscriptions = st.builds(SubscriptionData, texts, texts, st.lists(texts), st.lists(int32), int64)
consumers = st.builds(ConsumerData, texts, subscription_data_set=st.lists(subscriptions, max_size=3))
producers = st.builds(ProducerData, texts)


@given(st.builds(HeartbeatData, texts, st.lists(consumers, max_size=3), st.lists(producers, max_size=3)))
@relaxed
def test_heartbeats(heartbeat: HeartbeatData) -> None:
    assert HeartbeatData.decode(heartbeat.encode()) == heartbeat


@given(
    topic=names.filter(lambda t: len(t.encode()) < 128),
    body=st.binary(max_size=200),
    properties=tables,
    born_host=st.tuples(hosts, st.integers(0, 65535)),
    store_host=st.tuples(hosts, st.integers(0, 65535)),
    queue_id=int32, flag=int32, sys_flag=st.integers(0, 0xF), queue_offset=int64, physical_offset=int64,
    born_timestamp=int64, store_timestamp=int64, reconsume_times=int32, prepared_transaction_offset=int64,
)  # fmt: skip
@relaxed
def test_records(**fields: Any) -> None:
    record = MessageRecord(**fields)
    data = message.encode_record(record)
    read = message.decode_record(b"junk" + data, 4, check_crc=True)
    assert read.size == len(data)
    for name in ("topic", "body", "properties", "born_host", "store_host", "queue_id", "flag", "queue_offset"):
        assert getattr(read, name) == getattr(record, name)
    assert read.sys_flag & 0xF == record.sys_flag
    assert message.encode_record(read) == data
    assert [message.encode_record(one) for one in message.decode_records(data * 3 + data[:-1])] == [data] * 3


@given(st.lists(st.tuples(int32, st.binary(max_size=50), tables), max_size=5))
@relaxed
def test_batches(items: list[tuple[int, bytes, dict[str, str]]]) -> None:
    assert batch.decode(batch.encode(items)) == items


@given(tables, tables)
@relaxed
def test_properties(first: dict[str, str], second: dict[str, str]) -> None:
    text, more = properties.encode(first), properties.encode(second)
    assert properties.decode(text) == first
    assert properties.decode(text + "\x02") == first
    assert properties.decode(properties.append(text, more)) == first | second
    assert properties.decode(properties.append(text + "\x02", more + "\x02")) == first | second


@given(hosts, st.integers(0, 65535), st.integers(0, (1 << 63) - 1))
@relaxed
def test_offset_ids(host: str, port: int, offset: int) -> None:
    text = ids.offset_msg_id(host, port, offset)
    assert ids.decode_offset_msg_id(text) == (host, port, offset) == ids.decode_offset_msg_id(text.lower())


@given(hosts, st.integers(1, 65535))
@relaxed
def test_addresses(host: str, port: int) -> None:
    assert addresses.parse(addresses.join(host, port)) == (host, port)
    assert addresses.parse(f"{host}:{port}") == (host, port)


@given(st.text(max_size=700))
@relaxed
def test_string_hash(text: str) -> None:
    expected = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", raw):
        expected = (31 * expected + unit) & 0xFFFFFFFF
    assert tags.string_hash(text) & 0xFFFFFFFF == expected
    assert -(1 << 31) <= tags.string_hash(text) < 1 << 31


@given(st.binary(max_size=5000), st.sampled_from(["zlib", "lz4", "zstd"]))
@relaxed
def test_compression(body: bytes, kind: str) -> None:
    packed = compression.compress(body, kind)
    assert compression.decompress(packed, compression.flags_of(kind)) == body


@given(names.filter(lambda n: "%" not in n and not n.startswith("rmq_sys_")), st.sampled_from(["", "%RETRY%", "%DLQ%"]))
@relaxed
def test_namespaces(name: str, prefix: str) -> None:
    wrapped = namespaces.wrap("ns", prefix + name)
    assert wrapped == f"{prefix}ns%{name}"
    assert namespaces.wrap("ns", wrapped) == wrapped
    assert namespaces.unwrap(wrapped) == namespaces.unwrap(wrapped, "ns") == prefix + name


@given(
    producer_group=texts, topic=texts, default_topic=texts, default_topic_queue_nums=int32, queue_id=int32,
    sys_flag=int32, born_timestamp=int64, flag=int32, properties=st.one_of(st.none(), texts),
    reconsume_times=st.one_of(st.none(), int32), unit_mode=st.booleans(), batch=st.booleans(),
)  # fmt: skip
@relaxed
def test_send_headers(**fields: Any) -> None:
    for kind in (SendMessageRequest, SendMessageV2Request):
        header = kind(**fields)
        assert kind.decode(header.encode()) == header
