"""Records of message traces: as Java 4.9.4 and 4.9.8 write them, and as every release may be read."""

from __future__ import annotations

import pytest

from rmq.protocol.trace import (
    ConsumeBegun,
    ConsumeEnded,
    ConsumeOutcome,
    MessageKind,
    Recalled,
    Sent,
    TraceRecord,
    TransactionEnded,
    decode,
    encode,
)

NORMAL = MessageKind.NORMAL
AT = 1700000000123
OFFSET_ID = "7F00000100002A9F0000000000000000"
SENT = Sent(
    AT, "DefaultRegion", "pg", "TopicTest", "7F0000010BB8", "TagA", "k1 k2", "127.0.0.1:10911", 12, 7,
    MessageKind.DELAY, OFFSET_ID, True,
)  # fmt: skip
PLAIN = Sent(
    AT, "DefaultRegion", "pg", "TopicTest", "7F0000010BB8", None, None, "127.0.0.1:10911", 12, 7,
    MessageKind.NORMAL, OFFSET_ID, False,
)  # fmt: skip
BEGUN = ConsumeBegun(AT, "DefaultRegion", "pg", "REQ", "7F0000010BB8", 2, "k1")
KEYLESS = ConsumeBegun(AT, "DefaultRegion", "pg", "REQ", "7F0000010BB8", 2)
ENDED = ConsumeEnded("REQ", "7F0000010BB8", 7, False, "k1", ConsumeOutcome.FAILED, AT, "pg")
TRANSACTION = TransactionEnded(
    AT, "DefaultRegion", "pg", "TopicTest", "7F0000010BB8", "TagA", "k1", "127.0.0.1:10911", MessageKind.COMMIT, "TX",
    "UNKNOW", True,
)  # fmt: skip
RECALLED = Recalled(AT, "DefaultRegion", "pg", "TopicTest", "7F0000010BB8", True)

#: What TraceDataEncoder of rocketmq-client 4.9.4 and 4.9.8 makes of them, with | and # for 0x01 and 0x02.
JAVA = {
    SENT: "Pub|1700000000123|DefaultRegion|pg|TopicTest|7F0000010BB8|TagA|k1 k2|127.0.0.1:10911|12|7|3"
    f"|{OFFSET_ID}|true#",
    PLAIN: "Pub|1700000000123|DefaultRegion|pg|TopicTest|7F0000010BB8|null|null|127.0.0.1:10911|12|7|0"
    f"|{OFFSET_ID}|false#",
    BEGUN: "SubBefore|1700000000123|DefaultRegion|pg|REQ|7F0000010BB8|2|k1#",
    KEYLESS: "SubBefore|1700000000123|DefaultRegion|pg|REQ|7F0000010BB8|2|null#",
    ENDED: "SubAfter|REQ|7F0000010BB8|7|false|k1|4|1700000000123|pg#",
    TRANSACTION: "EndTransaction|1700000000123|DefaultRegion|pg|TopicTest|7F0000010BB8|TagA|k1|127.0.0.1:10911|2|TX"
    "|UNKNOW|true#",
}


def wire(text: str) -> bytes:
    return text.replace("|", "\x01").replace("#", "\x02").encode()


def test_records_are_written_as_java_writes_them() -> None:
    assert {record: encode(record).encode() for record in JAVA} == {record: wire(text) for record, text in JAVA.items()}


def test_what_was_written_is_read() -> None:
    records = [*JAVA, RECALLED]
    assert list(decode("".join(map(encode, records)).encode())) == records


@pytest.mark.parametrize(
    ("text", "records"),
    [
        # 4.5: neither offset id in Pub, nor time and group in SubAfter.
        ("Pub|5|R|g|t|ID|null|k|h:1|3|4|0|true#", [Sent(5, "R", "g", "t", "ID", None, "k", "h:1", 3, 4, NORMAL)]),
        ("SubAfter|q|ID|4|true|k|0#", [ConsumeEnded("q", "ID", 4, True, "k")]),
        ("SubAfter|q|ID|4|true|k#", [ConsumeEnded("q", "ID", 4, True, "k")]),
        # 4.8.0: the client's host is one more.
        (
            "Pub|5|R|g|t|ID|null|k|h:1|3|4|1|OFF|true|10.0.0.7#SubBefore|5|R|g|q|ID|0|k|10.0.0.8#",
            [
                Sent(5, "R", "g", "t", "ID", None, "k", "h:1", 3, 4, MessageKind.HALF, "OFF", True, "10.0.0.7"),
                ConsumeBegun(5, "R", "g", "q", "ID", 0, "k", "10.0.0.8"),
            ],
        ),
        # 4.9.8 with the access channel CLOUD: SubAfter does not end.
        (
            "SubAfter|q|A|4|true|k|0SubAfter|q|B|4|false|k|2SubBefore|5|R|g|q|C|0|k#",
            [
                ConsumeEnded("q", "A", 4, True, "k"),
                ConsumeEnded("q", "B", 4, False, "k", ConsumeOutcome.EXCEPTION),
                ConsumeBegun(5, "R", "g", "q", "C", 0, "k"),
            ],
        ),
    ],
)  # fmt: skip
def test_other_releases_are_read(text: str, records: list[TraceRecord]) -> None:
    """Field case B114."""
    assert list(decode(wire(text))) == records


@pytest.mark.parametrize(
    "bad",
    [
        b"", b"\x02\x02", b"Pub", b"Pub\x01", wire("Later|1|2|3#"), wire("Pub|x|R|g|t|ID|null|k|h:1|3|4|0|OFF|true#"),
        wire("SubAfter|q|ID|" + "9" * 5000 + "|true|k|0#"), wire("SubAfter|q|ID|4|true|k|77#"), b"\xff\xfe\x01\x80\x02",
    ],
)  # fmt: skip
def test_a_bad_record_costs_itself_alone(bad: bytes) -> None:
    whole = wire(JAVA[BEGUN])
    assert list(decode(bad + b"\x02" + whole)) == [BEGUN]
    assert list(decode(whole + bad)) == [BEGUN]
