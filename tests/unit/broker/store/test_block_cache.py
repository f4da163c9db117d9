"""Pulls from blocks of the page cache: the right bytes, nothing that may still change, bounded memory."""

import random

from rmq.broker.store.block_cache import BLOCK, BlockCache

LOG = random.Random(7).randbytes(5 * BLOCK + 1000)


class Disk:
    def __init__(self, cold: frozenset[int] = frozenset()) -> None:
        self.reads: list[int] = []
        self.cold = cold

    def fill(self, room: bytearray, offset: int) -> bool:
        self.reads.append(offset // BLOCK)
        room[:] = LOG[offset : offset + len(room)]
        return offset // BLOCK not in self.cold


def test_spans_within_and_across_blocks() -> None:
    disk = Disk()
    cache = BlockCache(disk.fill)
    spans = [(10, 20), (BLOCK - 5, 10), (BLOCK + 5, 2 * BLOCK), (4 * BLOCK - 1, 1), (4 * BLOCK, 7)]
    assert cache.views(spans, len(LOG)) == [LOG[at : at + size] for at, size in spans]
    assert disk.reads == [0, 1, 2, 3, 4]
    assert cache.views(spans, len(LOG)) is not None
    assert len(disk.reads) == 5


def test_a_block_that_still_grows_is_not_kept() -> None:
    disk = Disk()
    cache = BlockCache(disk.fill)
    assert cache.views([(5 * BLOCK, 10)], len(LOG)) is None
    assert cache.views([(0, 10)], BLOCK - 1) is None
    assert disk.reads == []


def test_a_cold_block_is_left_to_the_caller() -> None:
    cache = BlockCache(Disk(frozenset({1})).fill)
    assert cache.views([(0, 10), (BLOCK, 10)], len(LOG)) is None
    assert cache.views([(0, 10), (2 * BLOCK, 10)], len(LOG)) == [LOG[:10], LOG[2 * BLOCK : 2 * BLOCK + 10]]


def test_a_block_in_use_is_not_the_one_that_makes_room() -> None:
    cache = BlockCache(Disk().fill, limit=3 * BLOCK)
    for number in (1, 4, 0):
        cache.views([(number * BLOCK, 1)], len(LOG))
    # Block 1 is the oldest one kept, and the same call needs block 2: that must not be read over block 1.
    spans = [(2 * BLOCK - 9, 5), (2 * BLOCK + 3, 5)]
    assert cache.views(spans, len(LOG)) == [LOG[at : at + size] for at, size in spans]


def test_the_oldest_block_makes_room() -> None:
    disk = Disk()
    cache = BlockCache(disk.fill, limit=2 * BLOCK)
    for number in (0, 1, 2, 1, 0):
        cache.views([(number * BLOCK, 1)], len(LOG))
    assert disk.reads == [0, 1, 2, 0]
    cache.clear()
    cache.views([(0, 1)], len(LOG))
    assert disk.reads[-1] == 0
    assert len(disk.reads) == 5


def test_spans_that_need_more_blocks_than_are_kept_are_left_to_the_caller() -> None:
    disk = Disk()
    cache = BlockCache(disk.fill, limit=2 * BLOCK)
    assert cache.views([(0, 1), (BLOCK, 1), (2 * BLOCK, 1)], len(LOG)) is None
    # Within what is kept no view is written over by a later block of the same call.
    cache.views([(2 * BLOCK, 1)], len(LOG))
    spans = [(10, 5), (BLOCK - 2, 4)]
    assert cache.views(spans, len(LOG)) == [LOG[at : at + size] for at, size in spans]
