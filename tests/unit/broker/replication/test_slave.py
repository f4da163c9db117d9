"""A slave's end of the stream, event by event."""

from __future__ import annotations

import pytest

from rmq.broker.replication.incoming import IncomingRecords, LogsDiffer
from rmq.broker.replication.slave import SlaveStream
from rmq.broker.replication.wire import header, report
from rmq.protocol.errors import ReplicationError
from tests.support.scenes.replication import record_head as record

SIZE = 1 << 20


def stream(end: int, now: float = 100.0, tail: bytes = b"") -> SlaveStream:
    incoming = IncomingRecords(SIZE)
    if end:
        incoming.begin(end, at_record=True)
    return SlaveStream(end, incoming, now, tail=tail)


def unit(offset: int, body: bytes) -> bytes:
    return header(offset, len(body)) + body


def test_what_it_has_before_its_end_is_compared_before_anything_is_stored_or_acknowledged() -> None:
    have = record(900, 100)

    def one(tail: bytes = have[1:]) -> SlaveStream:
        return stream(1000, tail=tail)

    after = record(1000, 100)
    for cut in range(901, 1101):
        slave, taken, reports = one(), b"", b""
        assert slave.first(100) == report(901)
        for lo, hi in ((901, cut), (cut, 1100)):
            for offset, body in slave.received(unit(lo, (have + after)[lo - 900 : hi - 900]), 101) if hi > lo else ():
                assert offset == 1000 + len(taken)
                taken += body
            reports += slave.stored(1000 + len(taken), 101)
            assert bool(reports) == (hi >= 1000)
        assert (taken, slave.reported) == (after, 1100)
    for sent in (have[1:20] + b"!", b"!" + have[2:] + after):
        with pytest.raises(LogsDiffer, match="have parted"):
            list(one().received(unit(901, sent), 101))
    with pytest.raises(LogsDiffer, match="from 901 on and sends it from 1000 on"):
        list(one().received(unit(1000, after), 101))
    # A master that has no more than half of it says so with its heartbeats.
    slave = one()
    assert list(slave.received(unit(901, have[1:50]) + header(950, 0), 101)) == []
    assert slave.on_tick(106) == report(901)
    with pytest.raises(LogsDiffer, match="it has what its master has not"):
        list(slave.received(header(950, 0), 106))


def test_it_reports_at_once_and_what_comes_together_is_stored_and_reported_as_one() -> None:
    slave = stream(1000)
    assert slave.first(100) == report(1000)
    both = unit(1000, record(1000, 100)) + unit(1100, record(1100, 100))
    reports = b""
    for offset, body in slave.received(both, 101):
        reports += slave.stored(offset + len(body), 101)
    assert reports == report(1200)
    assert (slave.reported, slave.taken, slave.due) == (1200, 200, 106)


def test_what_came_before_another_log_is_stored() -> None:
    slave = stream(1000)
    bad = unit(1000, record(1000, 100)) + unit(1100, record(1100, 100)) + unit(1300, record(1300, 100))
    stored = slave.received(bad, 101)
    assert next(stored) == (1000, record(1000, 100) + record(1100, 100))
    with pytest.raises(LogsDiffer, match="goes on at 1300"):
        next(stored)


def test_what_lies_in_two_files_is_stored_in_two_pieces() -> None:
    slave = stream(SIZE - 100)
    both = unit(SIZE - 100, record(SIZE - 100, 100)) + unit(SIZE, record(SIZE, 100))
    assert [offset for offset, _ in slave.received(both, 101)] == [SIZE - 100, SIZE]


def test_nothing_is_reported_that_was_not_stored() -> None:
    slave = stream(1000)
    assert list(slave.received(unit(1000, record(1000, 100)), 101)) == [(1000, record(1000, 100))]
    assert slave.on_tick(120) == report(1000)
    assert slave.stored(1000, 120) == b""


def test_signs_of_life_come_after_5_s_without_a_report_and_silence_ends_it() -> None:
    slave = stream(1000)
    slave.first(100)
    assert (slave.on_tick(104.9), slave.due) == (b"", 105)
    assert slave.on_tick(105) == report(1000)
    assert slave.on_tick(110) == report(1000)
    assert list(slave.received(header(1000, 0), 115)) == []
    # A clock that jumps ahead: one report, not all that were missed.
    assert slave.on_tick(134.9) == report(1000)
    with pytest.raises(ReplicationError, match="nothing for 20 s"):
        slave.on_tick(135)


def test_an_empty_slave_begins_where_its_master_begins() -> None:
    slave = stream(0)
    assert slave.first(100) == report(0)
    assert list(slave.received(header(3 * SIZE, 0), 101)) == []
    assert list(slave.received(unit(3 * SIZE, record(3 * SIZE, 91)), 101)) == [(3 * SIZE, record(3 * SIZE, 91))]
    with pytest.raises(LogsDiffer):
        list(slave.received(header(3 * SIZE, 0), 101))


@pytest.mark.parametrize("offset", [100, 3 * SIZE + 100, 3 * SIZE - 91])
def test_an_empty_slave_begins_with_a_file(offset: int) -> None:
    """What stood before its first message in the file would be zeros, and where a log ends the next start cuts it."""
    slave = stream(0)
    with pytest.raises(ReplicationError, match=f"begins to send at {offset}, .*mappedFileSizeCommitLog={SIZE}: set"):
        list(slave.received(unit(offset, record(offset, 91)), 101))


@pytest.mark.parametrize("offset", [999, 1001, 0, 1 << 40])
@pytest.mark.parametrize("body", [b"", b"x"])
def test_a_master_that_goes_on_elsewhere_is_left(offset: int, body: bytes) -> None:
    with pytest.raises(LogsDiffer, match=f"goes on at {offset}, and this slave's log ends at 1000"):
        list(stream(1000).received(unit(offset, body), 101))


def test_what_came_before_a_bad_unit_is_kept() -> None:
    slave = stream(1000)
    good = record(1000, 100)
    arriving = slave.received(unit(1000, good) + unit(1200, b"x"), 101)
    assert next(arriving) == (1000, good)
    with pytest.raises(LogsDiffer):
        next(arriving)
