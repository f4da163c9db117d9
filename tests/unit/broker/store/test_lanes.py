"""Numbers side by side: what is found of all at once is what is found of each."""

from __future__ import annotations

import random
import sys
from array import array

import pytest

from rmq.broker.store.lanes import are_in_order, lanes, numbers, same, small

MOST = (1 << 31) - 1


def side_by_side(values: list[int]) -> int:
    words = array("I", values)
    if sys.byteorder == "little":
        words.byteswap()
    return lanes(words)


@pytest.mark.parametrize("seed", range(30))
def test_all_at_once_is_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 9)
    kinds = ([0, 1, 90, 91, 92, MOST - 1, MOST], [MOST, MOST + 1, (1 << 32) - 1, 91], range(88, 2000))
    values = [rng.choice(kinds[seed % 3]) for _ in range(count)]
    found = side_by_side(values)
    assert sorted(numbers(found, count)) == sorted(values)
    assert small(found, count) == all(value <= MOST for value in values)
    assert small(found, count, 91) == all(91 <= value <= MOST for value in values)
    if small(found, count):
        if seed % 2:
            values.sort()
        assert are_in_order(side_by_side(values), count) == (values == sorted(values))
        others = [rng.randint(0, MOST) for _ in values]
        sums = [one + other for one, other in zip(others, values, strict=True)]
        assert side_by_side(others) + side_by_side(values) == side_by_side(sums)


def test_one_number_in_all_lanes() -> None:
    assert same(7, 3) == side_by_side([7, 7, 7])
    assert are_in_order(same(MOST, 4), 4)
    assert are_in_order(side_by_side([5]), 1)
