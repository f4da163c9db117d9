"""Token buckets by name."""

from __future__ import annotations

import pytest

from rmq.remoting.buckets import Buckets


def test_a_bucket_fills_at_its_rate_and_no_further() -> None:
    now = [100.0]
    buckets = Buckets(lambda: now[0])
    assert buckets.level("a", 2, 10) == 10
    buckets.take("a", 13, 2, 10)
    assert (buckets.level("a", 2, 10), buckets.level("b", 2, 10)) == (-3, 10)
    now[0] += 2
    assert buckets.level("a", 2, 10) == 1
    assert buckets.level("a", 0.5, 10) == -2, "another rate counts at once"
    now[0] += 100
    assert buckets.level("a", 2, 10) == 10


@pytest.mark.parametrize("asked", [1.0, 5.0])
def test_strangers_names_are_bounded(asked: float) -> None:
    now = [0.0]
    buckets = Buckets(lambda: now[0], most=100)
    for number in range(1_000):
        buckets.take(f"n{number}", asked, 1, 4)
        now[0] += 0.1
        assert len(buckets) <= 100
    assert buckets.level("n999", 1, 4) < 4
