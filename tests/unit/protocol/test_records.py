"""Records: damage is told, and stops what follows."""

from __future__ import annotations

import pytest

from rmq.protocol import ids, message
from rmq.protocol.errors import ProtocolError
from rmq.protocol.message import MessageRecord
from rmq.protocol.record import MAGIC_V2

#: The worked example of protocol.md 5.1.
WORKED = bytes.fromhex(
    "0000006F DAA320A7 58932AAC 00000003 00000000 0000000000000005 00000000000004D2 00000000 0000018BCFE56800"
    "0A000009000015B3 0000018BCFE56801 0A00000100002A9F 00000000 0000000000000000 00000002 6869 02 5431"
    "0010 4B455953016B0254414753015461 6741"
)


def test_the_worked_record() -> None:
    record = message.decode_record(WORKED, check_crc=True)
    assert record == MessageRecord(
        topic="T1", queue_id=3, queue_offset=5, physical_offset=1234, born_timestamp=1700000000000,
        born_host=("10.0.0.9", 5555), store_timestamp=1700000000001, store_host=("10.0.0.1", 10911), body=b"hi",
        properties={"KEYS": "k", "TAGS": "TagA"}, body_crc=1486039724, size=111,
        property_text="KEYS\x01k\x02TAGS\x01TagA",
    )  # fmt: skip
    assert message.encode_record(record) == WORKED
    assert record.msg_id == record.offset_msg_id == "0A00000100002A9F00000000000004D2"


@pytest.mark.parametrize("cut", range(1, len(WORKED)))
def test_a_record_cut_anywhere_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        message.decode_record(WORKED[:cut])
    assert len(message.decode_records(WORKED + WORKED[:cut])) == 1


@pytest.mark.parametrize(
    ("at", "bytes_"),
    [(0, "00000000"), (0, "ffffffff"), (0, "0000006e"), (0, "00000070"), (4, "00000000"), (4, "cbd43194"),
     (84, "ffffffff"), (84, "7fffffff"), (84, "00000015"), (90, "ff"), (93, "ffff"), (93, "0011"), (36, "00000010")],
)  # fmt: skip
def test_a_damaged_record_stops_what_follows(at: int, bytes_: str) -> None:
    patch = bytes.fromhex(bytes_)
    damaged = WORKED[:at] + patch + WORKED[at + len(patch) :]
    with pytest.raises(ProtocolError, match="byte 0"):
        message.decode_record(damaged)
    assert len(message.decode_records(WORKED + damaged + WORKED)) == 1


def test_the_body_is_checked_when_asked() -> None:
    damaged = WORKED[:88] + b"ho" + WORKED[90:]
    assert message.decode_record(damaged).body == b"ho"
    with pytest.raises(ProtocolError, match="CRC"):
        message.decode_record(damaged, check_crc=True)


def test_long_topics_need_the_second_version() -> None:
    long = "t" * 200
    with pytest.raises(ProtocolError, match="200"):
        message.encode_record(MessageRecord(long))
    record = message.decode_record(message.encode_record(MessageRecord(long, magic=MAGIC_V2)))
    assert (record.topic, record.magic) == (long, MAGIC_V2)


def test_properties_have_a_limit() -> None:
    message.encode_record(MessageRecord("T", properties={"k": "v" * 32_765}))
    with pytest.raises(ProtocolError, match="32767"):
        message.encode_record(MessageRecord("T", properties={"k": "v" * 32_766}))


def test_properties_stay_as_they_were_written() -> None:
    trailing = bytearray(WORKED + b"\x02")
    trailing[3] += 1
    trailing[94] += 1
    record = message.decode_record(trailing)
    assert message.encode_record(record) == trailing
    record.properties["NEW"] = "1"
    assert message.decode_record(message.encode_record(record)).properties == {"KEYS": "k", "TAGS": "TagA", "NEW": "1"}


@pytest.mark.parametrize("text", ["", "0A", "Z" * 32, "0A000001 0002A9F00000000000004D22", "0" * 31, "0" * 57])
def test_what_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="no offset message id"):
        ids.decode_offset_msg_id(text)


def test_unique_ids_differ_and_tell_their_time() -> None:
    now = 1_700_000_000_000
    made = ids.UniqueIds(bytes([10, 0, 0, 9]), 70_000, -1, now)
    first, second = made.next(now), made.next(now + 1000)
    assert first != second
    assert first.startswith(f"0A000009{70_000 & 0xFFFF:04X}FFFFFFFF")
    assert ids.unique_id_time(first, now + 5000) == now
    assert ids.unique_id_time(second, now + 5000) == now + 1000
    assert ids.unique_id_time("x", now) is None
    assert ids.unique_id_time("Z" * 32, now) is None
    assert len({made.next(now) for _ in range(65_536)}) == 65_536


def test_unique_ids_cross_a_month() -> None:
    february = 1_707_000_000_000
    made = ids.UniqueIds(bytes(16), 1, 1, february - 10 * 86_400_000)
    late = made.next(february)
    assert len(late) == 56
    assert ids.unique_id_time(late, february + 1) == february
    before = made.next(february - 10 * 86_400_000)  # the clock went back
    assert ids.unique_id_time(before, february) == february - 10 * 86_400_000
