"""Pieces of a buffer as an array: what Python's own slices say, in memory of its own."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")
np = pytest.importorskip("numpy")

from rmq.spark.arrow.pieces import cut  # noqa: E402 - needs pyarrow

TEXT = b"the quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize(
    "places",
    [
        [],
        [(4, 9)],
        [(0, 43)],
        [(0, 4), (10, 14), (20, 24), (30, 34)],  # alike, to the byte
        [(3, 43)],
        [(1, 15), (15, 29), (29, 43)],  # alike, without anything between them, up to the end
        [(0, 4), (10, 14), (20, 24), (31, 35)],  # of one width, but not of one distance
        [(0, 4), (10, 14), (20, 25)],  # of one distance, but not of one width
        [(0, 0), (10, 10), (43, 43)],
        [(0, 0), (10, 10), (20, 20), (30, 30)],
        [(0, 0), (5, 9), (9, 9)],
    ],
)
@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_pieces_are_slices_that_stay_when_the_buffer_is_used_again(places: list[tuple[int, int]], kind: object) -> None:
    buffer = bytearray(TEXT)
    begins, ends = (np.array([place[side] for place in places], np.int64) for side in (0, 1))
    found = cut(buffer, begins, ends, kind)
    buffer[:] = b"?" * len(buffer)
    found.validate(full=True)
    assert found.type == kind
    assert found.cast(pa.binary()).to_pylist() == [TEXT[begin:end] for begin, end in places]
