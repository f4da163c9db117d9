"""Units where they were received: cut anywhere, longer than the memory they come into, and none."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rmq.broker.replication.unit_buffer import UnitBuffer
from rmq.broker.replication.wire import LARGEST_BODY, header
from rmq.protocol.errors import ReplicationError

UNITS = [(0, b""), (0, b"abc"), (3, b"x" * 300), (303, b""), (1 << 40, b"z"), (7, b"y" * 40)]
Unit = tuple[int, bytes]


def stream(units: list[Unit]) -> bytes:
    return b"".join(header(offset, len(body)) + body for offset, body in units)


def receive(buffer: UnitBuffer, data: bytes) -> list[Unit]:
    """As a loop does: as much at a time as there is room for."""
    found: list[Unit] = []
    while data:
        room = buffer.room()
        part, data = data[: len(room)], data[len(room) :]
        room[: len(part)] = part
        found += [(offset, bytes(body)) for offset, body in buffer.units(len(part))]
    return found


def size_of(buffer: UnitBuffer) -> int:
    return len(buffer._memory)


@pytest.mark.parametrize("size", [16, 64, 312, 4096])
def test_units_cut_at_every_byte(size: int) -> None:
    data = stream(UNITS)
    for cut in range(len(data) + 1):
        buffer = UnitBuffer(size)
        assert receive(buffer, data[:cut]) + receive(buffer, data[cut:]) == UNITS
        assert size_of(buffer) == len(buffer.room()) == size


@pytest.mark.parametrize("size", [16, 100, 4096])
@pytest.mark.parametrize("step", [1, 2, 11, 13, 57])
def test_units_in_small_pieces(size: int, step: int) -> None:
    data, buffer = stream(UNITS * 3), UnitBuffer(size)
    cuts = [*range(0, len(data), step), len(data)]
    assert [unit for lo, hi in pairwise(cuts) for unit in receive(buffer, data[lo:hi])] == UNITS * 3


def test_what_is_taken_makes_room_at_the_front() -> None:
    buffer = UnitBuffer(100)
    memory = buffer._memory
    for _ in range(50):
        assert receive(buffer, stream([(1, b"a" * 60)])) == [(1, b"a" * 60)]
        assert len(buffer.room()) == 100
    # Never all of it at once: what is left goes to the front when it has no room where it is.
    data = stream([(number, b"b" * 30) for number in range(50)])
    found: list[Unit] = []
    for at in range(0, len(data), 20):
        found += receive(buffer, data[at : at + 20])
        have = at + 20 - 42 * len(found)
        assert len(buffer.room()) >= (42 if have >= 12 else 12) - have, "the rest of a unit comes in one piece"
    assert found == [(number, b"b" * 30) for number in range(50)]
    assert buffer._memory is memory


def test_a_body_lies_where_it_was_received() -> None:
    buffer = UnitBuffer(100)
    data = stream([(5, b"abc"), (8, b"defg")])
    room = buffer.room()
    room[: len(data)] = data
    (_, one), (_, other) = buffer.units(len(data))
    assert one.obj is other.obj is room.obj


def test_a_unit_longer_than_the_memory_has_its_own_until_it_is_taken() -> None:
    buffer = UnitBuffer(100)
    long = [(1, b"l" * 5000), (2, b"short"), (3, b"m" * 300)]
    data = stream(long)
    assert receive(buffer, data[:50]) == []
    assert size_of(buffer) == 100, "a size that is only said takes no memory"
    assert receive(buffer, data[50:5000]) == []
    assert size_of(buffer) == 5012
    assert receive(buffer, data[5000:5014]) == long[:1]
    assert size_of(buffer) == 100
    assert receive(buffer, data[5014:]) == long[1:]
    assert size_of(buffer) == 100


def test_the_longest_unit() -> None:
    buffer = UnitBuffer(64)
    data = stream([(9, bytes(LARGEST_BODY)), (1, b"x")])
    assert receive(buffer, data) == [(9, bytes(LARGEST_BODY)), (1, b"x")]
    assert size_of(buffer) == 64


def test_there_is_more_room_once_what_is_there_is_taken() -> None:
    buffer = UnitBuffer(32)
    data = stream([(1, b"a" * 25), (2, b"b" * 200)])
    assert receive(buffer, data[:30]) == []
    buffer.widen(1000)
    assert receive(buffer, data[30:60]) == [(1, b"a" * 25)]
    assert size_of(buffer) == 1000
    assert receive(buffer, data[60:]) == [(2, b"b" * 200)]
    assert len(buffer.room()) == 1000


@pytest.mark.parametrize(
    "start",
    [header(0, -1), header(0, LARGEST_BODY + 1), header(-1, 0), header(-(1 << 63), 5), b"\xff" * 12,
     header((1 << 62) + 1, 0)],
)  # fmt: skip
def test_what_nobody_sends_is_refused_before_there_is_room_for_it(start: bytes) -> None:
    buffer = UnitBuffer(64)
    assert receive(buffer, stream([(1, b"good")])) == [(1, b"good")]
    with pytest.raises(ReplicationError, match="no HA stream"):
        receive(buffer, start + bytes(100))
    assert size_of(buffer) == 64
