"""What a master sends is compared before it is stored."""

from __future__ import annotations

import pytest

from rmq.broker.replication import incoming as module
from rmq.broker.replication.incoming import FilesDiffer, IncomingRecords, LogsDiffer
from rmq.testing.simloop import run
from tests.support.scenes.replication import SIZE, filled_log, record_head


@pytest.fixture(scope="module")
def data() -> bytes:
    """A log that ends in its third file."""
    return run(filled_log(90))


def taken(data: bytes, step: int, *, crc: bool, begin: int = 0, at_record: bool = True) -> bytes:
    """Everything that may be stored of ``data``, which arrives in steps that end where files do."""
    incoming = IncomingRecords(SIZE, crc=crc)
    incoming.begin(begin, at_record=at_record)
    found = b""
    at = begin
    while at < len(data):
        end = min(at + step, at - at % SIZE + SIZE, len(data))
        assert incoming.end == at
        found += incoming.take(data[at:end])
        assert incoming.at == begin + len(found)
        at = end
    return found


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("step", [1, 7, 35, 36, 37, 333, 1 << 20])
def test_a_good_log_passes_whole(data: bytes, step: int, crc: bool) -> None:
    assert taken(data, step, crc=crc) == data


@pytest.mark.parametrize("crc", [False, True])
def test_a_stream_from_within_a_record_is_compared_from_the_next_file_on(data: bytes, crc: bool) -> None:
    assert taken(data, 100, crc=crc, begin=50, at_record=False) == data[50:]
    changed = bytearray(data)
    changed[SIZE + 5] ^= 1
    with pytest.raises(LogsDiffer, match=f"offset {SIZE} "):
        taken(bytes(changed), 100, crc=crc, begin=50, at_record=False)


