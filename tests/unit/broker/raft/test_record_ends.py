"""Where records end in bytes that were cut anywhere."""

from __future__ import annotations

import pytest

from rmq.broker.raft.record_ends import RecordEnds
from rmq.protocol.record import BLANK_MAGIC, MAGIC_V1, MAGIC_V2

_FILE = 400


def record(size: int, magic: int = MAGIC_V1, *, at: int = -1) -> bytes:
    """Bytes as long as that.

    :param at: where it says that it lies.
    """
    head = size.to_bytes(4, "big") + (magic & 0xFFFFFFFF).to_bytes(4, "big")
    return (head + bytes(20) + at.to_bytes(8, "big", signed=True) + bytes(size))[:size]


class Written:
    """A log that grows."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.ends = RecordEnds(_FILE, 0)

    def upto(self, end: int) -> int:
        data, self.at = self.data[self.at : end], end
        self.ends.written(end, data)
        return self.ends.last

    def cut(self, to: int, known: int) -> int:
        self.ends.cut(known)
        self.at = known
        return self.upto(to)


def test_only_whole_records_end() -> None:
    log = Written(record(100) + record(120) + record(90))
    assert [log.upto(end) for end in (7, 8, 99, 100, 219, 221, 310)] == [0, 0, 0, 100, 100, 220, 310]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 8, 9, 50, 130])
def test_records_that_come_in_pieces_of_any_size(step: int) -> None:
    log = Written(record(100) + record(120) + record(8) + record(90) + record(82, BLANK_MAGIC) + record(33))
    for end in (*range(step, 433, step), 433):
        last = log.upto(end)
        assert last == max(known for known in (0, 100, 220, 228, 318, 400, 433) if known <= end)


def test_the_rest_of_a_file_is_a_record_too() -> None:
    log = Written(record(300) + record(100, BLANK_MAGIC) + record(50))
    assert log.upto(450) == 450


@pytest.mark.parametrize("size", [7, 201, (32 << 20) + 1])
def test_a_record_is_no_larger_than_its_file_has_room(size: int) -> None:
    file = 64 << 20  # a record may be as large as half of it
    start = file - 300
    ends = RecordEnds(file, start)
    data = record(100)
    ends.written(start + 100, data)
    assert ends.last == start + 100
    ends.written(start + 110, size.to_bytes(4, "big") + record(12)[4:10])
    assert ends.last == start + 100
    ends.begin(start + 100)
    ends.written(start + 300, record(200))
    assert ends.last == file
    large = RecordEnds(file, 0)
    large.written(100, record(40) + (32 << 20).to_bytes(4, "big") + record(60)[4:])
    assert large.last == 40


def test_a_cut_is_where_a_record_ends_or_behind_the_last_whole_one() -> None:
    log = Written(record(100) + record(120) + record(90))
    for end in (100, 220, 310):
        log.upto(end)
    assert log.cut(220, 220) == 220
    log.ends.committed(220)
    assert log.cut(150, 100) == 100
    assert log.upto(219) == 100
    assert log.upto(310) == 310


def test_a_cut_between_the_records_of_a_span_finds_where_they_end() -> None:
    log = Written(record(100) + record(120) + record(90))
    log.upto(310)
    assert log.cut(220, 0) == 220
    assert log.ends.before(220) == 220


def test_what_is_committed_is_floored_to_what_is_known() -> None:
    log = Written(record(100) + record(120) + record(90))
    for end in (100, 220, 310):
        log.upto(end)
    assert [log.ends.before(at) for at in (99, 100, 219, 220, 1000)] == [0, 100, 100, 220, 310]
    log.ends.committed(220)
    assert log.ends.before(219) == -1
    assert log.ends.before(309) == 220


def spoilt(wrong: bytes) -> bytes:
    """Six records in two files, the second of which begins with something else."""
    made = b"".join(record(size, magic, at=at) for at, size, magic in (
        (0, 100, MAGIC_V1), (100, 100, MAGIC_V1), (200, 100, MAGIC_V2), (300, 60, MAGIC_V1),
    )) + record(40, BLANK_MAGIC) + record(100, at=400) + record(100, at=500)  # fmt: skip
    return made[:100] + wrong + made[100 + len(wrong) :]


#: A size that no record has, one that ends within the next record, and one that ends in nothing; and nothing at all.
WRONG = {"none": b"\xff\0\0\0", "short": b"\0\0\0\x5f", "long": b"\0\0\0\xb0", "zeros": bytes(100)}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("step", [1, 7, 35, 99, 250, 600])
def test_what_is_no_record_costs_itself_however_it_is_cut(wrong: bytes, step: int) -> None:
    """The leader's disk has lost a byte: a member that is sent it comes up to it all the same."""
    data = spoilt(wrong)
    ends = RecordEnds(_FILE, 0)
    for at in range(0, len(data), step):
        ends.written(min(at + step, len(data)), data[at : at + step])
        assert ends.last <= at + step
    assert ends.last == 600
    log = Written(data)
    assert log.upto(600) == 600


@pytest.mark.parametrize("data", [bytes(500), b"\xff" * 500, record(450)[:12] + record(450)[4:] * 2])
def test_where_no_record_follows_none_ends(data: bytes) -> None:
    log = Written(record(100) + data)
    assert [log.upto(end) for end in (250, 600)] == [100, 100]
    assert log.cut(100, 100) == 100
    log.data = record(100) + record(80)
    assert log.upto(180) == 180, "the leader's next word takes its place"
