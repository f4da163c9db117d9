"""Entries as another index has them: what they put is what their hashes and offsets put."""

from __future__ import annotations

import random

import pytest

from rmq.broker.store.index import file as index_file
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


def state(file: IndexFile) -> tuple[object, ...]:
    return file.header(), file.take_buffer(), [file.head(slot) for slot in range(SLOTS)]


@pytest.mark.parametrize("seed", range(20))
def test_the_same_is_put(seed: int) -> None:
    rng = random.Random(seed)
    one, other = made(), made()
    offset, stamp = FAR, 1_000_000
    for _ in range(8):
        hashes = []
        for _ in range(rng.randint(1, 12)):
            offset += rng.randint(0, 90)
            hashes.append((rng.choice([3, 10, rng.getrandbits(31)]), offset))
        first = rng.randint(0, len(hashes) - 1)
        assert one.put_many(hashes, first, stamp) == other.put_entries(entries_of(hashes), first, stamp)
        assert state(one) == state(other)
        stamp += rng.randint(-2000, 5000)


def test_a_file_takes_no_more_than_it_has_room_for() -> None:
    file = made()
    hashes = [(n, n) for n in range(1, 100)]
    assert file.put_entries(entries_of(hashes), 0, 5) == CAPACITY - 1
    assert file.full
    assert file.put_entries(entries_of(hashes), CAPACITY - 1, 5) == CAPACITY - 1
    assert IndexFile("2", "/2", SLOTS, CAPACITY).put_entries(entries_of(hashes), 0, 5) == 0  # is not being filled


def test_what_fails_leaves_no_slot_that_names_an_entry_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    file = made()
    file.put_entries(entries_of([(1, 10), (8, 20), (2, 30)]), 0, 5)
    before = state(file)

    def full(entries: object, at: int) -> int:
        if at:
            raise MemoryError
        return 40

    monkeypatch.setattr(index_file, "_offset_in", full)
    with pytest.raises(MemoryError):
        file.put_entries(entries_of([(1, 40), (15, 50), (1, 60), (3, 70)]), 0, 5)
    assert state(file) == before
