"""A master's end of the stream, event by event."""

from __future__ import annotations

import pytest

from rmq.broker.replication.master import Extent, MasterStream, Refused, Why
from rmq.broker.replication.wire import header, report

FILE = 1000
LOG = Extent(2000, 5500, 5500, FILE)


def begun(at: int, log: Extent = LOG, **options: bool) -> MasterStream:
    stream = MasterStream(100.0, **options)
    assert stream.received(report(at), log, 100.0) == at
    return stream


def refused(stream: MasterStream, data: bytes, log: Extent = LOG) -> Why:
    with pytest.raises(Refused) as error:
        stream.received(data, log, 100.0)
    return error.value.why


@pytest.mark.parametrize(("at", "start"), [(0, 5000), (2000, 2000), (2345, 2345), (5500, 5500)])
def test_where_it_begins(at: int, start: int) -> None:
    assert begun(at).next == start


@pytest.mark.parametrize(
    ("log", "start", "whole"),
    [(Extent(0, 0, 0, FILE), 0, 0), (Extent(0, 700, 700, FILE), 0, 0), (Extent(3000, 5000, 5000, FILE), 5000, 3000)],
)
def test_where_an_empty_slave_begins(log: Extent, start: int, whole: int) -> None:
    assert begun(0, log).next == start
    assert begun(0, log, from_first_file=True).next == whole


def test_nothing_is_sent_before_the_first_report() -> None:
    stream = MasterStream(100.0)
    assert (stream.on_tick(119.9), stream.wanted(LOG, 100), stream.due) == (b"", 0, 120)
    assert stream.received(b"\0\0\0\0", LOG, 110) == -1
    # Four bytes are no report: the time of the first one is over all the same.
    with pytest.raises(Refused) as error:
        stream.on_tick(120)
    assert error.value.why is Why.SILENT


def test_units_end_where_files_end() -> None:
    stream = begun(4900)
    sizes = []
    while size := stream.wanted(LOG, 300):
        assert stream.unit(size, 101) == header(5500 - (5500 - 4900 - sum(sizes)), size)
        sizes.append(size)
    assert sizes == [100, 300, 200]
    assert (stream.next, stream.sent, stream.due) == (5500, 600, 106)


def test_the_last_report_counts_and_the_highest_stays() -> None:
    stream = begun(4900)
    stream.unit(600, 101)
    assert stream.received(report(5000) + report(5300) + report(5100), LOG, 102) == 5300
    assert stream.received(report(5200), LOG, 103) == 5300
    assert stream.last_read == 103


def test_reports_cut_at_every_byte() -> None:
    data = report(4900) + report(5000) + report(5200)
    for cut in range(1, len(data)):
        stream = MasterStream(100.0)
        stream.received(data[:8], LOG, 100)
        stream.unit(600, 100)
        for piece in (data[8:cut], data[max(cut, 8) :]):
            stream.received(piece, LOG, 101)
        assert stream.acked == 5200


@pytest.mark.parametrize(
    ("at", "why"), [(-1, Why.STRANGE), (5501, Why.AHEAD), (1 << 62, Why.AHEAD), (1999, Why.BEHIND), (1, Why.BEHIND)]
)
def test_a_first_report_that_is_refused(at: int, why: Why) -> None:
    assert refused(MasterStream(100.0), report(at)) is why


def test_who_has_what_this_master_never_gave_away_has_another_log() -> None:
    log = Extent(0, 5500, 5000, FILE)
    assert refused(MasterStream(100.0), report(5100), log) is Why.AHEAD
    assert begun(5000, log).next == 5000


def test_a_slave_of_the_newer_stream_is_told_apart() -> None:
    handshake = bytes.fromhex("00000001000000000000000000000002")
    log = Extent(0, 1 << 40, 1 << 40, 1 << 30)
    assert refused(MasterStream(100.0), handshake, log) is Why.STRANGE
    # The offset by itself is one like others.
    assert begun(1 << 32, log).next == 1 << 32


@pytest.mark.parametrize(("at", "why"), [(-5, Why.STRANGE), (5001, Why.NOT_SENT), (5501, Why.NOT_SENT)])
def test_a_later_report_that_is_refused(at: int, why: Why) -> None:
    stream = begun(4900)
    stream.unit(100, 101)
    assert refused(stream, report(at)) is why
    assert stream.acked == 4900


def test_an_empty_slave_acknowledges_nothing_that_it_was_not_sent() -> None:
    assert refused(begun(0), report(5000)) is Why.NOT_SENT


def test_reports_without_cause_end_it_before_they_are_looked_at() -> None:
    stream = begun(4900)
    for _ in range(500):
        stream.unit(1, 101)
    many = report(4900) * 700
    assert stream.received(many, LOG, 101) == 4900
    assert stream.received(many + report(4900) * 190, LOG, 101) == 4900
    assert refused(stream, report(4900) * 20) is Why.STRANGE
    late = begun(4900)
    for seconds in range(1, 100):  # signs of life, however many
        late.received(report(4900) * 100, LOG, 100 + seconds)
    assert refused(begun(4900), report(9000) * 2000) is Why.STRANGE, "which are wrong, too"


def test_what_is_deleted_or_taken_back_under_a_slave_ends_its_stream() -> None:
    stream = begun(2500)
    with pytest.raises(Refused) as error:
        stream.wanted(LOG._replace(start=3000), 100)
    assert error.value.why is Why.BEHIND
    with pytest.raises(Refused) as error:
        stream.wanted(Extent(0, 2400, 2400, FILE), 100)
    assert error.value.why is Why.AHEAD


def test_heartbeats_tell_what_comes_next_and_silence_ends_it() -> None:
    stream = begun(5500)
    assert stream.on_tick(104.9) == b""
    assert stream.on_tick(105) == header(5500, 0)
    assert (stream.on_tick(109.9), stream.due) == (b"", 110)
    # A clock that jumps ahead: one heartbeat, not all that were missed.
    assert stream.on_tick(119) == header(5500, 0)
    assert stream.on_tick(119.5) == b""
    with pytest.raises(Refused):
        stream.on_tick(120)
    # Time that seems to go back is no silence.
    assert begun(5500).on_tick(50) == b""
