"""Entries as another index has them: what they put is what their hashes and offsets put."""

from __future__ import annotations

import random
from typing import Self

import pytest

from rmq.broker.store.index.file import INDEX_ENTRY, IndexFile

SLOTS, CAPACITY = 7, 60
#: About where the upper half of an offset changes.
FAR = (1 << 32) - 600


def made() -> IndexFile:
    file = IndexFile("1", "/1", SLOTS, CAPACITY)
    file.open_slots()
    return file


def entries_of(hashes: list[tuple[int, int]]) -> bytes:
    return b"".join(INDEX_ENTRY.pack(value, offset, 77, 88) for value, offset in hashes)


def columns_of(hashes: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [value for value, _ in hashes], [offset for _, offset in hashes]


def state(file: IndexFile) -> tuple[object, ...]:
    return file.header(), file.take_buffer(), [file.head(slot) for slot in range(SLOTS)]


@pytest.mark.parametrize("seed", range(20))
def test_the_same_is_put(seed: int) -> None:
    rng = random.Random(seed)
    one, other, third = made(), made(), made()
    offset, stamp = FAR, 1_000_000
    for _ in range(8):
        hashes = []
        for _ in range(rng.randint(1, 12)):
            offset += rng.randint(0, 90)
            hashes.append((rng.choice([3, 10, rng.getrandbits(31)]), offset))
        first = rng.randint(0, len(hashes) - 1)
        stop = one.put_many(hashes, first, stamp)
        assert stop == other.put_entries(entries_of(hashes), first, stamp)
        assert stop == third.put_columns(*columns_of(hashes), first, stamp)
        assert state(one) == state(other) == state(third)
        stamp += rng.randint(-2000, 5000)


def test_a_file_takes_no_more_than_it_has_room_for() -> None:
    file = made()
    hashes = [(n, n) for n in range(1, 100)]
    assert file.put_entries(entries_of(hashes), 0, 5) == CAPACITY - 1
    assert file.full
    other = made()
    assert other.put_columns(*columns_of(hashes), 0, 5) == CAPACITY - 1
    assert state(other) == state(file)
    assert other.put_columns(*columns_of(hashes), CAPACITY - 1, 5) == CAPACITY - 1
    assert file.put_entries(entries_of(hashes), CAPACITY - 1, 5) == CAPACITY - 1
    assert IndexFile("2", "/2", SLOTS, CAPACITY).put_entries(entries_of(hashes), 0, 5) == 0  # is not being filled
    assert IndexFile("2", "/2", SLOTS, CAPACITY).put_columns(*columns_of(hashes), 0, 5) == 0


def test_what_fails_leaves_no_slot_that_names_an_entry_that_is_not_there() -> None:
    file = made()
    file.put_entries(entries_of([(1, 10), (8, 20), (2, 30)]), 0, 5)
    before = state(file)

    class Full(bytearray):
        def __iadd__(self, other: object) -> Self:  # type: ignore[override]
            raise MemoryError

    kept = file._buffer
    file._buffer = Full(kept)
    new = [(1, 40), (15, 50), (1, 60), (3, 70)]
    with pytest.raises(MemoryError):
        file.put_entries(entries_of(new), 0, 5)
    with pytest.raises(MemoryError):
        file.put_columns(*columns_of(new), 0, 5)
    file._buffer = kept
    assert state(file) == before
    with pytest.raises(OverflowError):
        file.put_columns([3, -5], [40, 50], 0, 5)
    assert state(file) == before
