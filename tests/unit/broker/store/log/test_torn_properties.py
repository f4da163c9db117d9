"""A kill within a write may cut the last record anywhere: none of its beginnings may pass for a message."""

from rmq.broker.store.log.records import check
from rmq.protocol.message import MessageRecord, encode_record


def record(properties: dict[str, str], offset: int = 0) -> bytes:
    return encode_record(
        MessageRecord(topic="T", queue_id=0, body=b"body", physical_offset=offset, properties=properties)
    )


WHOLE = record({"UNIQ_KEY": "7F0000010001A29F0000000000000001", "KEYS": "k"})


def test_no_beginning_of_the_last_record_is_good() -> None:
    for kept in range(len(WHOLE)):
        torn = WHOLE[:kept] + bytes(len(WHOLE) - kept + 64)
        assert check(torn, 0, 0, 1 << 20) == 0, kept
    assert check(WHOLE + bytes(64), 0, 0, 1 << 20) == len(WHOLE)


def test_a_value_that_ends_in_nul_is_good_before_another_record() -> None:
    odd = record({"a": "x\0"})
    assert check(odd + record({}, len(odd)), 0, 0, 1 << 20) == len(odd)
    assert check(odd, 0, 0, 1 << 20) == len(odd)
