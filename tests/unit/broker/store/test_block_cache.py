"""Pulls from blocks of the page cache: the right bytes, nothing that may still change, bounded memory."""

import random

from rmq.broker.store.block_cache import BLOCK, BlockCache

LOG = random.Random(7).randbytes(5 * BLOCK + 1000)


class Disk:
    def __init__(self, cold: frozenset[int] = frozenset()) -> None:
        self.reads: list[int] = []
        self.cold = cold

    def load(self, offset: int, size: int) -> bytes | None:
        self.reads.append(offset // BLOCK)
        return None if offset // BLOCK in self.cold else LOG[offset : offset + size]


def test_spans_within_and_across_blocks() -> None:
    disk = Disk()
    cache = BlockCache(disk.load)
    spans = [(10, 20), (BLOCK - 5, 10), (BLOCK + 5, 2 * BLOCK), (4 * BLOCK - 1, 1), (4 * BLOCK, 7)]
    assert cache.read_many(spans, len(LOG)) == [LOG[at : at + size] for at, size in spans]
    assert disk.reads == [0, 1, 2, 3, 4]
    assert cache.read_many(spans, len(LOG)) is not None
    assert len(disk.reads) == 5


def test_a_block_that_still_grows_is_not_kept() -> None:
    disk = Disk()
    cache = BlockCache(disk.load)
    assert cache.read_many([(5 * BLOCK, 10)], len(LOG)) is None
    assert cache.read_many([(0, 10)], BLOCK - 1) is None
    assert disk.reads == []


def test_a_cold_block_is_left_to_the_caller() -> None:
    cache = BlockCache(Disk(frozenset({1})).load)
    assert cache.read_many([(0, 10), (BLOCK, 10)], len(LOG)) is None
    assert cache.read_many([(0, 10), (2 * BLOCK, 10)], len(LOG)) == [LOG[:10], LOG[2 * BLOCK : 2 * BLOCK + 10]]


def test_the_oldest_block_makes_room() -> None:
    disk = Disk()
    cache = BlockCache(disk.load, limit=2 * BLOCK)
    for number in (0, 1, 2, 1, 0):
        cache.read_many([(number * BLOCK, 1)], len(LOG))
    assert disk.reads == [0, 1, 2, 0]
    cache.clear()
    cache.read_many([(0, 1)], len(LOG))
    assert disk.reads[-1] == 0
    assert len(disk.reads) == 5