def records(data: bytes) -> list[tuple[int, int]]:
    """Offset and size of each record of the first file."""
    found = []
    at = 0
    while data[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
        size = int.from_bytes(data[at : at + 4], "big")
        found.append((at, size))
        at += size
    return found


def stored_before(refusal: str, data: bytearray, step: int, *, crc: bool) -> bytes:
    """What of the first file is stored before the rest is refused."""
    incoming = IncomingRecords(SIZE, crc=crc)
    incoming.begin(0, at_record=True)
    found: list[bytes] = []

    def arrive() -> None:
        for lo in range(0, SIZE, step):
            found.append(incoming.take(bytes(data[lo : min(lo + step, SIZE)])))

    with pytest.raises(LogsDiffer, match=refusal):
        arrive()
    return b"".join(found)


@pytest.mark.parametrize("step", [1, 50, 1 << 20])
@pytest.mark.parametrize("place", [0, 4, 7, 28, 35])
def test_a_changed_head_is_never_stored(data: bytes, place: int, step: int) -> None:
    at = records(data)[3][0]
    changed = bytearray(data)
    changed[at + place] ^= 0x40
    found = stored_before(f"offset {at} ", changed, step, crc=False)
    assert found == data[: len(found)]
    assert len(found) <= at


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("step", [1, 35, 333, 1 << 20])
@pytest.mark.parametrize(("place", "size"), [(0, 1), (3, 1), (4, 1), (28, 1), (100, 1), (0, 700)])
def test_what_comes_a_second_time_costs_itself_alone(data: bytes, place: int, size: int, step: int, crc: bool) -> None:
    """It is so on the master's disk: who asks for it again gets the same."""
    at = records(data)[3][0]
    changed = bytearray(data)
    changed[at + place : at + place + size] = bytes(0xFF ^ byte for byte in data[at + place : at + place + size])
    incoming = IncomingRecords(SIZE, crc=crc)
    incoming.begin(0, at_record=True)
    found = b""
    for connection in range(2):
        assert incoming.at == len(found)
        incoming.begin(len(found), at_record=False)
        try:
            while (asked := incoming.end) < SIZE:
                found += incoming.take(bytes(changed[asked : min(asked + step, SIZE)]))
        except LogsDiffer:
            assert connection == 0
            assert len(found) <= at or place == 3
    assert found == changed[:SIZE]


def test_another_word_at_that_place_is_refused_again(data: bytes) -> None:
    at = records(data)[3][0]
    incoming = IncomingRecords(SIZE)
    for number in range(3):
        incoming.begin(at, at_record=True)
        with pytest.raises(LogsDiffer):
            incoming.take(bytes([number]) * 40 + data[at + 40 : SIZE])


def test_where_no_record_follows_it_is_refused_in_the_end(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LOST", 1000)
    incoming = IncomingRecords(SIZE)
    with pytest.raises(LogsDiffer):
        incoming.take(b"\xff" * 500)
    incoming.begin(0, at_record=True)
    for _ in range(10):
        assert incoming.take(b"\xff" * 100) == b""
    with pytest.raises(LogsDiffer):
        incoming.take(b"\xff")


@pytest.mark.parametrize("step", [1, 64, 1 << 20])
def test_with_checksums_a_changed_body_is_never_stored(data: bytes, step: int) -> None:
    at = records(data)[2][0]
    changed = bytearray(data)
    changed[at + 100] ^= 1
    assert taken(bytes(changed), step, crc=False) == changed
    found = stored_before(f"offset {at} ", changed, step, crc=True)
    assert found == data[: len(found)]
    assert len(found) <= at


def test_the_next_connection_goes_on_within_the_record(data: bytes) -> None:
    incoming = IncomingRecords(SIZE)
    incoming.begin(0, at_record=True)
    (second, size), (third, _) = records(data)[1:3]
    assert incoming.take(data[: second + size + 20]) == data[:third]
    # What was kept back is asked for again; nothing is known from the disk, and nothing has to be.
    incoming.begin(third, at_record=False)
    with pytest.raises(LogsDiffer):
        incoming.take(bytes(40))


def test_a_log_of_the_same_length_that_is_another_one_is_noticed(data: bytes) -> None:
    other = run(filled_log(90, first=200))
    offset = records(data)[1][0]
    incoming = IncomingRecords(SIZE)
    incoming.begin(offset, at_record=True)
    with pytest.raises(LogsDiffer):
        incoming.take(other[offset:SIZE])


def test_no_record_is_kept_back_that_is_larger_than_any() -> None:
    incoming = IncomingRecords(1 << 30, crc=True)
    incoming.begin(0, at_record=True)
    with pytest.raises(LogsDiffer, match="no record of this log"):
        incoming.take(record_head(0, (32 << 20) + 1)[:1000])
    assert incoming.end == 0


def test_what_waits_for_the_rest_of_a_record_is_not_copied_with_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(module, "_head", lambda data, at: looks.append(at) or head(data, at))
    head = module.fields("size", "magic", "physical_offset")
    incoming = IncomingRecords(1 << 20, crc=True)
    incoming.begin(0, at_record=True)
    record = record_head(0, 5000)
    for at in range(4999):
        assert incoming.take(record[at : at + 1]) == b""
    assert len(looks) == 1


@pytest.mark.parametrize("step", [1, 333, 1 << 20])
@pytest.mark.parametrize("size", [SIZE + 4096, 2 * SIZE])
def test_files_of_another_size_are_no_other_log(data: bytes, size: int, step: int) -> None:
    last = records(data)[-1]
    rest = last[0] + last[1]

    def first_refused(file_size: int, sent: bytes) -> str:
        incoming = IncomingRecords(file_size)
        incoming.begin(0, at_record=True)
        try:
            for at in range(0, len(sent), step):
                incoming.take(sent[at : at + step])
        except FilesDiffer as refused:
            assert incoming.at <= rest
            return str(refused)
        return "nothing"

    assert first_refused(size, data[:SIZE]).startswith(f"the master's file ends at {SIZE}, ")
    longer = data[:rest] + record_head(rest, SIZE - rest + 500)
    assert first_refused(SIZE, longer).startswith(f"the master's file does not end at {SIZE}, ")
