"""The layout of records: what the codec writes lies where the layout says, whatever the hosts and the version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmq.protocol.errors import ProtocolError
from rmq.protocol.message import MessageRecord, encode_record
from rmq.protocol.record import (
    BLANK_MAGIC,
    FIELDS,
    FIXED_SIZE,
    HEAD_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    fields,
    fitted,
    host_places,
    is_blank,
    places,
    store_time,
    topic_of,
)

V4, V6 = ("10.1.2.3", 10911), ("2001:db8::1", 10912)
ONE = MessageRecord(
    "a topic", 3, 5, 7, 1 << 40, 4, 1_700_000_000_001, V4, 1_700_000_000_002, ("9.8.7.6", 1), 2, 11, b"the body",
    {"KEYS": "k"},
)  # fmt: skip


def test_fields_are_read_in_one_go_wherever_the_record_lies() -> None:
    data = b"before" + encode_record(ONE)
    read = dict(zip(FIELDS, fields(*FIELDS)(data, 6), strict=True))
    assert read == {
        "size": len(data) - 6, "magic": MAGIC_V1, "body_crc": read["body_crc"], "queue_id": 3, "flag": 5,
        "queue_offset": 7, "physical_offset": 1 << 40, "sys_flag": 4, "born_timestamp": 1_700_000_000_001,
        "born_ip": bytes((10, 1, 2, 3)), "born_port": 10911, "store_timestamp": 1_700_000_000_002,
        "store_ip": bytes((9, 8, 7, 6)), "store_port": 1, "reconsume_times": 2, "prepared_transaction_offset": 11,
        "body_size": 8,
    }  # fmt: skip
    for name in FIELDS:
        assert fields(name)(data, 6) == (read[name],)
    assert fields("magic", "sys_flag", "body_size")(memoryview(data), 6) == (MAGIC_V1, 4, 8)
    with pytest.raises(ValueError, match="magic lies before"):
        fields("queue_id", "magic")


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("topic", ["t", "t" * 127])
@pytest.mark.parametrize("body", [b"", b"the body"])
def test_parts_lie_one_behind_the_other(
    magic: int, born: tuple[str, int], store: tuple[str, int], topic: str, body: bytes
) -> None:
    record = encode_record(replace(ONE, magic=magic, born_host=born, store_host=store, topic=topic, body=body))
    for front in (b"", b"x" * 5):
        data = front + record + b"behind it"
        at = len(front)
        found = body_at, topic_at, name_at, behind = places(data, at)
        assert fitted(data, at, len(record)) == found
        assert fitted(bytearray(data), at, len(record)) == fitted(memoryview(data), at, len(record)) == found
        assert (data[body_at:topic_at], data[name_at:behind]) == (body, topic.encode())
        assert name_at - topic_at == (1 if magic == MAGIC_V1 else 2)
        assert data[behind : behind + 2] == b"\0\6"
        assert store_time(data, at) == ONE.store_timestamp
    assert topic_of(record) == topic
    sys_flag = fields("sys_flag")(record, 0)[0]
    born_at, born_end, store_at, store_end = host_places(sys_flag)
    assert (born_end - born_at, store_end - store_at) == tuple(8 if host is V4 else 20 for host in (born, store))
    assert record[born_end - 4 : born_end] == born[1].to_bytes(4, "big")
    assert record[store_end - 4 : store_end] == store[1].to_bytes(4, "big")
    assert int.from_bytes(record[born_end:store_at], "big") == ONE.store_timestamp
    assert int.from_bytes(record[store_end : store_end + 4], "big") == ONE.reconsume_times
    assert places(record)[0] == store_end + 16


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("hosts", [0, 0x10, 0x20, 0x30])
def test_lengths_that_do_not_add_up_are_refused(magic: int, hosts: int) -> None:
    record = bytearray(encode_record(replace(ONE, magic=magic)))
    size = len(record)
    _, topic_at, _, behind = places(record)

    def with_bytes(at: int, data: bytes) -> bytearray:
        return record[:at] + data + record[at + len(data) :]

    if hosts:  # they are not there
        with pytest.raises(ProtocolError, match=f"{size} in all"):
            fitted(with_bytes(39, bytes([hosts])), 0, size)
        return
    for body_size in (-1, -(1 << 31), size - HEAD_SIZE, size, (1 << 31) - 1):
        with pytest.raises(ProtocolError, match=f"with a body of {body_size} bytes, {size} in all"):
            fitted(with_bytes(84, body_size.to_bytes(4, "big", signed=True)), 0, size)
    wrong = bytes([255]) if magic == MAGIC_V1 else b"\xff\xff"
    with pytest.raises(ProtocolError, match=f"with a topic of {int.from_bytes(wrong, 'big')} bytes"):
        fitted(with_bytes(topic_at, wrong), 0, size)
    for length in (-1, 5, 7, 0x7FFF):
        with pytest.raises(ProtocolError, match=f"with properties of {length} bytes"):
            fitted(with_bytes(behind, length.to_bytes(2, "big", signed=True)), 0, size)
    for less in (1, 2, size - FIXED_SIZE):
        with pytest.raises(ProtocolError):
            fitted(record, 0, size - less)


def test_the_blank_rest_of_a_file() -> None:
    data = b"x" + (100).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big", signed=True)
    assert is_blank(data, 1, 100)
    assert not is_blank(data, 1, 99)
    assert not is_blank(data, 0, 100)
    assert not is_blank(data[:-1], 1, 100)


@pytest.mark.parametrize("hosts", [0x10, 0x20, 0x30])
def test_hosts_that_the_bytes_have_no_room_for_are_refused(hosts: int) -> None:
    """The smallest record there is, with nothing behind it."""
    record = bytearray(encode_record(replace(ONE, topic="t", body=b"", properties={})))
    record[39] |= hosts
    with pytest.raises(ProtocolError, match=f"{len(record)} in all"):
        fitted(record, 0, len(record))
