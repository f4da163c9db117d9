"""Where records begin, found record by record and for many of one size at once."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

from rmq.protocol.errors import ProtocolError
from rmq.protocol.record import FIXED_SIZE
from rmq.spark.arrow.pieces import record_starts


def made(sizes: list[int], *, before: int = 0) -> tuple[bytearray, list[int]]:
    """Records of these sizes, filled with what could be taken for a size, and where they begin."""
    data = bytearray(before)
    starts = []
    for size in sizes:
        starts.append(len(data))
        data += size.to_bytes(4, "big") + bytes((sizes[0] & 0xFF,)) * (size - 4)
    return data, starts


@pytest.mark.parametrize("seed", range(40))
def test_each_beginning_is_found(seed: int) -> None:
    chance = random.Random(seed)
    sizes: list[int] = []
    while len(sizes) < 300:
        sizes += [FIXED_SIZE + chance.randrange(300)] * chance.choice((1, 1, 2, 8, 9, 10, 11, 40, 100))
    data, starts = made(sizes, before=7)
    assert record_starts(data, 7, len(data), "a broker") == starts
    # What lies behind them in the buffer is no record of theirs, though it looks like one.
    assert record_starts(data + data, 7, len(data), "a broker") == starts


@pytest.mark.parametrize("count", [1, 2, 8, 9, 10, 11, 500])
@pytest.mark.parametrize("missing", [1, 4, 50, FIXED_SIZE - 1])
def test_a_last_record_that_is_cut_off_is_refused(count: int, missing: int) -> None:
    data, _ = made([FIXED_SIZE] * count)
    for buffer in (data, data[: len(data) - missing]):  # the rest may be there, or not
        with pytest.raises(ProtocolError, match="a broker sent a message record that is cut off"):
            record_starts(buffer, 0, len(data) - missing, "a broker")


@pytest.mark.parametrize("at", [0, 5, 9, 10, 30, 49])
@pytest.mark.parametrize("size", [0, -1, -(2**31), FIXED_SIZE - 1])
def test_a_size_that_is_none_is_refused(at: int, size: int) -> None:
    data, starts = made([FIXED_SIZE + 10] * 50)
    data[starts[at] : starts[at] + 4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolError, match=f"a broker sent a message record of {size} bytes"):
        record_starts(data, 0, len(data), "a broker")


@pytest.mark.parametrize("at", [0, 5, 9, 10, 30, 49])
def test_a_size_beyond_the_end_is_refused(at: int) -> None:
    data, starts = made([FIXED_SIZE] * 50)
    data[starts[at] : starts[at] + 4] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="cut off"):
        record_starts(data, 0, len(data), "a broker")
