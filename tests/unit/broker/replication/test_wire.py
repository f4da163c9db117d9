"""Units and reports, cut anywhere."""

from __future__ import annotations

import pytest

from rmq.broker.replication.wire import HEADER_SIZE, LARGEST_BODY, ReportDecoder, UnitDecoder, header, report
from rmq.protocol.errors import ReplicationError

UNITS = [(0, b""), (0, b"abc"), (3, b"x" * 300), (303, b""), (1 << 40, b"z")]
STREAM = b"".join(header(offset, len(body)) + body for offset, body in UNITS)


def test_the_formats() -> None:
    assert header(0x0102030405060708, 0x0A0B0C0D).hex() == "01020304050607080a0b0c0d"
    assert report(0x0102030405060708).hex() == "0102030405060708"
    assert HEADER_SIZE + LARGEST_BODY == 4 << 20


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_units_cut_at_every_byte(cut: int) -> None:
    decoder = UnitDecoder()
    assert [*decoder.units(STREAM[:cut]), *decoder.units(STREAM[cut:])] == UNITS


def test_units_byte_by_byte() -> None:
    decoder = UnitDecoder()
    assert [unit for byte in STREAM for unit in decoder.units(bytes([byte]))] == UNITS


@pytest.mark.parametrize(
    "start",
    [
        header(0, -1),
        header(0, LARGEST_BODY + 1),
        header(-1, 0),
        header(-(1 << 63), 5),
        b"\xff" * 12,
        header((1 << 62) + 1, 0),
        header((1 << 63) - (1 << 20), 91),
    ],
)
def test_what_no_master_sends_is_refused_before_it_is_kept(start: bytes) -> None:
    with pytest.raises(ReplicationError, match="no HA stream"):
        list(UnitDecoder().units(start))


def test_reports_cut_at_every_byte() -> None:
    stream = report(7) + report(-1) + report(1 << 62)
    for cut in range(len(stream) + 1):
        decoder = ReportDecoder()
        assert decoder.reports(stream[:cut]) + decoder.reports(stream[cut:]) == [7, -1, 1 << 62]
    assert ReportDecoder().reports(b"GET / H") == []
