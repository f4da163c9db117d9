"""Bloom positions: those of Java, and what sizes are allowed."""

import pytest

from rmq.filter.bloom import Bloom, murmur3


def test_the_hash_is_murmur3() -> None:
    # Known answers of the x64 variant, and lengths on both sides of a block.
    assert murmur3(b"") == 0
    assert murmur3(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
    assert len({murmur3(b"x" * size) for size in range(40)}) == 40


def test_positions_are_those_that_java_wrote() -> None:
    """From consumerFilter.json of a Java 4.9.4 broker with its defaults."""
    bloom = Bloom()
    assert (bloom.m, bloom.k) == (112, 3)
    assert bloom.positions("G#T") == (24, 26, 83)
    assert bloom.positions("G#U") == (66, 62, 85)
    # As it lay in consumequeue_ext.
    assert bloom.bit_map(bloom.positions("G#T")) == bytes.fromhex("0000000500000000000008000000")


@pytest.mark.parametrize(
    ("rate", "expected", "m", "k"), [(10, 128, 616, 4), (50, 1, 8, 1), (99, 1, 8, 1), (1, 1, 16, 7)]
)
def test_sizes_follow_rate_and_number(rate: int, expected: int, m: int, k: int) -> None:
    bloom = Bloom(rate, expected)
    assert (bloom.m, bloom.k) == (m, k)
    assert all(0 <= position < m for position in bloom.positions("a group#a topic"))


@pytest.mark.parametrize(("rate", "expected"), [(0, 32), (100, 32), (20, 0)])
def test_sizes_that_cannot_be_are_refused(rate: int, expected: int) -> None:
    with pytest.raises(ValueError, match=r"maxErrorRate|expectConsumerNum"):
        Bloom(rate, expected)
