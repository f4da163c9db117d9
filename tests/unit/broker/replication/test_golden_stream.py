"""Both ends write what Java 4.9.4's wrote, byte for byte and in its order (tests/golden/replication)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from rmq.broker.replication.incoming import IncomingRecords
from rmq.broker.replication.master import Extent, MasterStream
from rmq.broker.replication.slave import SlaveStream
from rmq.broker.replication.wire import header, report
from tests.support.scenes.replication import record_head

RECORDED = Path(__file__).parents[3] / "golden" / "replication" / "ha-stream-4.9.4.txt"
FILE = 1 << 20


class Line(NamedTuple):
    at: float
    who: str
    offset: int
    size: int


def lines() -> list[Line]:
    found = []
    for line in RECORDED.read_text().splitlines():
        ms, who, *numbers = line.split()
        offset, size = (int(numbers[0]), int(numbers[1])) if who == "master" else (int(numbers[0]), 0)
        found.append(Line(int(ms) / 1000, who, offset, size))
    return found


def the_log() -> bytes:
    """A log with records of the recorded sizes, as far as they are looked at."""
    data = b""
    for size in [139] * 5 + [138] * 3 + [300_118] * 3:
        data += record_head(len(data), size)
    blank = FILE - len(data)
    data += blank.to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(blank - 8)
    return data + record_head(FILE, 300_118)


#: Where the master's log ended, from which moment on.
GROWN = ((0.0, 695), (14.760, 833), (15.062, 971), (15.325, 1109), (15.466, 1_348_694))


@pytest.mark.parametrize("cut", range(8))
def test_a_master_writes_what_javas_wrote(cut: int) -> None:
    """Each report comes in two pieces."""
    master = MasterStream(0.0)
    written = b""
    wanted = b""
    for line in lines():
        end = max(end for since, end in GROWN if since <= line.at)
        log = Extent(0, end, end, FILE)
        if line.who == "slave":
            data = report(line.offset)
            master.received(data[:cut], log, line.at)
            assert master.received(data[cut:], log, line.at) == line.offset
        else:
            wanted += header(line.offset, line.size)
        written += master.on_tick(line.at)
        while size := master.wanted(log, 32_768):
            written += master.unit(size, line.at)
    assert written == wanted


def reports_of(units: list[tuple[float, bytes]]) -> bytes:
    """What a slave writes that gets these bytes at these moments, and has a tick at each."""
    slave = SlaveStream(0, IncomingRecords(FILE), 5.057)
    written = slave.first(5.057)
    for at, data in units:
        for offset, body in slave.received(data, at):
            written += slave.stored(offset + len(body), at)
        written += slave.on_tick(at)
    return written


def test_a_slave_writes_what_javas_wrote() -> None:
    log = the_log()
    units = [
        (line.at, header(line.offset, line.size) + log[line.offset : line.offset + line.size])
        for line in lines()
        if line.who == "master"
    ]
    wanted = b"".join(report(line.offset) for line in lines() if line.who == "slave")
    assert reports_of(units) == wanted


def small_part() -> bytes:
    """What the master wrote before the big records."""
    log = the_log()
    return b"".join(
        header(line.offset, line.size) + log[line.offset : line.offset + line.size]
        for line in lines()
        if line.who == "master" and line.offset < 1109
    )


def taken(pieces: list[bytes]) -> tuple[bytes, bytes]:
    """What a slave stores that gets these bytes one after the other, and the last that it reports."""
    slave = SlaveStream(0, IncomingRecords(FILE), 5.057)
    stored, written = b"", slave.first(5.057)
    for data in pieces:
        for offset, body in slave.received(data, 6.0):
            assert offset == len(stored)
            assert offset // FILE == (offset + len(body) - 1) // FILE
            stored += body
            written += slave.stored(len(stored), 6.0)
    return stored, written[-8:]


def test_a_slave_takes_it_cut_at_every_byte() -> None:
    data = small_part()
    log = the_log()[:1109]
    for cut in range(len(data)):
        assert taken([data[:cut], data[cut:]]) == (log, report(1109)), cut


@pytest.mark.parametrize("step", [1000, 4096, 65_536, 4 << 20])
def test_a_slave_takes_all_of_it_in_pieces(step: int) -> None:
    log = the_log()
    data = b"".join(
        header(line.offset, line.size) + log[line.offset : line.offset + line.size]
        for line in lines()
        if line.who == "master"
    )
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    assert taken(pieces) == (log[:1_348_694], report(1_348_694))
