# ruff: noqa: E402 - what follows the check for pyarrow needs it
"""Columns made of many records at once are what the record codec says of each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

from rmq.protocol import sysflags
from rmq.protocol.compression import compress
from rmq.protocol.errors import ProtocolError
from rmq.protocol.message import MessageRecord, decode_record, encode_record
from rmq.protocol.properties import decode as decode_properties
from rmq.protocol.queue import MessageQueue
from rmq.protocol.record import MAGIC_V1, MAGIC_V2
from rmq.spark.arrow.columns import LEGACY, TYPES, arrow_type
from rmq.spark.arrow.decode import Records, decode
from rmq.spark.arrow.properties import PropertyColumns
from rmq.spark.source.one_range import Chunk

QUEUE = MessageQueue("t", "broker-a", 2)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALL = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in TYPES.items()])


def chunk(records: list[MessageRecord], before: int = 5) -> Chunk:
    buffer = bytearray(before)
    starts = []
    for record in records:
        starts.append(len(buffer))
        buffer += encode_record(record)
    end = len(buffer)
    return Chunk(buffer + bytearray(50), starts, end)


def record(offset: int, **more: Any) -> MessageRecord:
    given = {
        "queue_id": 2,
        "queue_offset": offset,
        "physical_offset": 1000 + offset,
        "born_timestamp": 1_700_000_000_000 + offset,
        "store_timestamp": 1_700_000_000_100 + offset,
        "body": b"body %d" % offset,
        "flag": offset * 3,
        "reconsume_times": offset % 4,
        "properties": {"KEYS": f"k{offset} l", "TAGS": "A", "UNIQ_KEY": f"ID{offset}", "own": "wert ä"},
    }
    return MessageRecord(**{"topic": "t", **given, **more})


def expected(given: MessageRecord) -> dict[str, Any]:
    stored = decode_record(encode_record(given))
    born = EPOCH + timedelta(milliseconds=stored.born_timestamp)
    stored_at = EPOCH + timedelta(milliseconds=stored.store_timestamp)

    def host(pair: tuple[str, int]) -> str:
        return f"[{pair[0]}]:{pair[1]}" if ":" in pair[0] else f"{pair[0]}:{pair[1]}"

    return {
        "topic": "t",
        "brokerName": "broker-a",
        "queueId": 2,
        "offset": stored.queue_offset,
        "value": stored.content(),
        "keys": stored.properties.get("KEYS"),
        "tags": stored.properties.get("TAGS"),
        "msgId": stored.msg_id,
        "bornTimestamp": born,
        "timestamp": stored_at,
        "properties": stored.properties,
        "flag": stored.flag,
        "sysFlag": stored.sys_flag,
        "bornHost": host(stored.born_host),
        "storeHost": host(stored.store_host),
        "reconsumeTimes": stored.reconsume_times,
        "physicalOffset": stored.physical_offset,
        "offsetMsgId": stored.offset_msg_id,
        "body": stored.content(),
        "queueOffset": stored.queue_offset,
        "storeTimestamp": stored_at,
    }


def rows(batch: Any) -> list[dict[str, Any]]:
    return [{**row, "properties": dict(row["properties"])} for row in batch.to_pylist()]


ID = "0A0B0C0D00000000000000000000000F"
ODD = [
    record(0),
    record(1, properties={}),
    record(2, body=b""),
    record(3, born_host=("::1", 4), store_host=("10.1.2.3", 10911)),
    record(4, born_host=("1.2.3.4", 5), store_host=("2001:db8::1", 6), properties={"TAGS": "B"}),
    record(5, born_host=("2001:db8::7", 5), store_host=("2001:db8::1", 6), reconsume_times=7, properties={"KEYS": "k"}),
    record(6, magic=MAGIC_V2, topic="t" * 200),
    record(7, body=compress(b"plain " * 99), sys_flag=sysflags.COMPRESSED | sysflags.COMPRESSION_ZLIB),
    record(8, properties={"own": "x" * 5000}),
    record(9, properties={"KEYS": "one two  three", "UNIQ_KEY": ID}),
    record(10, properties={"TAGS": "Ä€𝄞", "KEYS": "schlüssel", "名": "値"}),
    record(11, properties={"KEYS": "a=b", "zero": "a\x00b"}),
    record(12, sys_flag=sysflags.TRANSACTION_COMMIT | sysflags.MULTI_TAGS, flag=-1, physical_offset=(1 << 62) + 0xABC),
    record(13, born_host=("255.255.255.255", 65_535), store_host=("9.8.7.6", 0)),
]
#: Property strings as other clients write them, or as nobody should.
WRITTEN = [
    "KEYS\x01k\x02TAGS\x01A\x02",
    "KEYS\x01k\x02TAGS\x01A\x02\x02",
    "\x02KEYS\x01k",
    "KEYS\x01\x02TAGS\x01A",
    "\x01k\x02TAGS\x01A",
    "KEYS\x01one\x02KEYS\x01two\x02UNIQ_KEY\x01i",
    "KEYS\x01a\x01b\x02TAGS",
    "TAGS\x01A\x02KEYS\x01k",
    "\x02",
    "\x01",
    "junk",
    "",
]


def written(offset: int, text: str) -> MessageRecord:
    return record(offset, properties=decode_properties(text), property_text=text)


def check(given: list[MessageRecord]) -> None:
    batch = decode(Records(QUEUE, chunk(given)), ALL)
    assert rows(batch) == [expected(each) for each in given]
    batch.validate(full=True)
    for name in ("keys", "tags", "msgId", "properties"):  # without what others have prepared
        (alone,) = decode(Records(QUEUE, chunk(given)), pa.schema([ALL.field(name)]))
        assert alone.equals(batch.column(name)), name


def test_every_column_is_what_the_codec_says() -> None:
    check(ODD)
    check([written(number, text) for number, text in enumerate(WRITTEN)])
    check([*ODD, *(written(100 + number, text) for number, text in enumerate(WRITTEN)), *ODD[::-1]])


@pytest.mark.parametrize("one", [*ODD, *(written(90 + number, text) for number, text in enumerate(WRITTEN))])
def test_records_that_are_all_alike_are_what_the_codec_says(one: MessageRecord) -> None:
    check([one])
    check([one] * 3)


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
def test_topics_of_any_length_lie_before_the_properties(magic: int) -> None:
    longest = {MAGIC_V1: 127, MAGIC_V2: 32767}[magic]
    lengths = [1, 2, 3, 7, 63, 126, 127, 128, 129, 254, 255, 256, 257, 511, 4095, 32766, 32767]
    for length in [length for length in lengths if length <= longest]:
        given = [record(0, magic=magic, topic="t" * length), record(1, magic=magic, topic="t" * length)]
        batch = decode(Records(QUEUE, chunk(given)), pa.schema([ALL.field("properties"), ALL.field("keys")]))
        wanted = [{name: expected(one)[name] for name in ("properties", "keys")} for one in given]
        assert rows(batch) == wanted, length


def test_the_order_of_properties_may_change_on_the_way() -> None:
    """As many names and as many bytes of them as those before, and yet others."""
    ab, ba = {"KEYS": "1", "TAGS": "2"}, {"TAGS": "1", "KEYS": "2"}
    check([record(0, properties=ab), record(1, properties=ba), record(2, properties=ab)])
    check([record(0, properties={"a": "1", "bc": "2"}), record(1, properties={"ab": "1", "c": "2"})])
    check([record(0, properties={"a": "1"}), record(1, properties={"a": "1", "b": "2", "c": "3"})])


@pytest.mark.parametrize("flag", [sysflags.INNER_BATCH, sysflags.NEED_UNWRAP])
def test_batches_stored_as_one_message_are_refused_whatever_is_read(flag: int) -> None:
    with pytest.raises(ProtocolError, match="batches stored as one message are not read here"):
        decode(Records(QUEUE, chunk([record(0), record(1, sys_flag=flag)])), pa.schema([ALL.field("offset")]))


def behind(strings: Iterable[bytes]) -> Any:
    """Property strings as they are cut out of records: behind the last byte of their length."""
    return pa.array([bytes([len(each) & 0xFF]) + each for each in strings], pa.binary())


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=6)
strings = st.lists(st.one_of(st.tuples(texts, texts), st.sampled_from([("KEYS", "k"), ("TAGS", "t")])), max_size=5)


@given(st.lists(st.tuples(strings, st.sampled_from(["", "\x02", "\x02\x02", "junk", "\x01"])), max_size=6))
def test_property_strings_read_as_one_by_one(given: list[tuple[list[tuple[str, str]], str]]) -> None:
    written = ["\x02".join(f"{name}\x01{value}" for name, value in pairs) + tail for pairs, tail in given]
    found = PropertyColumns(behind(text.encode() for text in written))
    wanted = [decode_properties(text) for text in written]
    assert [dict(each) for each in found.map().to_pylist()] == wanted
    assert [len(each) for each in found.map().to_pylist()] == [len(each) for each in wanted]
    assert found.value("KEYS").to_pylist() == [each.get("KEYS") for each in wanted]
    found.map().validate(full=True)


def test_bytes_that_are_no_text_are_replaced() -> None:
    found = PropertyColumns(behind([b"KEYS\x01a\xffb", b"n\x01v"]))
    assert [dict(each) for each in found.map().to_pylist()] == [{"KEYS": "a�b"}, {"n": "v"}]
    assert found.value("KEYS").to_pylist() == ["a�b", None]


def test_records_of_several_queues_are_joined() -> None:
    queues = [QUEUE, MessageQueue("t", "broker-b", 2), MessageQueue("other", "broker-b", 0)]
    chunks = [chunk(ODD[start::3], before=7 * start) for start in range(3)]
    chunks[1].delta = 1000
    parts = [Records(queue, each) for queue, each in zip(queues, chunks, strict=True)]
    joined = decode(Records.joined(parts), ALL)
    joined.validate(full=True)
    wanted = []
    for start, queue in enumerate(queues):
        named = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
        for each in ODD[start::3]:
            offset = each.queue_offset + (1000 if start == 1 else 0)
            wanted.append({**expected(each), **named, "offset": offset, "queueOffset": offset})
    assert rows(joined) == wanted
    (only,) = rows(decode(Records.joined(parts), ALL, frozenset({"B"})))
    assert only == wanted[[each["tags"] for each in wanted].index("B")]
    assert only["brokerName"] == "broker-b"


def test_a_tag_with_the_same_hash_is_left_out() -> None:
    given = [record(0, properties={"TAGS": "Aa"}), record(1, properties={"TAGS": "BB"}), record(2, properties={})]
    batch = decode(Records(QUEUE, chunk(given)), ALL.empty_table().select(["offset"]).schema, frozenset({"Aa"}))
    assert batch.to_pylist() == [{"offset": 0}]


def test_what_lies_beyond_the_range_is_cut_off() -> None:
    records = Records(QUEUE, chunk([record(3), record(4), record(5)]))
    assert records.before(5).offsets.tolist() == [3, 4]
    assert records.before(9) is records


def test_the_scala_connectors_columns() -> None:
    schema = pa.schema(
        [pa.field(name, arrow_type("string" if name == "properties" else TYPES[name])) for name in LEGACY]
    )
    (row,) = decode(Records(QUEUE, chunk([record(9)])), schema).to_pylist()
    assert list(row) == list(LEGACY)
    assert json.loads(row["properties"]) == record(9).properties


def test_what_is_no_record_is_refused() -> None:
    damaged = chunk([record(0)])
    damaged.buffer[damaged.starts[0] + 4] ^= 1
    with pytest.raises(ProtocolError, match="no message record"):
        Records(QUEUE, damaged)


@pytest.mark.parametrize("at", [84, 87, 88 + 6, 88 + 6 + 2, 88 + 6 + 3])
def test_lengths_that_do_not_fit_are_refused(at: int) -> None:
    """Of the body, of the topic, of the properties: none may lead into what follows."""
    longer = chunk([record(0), record(1)])
    longer.buffer[longer.starts[0] + at] ^= 0x7F
    with pytest.raises(ProtocolError, match="reaches beyond its end"):
        decode(Records(QUEUE, longer), ALL)
