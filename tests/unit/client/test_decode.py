"""Records become the same messages whichever way they are read."""

from __future__ import annotations

import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.decode import decode_messages, received
from rmq.client.message import MessageExt
from rmq.protocol.message import MessageRecord, decode_record, encode_record
from rmq.protocol.record import MAGIC_V2

V4 = st.tuples(st.ip_addresses(v=4).map(str), st.integers(0, 65_535))
V6 = st.tuples(st.ip_addresses(v=6).map(str), st.integers(0, 65_535))
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20)

RECORDS = st.builds(
    MessageRecord,
    topic=st.text("abcT_-%", min_size=1, max_size=60),
    queue_id=st.integers(0, 100),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    queue_offset=st.integers(0, 1 << 60),
    physical_offset=st.integers(0, 1 << 60),
    born_timestamp=st.integers(0, 1 << 50),
    born_host=V4 | V6,
    store_timestamp=st.integers(0, 1 << 50),
    store_host=V4 | V6,
    reconsume_times=st.integers(0, 100),
    body=st.binary(min_size=1, max_size=200),
    properties=st.dictionaries(TEXT, TEXT, max_size=5),
    magic=st.sampled_from([MessageRecord("t").magic, MAGIC_V2]),
)


def fields(message: MessageExt) -> dict[str, object]:
    return {name: getattr(message, name) for name in MessageExt.__slots__}


@given(st.lists(RECORDS, max_size=5))
def test_both_ways_agree(records: list[MessageRecord]) -> None:
    data = [encode_record(record) for record in records]
    quick = decode_messages(b"".join(data), "b")
    careful = [received(decode_record(one), "b") for one in data]
    assert [fields(message) for message in quick] == [fields(message) for message in careful]


def test_compressed_bodies_are_plain_when_they_arrive() -> None:
    record = MessageRecord("T", body=zlib.compress(b"hello" * 1_000), sys_flag=0x301)
    (message,) = decode_messages(encode_record(record), "b")
    assert (message.body, message.sys_flag & 1) == (b"hello" * 1_000, 0)


def test_a_body_that_cannot_be_decompressed_is_given_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    record = MessageRecord("T", body=b"no zlib", sys_flag=0x301)
    (message,) = decode_messages(encode_record(record), "b")
    assert (message.body, message.sys_flag) == (b"no zlib", 0x301)
    assert "cannot be decompressed" in caplog.text


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_a_tail_that_is_cut_costs_its_record_alone(records: list[MessageRecord], data: st.DataObject) -> None:
    encoded = [encode_record(record) for record in records]
    whole = b"".join(encoded)
    cut = data.draw(st.integers(0, len(whole)))
    ends = list(itertools.accumulate(map(len, encoded)))
    found = decode_messages(whole[:cut], "b")
    assert [message.body for message in found] == [
        record.body for record, end in zip(records, ends, strict=True) if end <= cut
    ]


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_damage_ends_the_list_and_raises_nothing(records: list[MessageRecord], data: st.DataObject) -> None:
    whole = bytearray(b"".join(encode_record(record) for record in records))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    assert len(decode_messages(bytes(whole[:cut]), "b")) <= len(records)
