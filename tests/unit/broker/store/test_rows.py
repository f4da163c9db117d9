"""Rows are the same whether they are packed one by one or many at once."""

import struct

import pytest

from rmq.broker.store.rows import Rows


@pytest.mark.parametrize("count", [0, 1, 64, 65, 128, 1000])
def test_any_number_of_rows(count: int) -> None:
    rows = [(n, n << 40, -n, n % 7) for n in range(count)]
    packed = Rows("iqii").pack([field for row in rows for field in row])
    assert list(struct.iter_unpack(">iqii", packed)) == rows
