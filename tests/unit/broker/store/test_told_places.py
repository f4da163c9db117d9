"""Where a leader says that the records of a span lie: each behind another, and no byte in none of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from zlib import crc32

import pytest

from rmq.broker.store.index.file import INDEX_ENTRY
from rmq.broker.store.log.append import pack
from rmq.broker.store.state import Queue
from rmq.broker.store.told import Told, ToldQueue
from tests.support.scenes.store import put


def told_at(start: int, *, size: int = 100) -> tuple[Told, bytes]:
    """Nine messages in three queues, with two keys each, at a commit-log offset."""
    queues = [Queue("T", number) for number in range(3)]
    puts = [put(queues[number * 5 % 3], bytes([number]) * size) for number in range(9)]
    packed = pack(puts, (start, 1 << 20, 1 << 20), 5)
    keys = b"".join(INDEX_ENTRY.pack(n * 77, offset, 0, 0) for n, (_, offset) in enumerate(packed.offsets * 2))
    keys = b"".join(sorted((keys[at : at + 20] for at in range(0, len(keys), 20)), key=lambda key: key[4:12]))
    (data,) = packed.pieces
    told = [ToldQueue(queue.topic, queue.id, queue.next, entries) for queue, entries, *_ in packed.deltas]
    return Told(start, start + len(data), 5, crc32(data), told, keys), data


def _places(told: Told) -> list[tuple[int, int]]:
    """Offset and size of each record, by queues."""
    return [place for queue in told.queues for place in struct.iter_unpack(">qi8x", queue.entries)]


def _with_places(told: Told, places: Sequence[Sequence[int]]) -> Told:
    entries = b"".join(struct.pack(">qiq", *place, 0) for place in places)
    queues = []
    for queue in told.queues:
        size = len(queue.entries)
        queues.append(queue._replace(entries=entries[:size]))
        entries = entries[size:]
    return told._replace(queues=queues)


@pytest.mark.parametrize("around", [1 << 31, 1 << 32, 3 << 31, 1 << 40, 1 << 61])
def test_offsets_of_any_length(around: int) -> None:
    """Half of one may be what the other's is."""
    _, data = told_at(0)
    for start in (around - len(data) - 1, around - len(data), around - len(data) + 1, around - 1, around, around + 1):
        told, data = told_at(start)
        assert told.has_good_keys()
        assert told.fits(data)
        for away in (1, 1 << 24, 1 << 31, 1 << 32, 1 << 40):
            other = told._replace(start=start + away, end=told.end + away)
            assert not other.has_good_keys()
            assert not other.fits(data)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 128, 150])
def test_no_key_is_of_a_record_before_that_of_the_key_before(count: int) -> None:
    offsets = [5000 + number // 2 * 10 for number in range(count)]
    told = Told(5000, offsets[-1] + 10, 5, 0, [ToldQueue("T", 0, 0, bytes(20))], None)

    def is_good(offsets: list[int]) -> bool:
        return told._replace(keys=b"".join(INDEX_ENTRY.pack(7, offset, 0, 0) for offset in offsets)).has_good_keys()

    assert is_good(offsets)
    for number in range(count):
        before, behind = offsets[:number], offsets[number + 1 :]
        assert not is_good([*before, told.end, *behind])
        assert not is_good([*before, 4999, *behind])


def test_what_only_looks_as_if_it_added_up() -> None:
    told, data = told_at(5000)
    places = sorted(_places(told))
    assert _with_places(told, places).fits(data) is False  # these are in other queues
    assert _with_places(told, places)._last() == max(places)
    (at, size), (_, other), (behind, _) = places[2:5]
    far, farther = 5000 + (1 << 31) - 1, (1 << 32) - 200
    for first, others, rest in (
        (2, [(at, size + other)] * 2, 4),  # one twice
        (2, [(at, 90), (at + 90, size - 90), (behind - other, other + places[4][1])], 5),  # no record is so short
        (2, [(at, size + other), (at + 10, 100), (at + 110, -100)], 5),  # round and round
        (0, [(5000, far - 5000), (far, farther - far - 1), (farther, places[3][0] + 200)], 3),  # with what is carried
    ):
        wrong = [*places[:first], *others, *places[rest:]]
        assert len(wrong) in (9, 10)
        assert _with_places(told, wrong[:9])._last() is None
        queue = told.queues[0]._replace(entries=b"".join(struct.pack(">qiq", *place, 0) for place in wrong))
        assert told._replace(queues=[queue])._last() is None
        queue = queue._replace(entries=b"".join(struct.pack(">qiq", *place, 0) for place in reversed(wrong)))
        assert told._replace(queues=[queue])._last() is None


@pytest.mark.parametrize("at", [0, 56])
def test_the_last_record_is_looked_at(at: int) -> None:
    """Its size, and its store time."""
    told, data = told_at(5000)
    last = max(_places(told))[0] - 5000
    other = bytearray(data)
    other[last + at + 3] ^= 1
    assert told.fits(data)
    assert not told._replace(crc=crc32(other)).fits(bytes(other))


@pytest.mark.parametrize("seed", range(20))
def test_no_byte_is_in_two_records_or_in_none(seed: int) -> None:
    """Entries that say anything: they add up if each record begins where the one before it ends."""
    rng = random.Random(seed)
    told, _ = told_at(rng.choice([0, 5000, (1 << 32) + 7]))
    places = _places(told)
    numbers = [number for offset, size in places for number in (offset, size, offset + size)]
    found = set()
    for _ in range(300):
        now = [list(place) for place in places]
        for _ in range(rng.randint(0, 3)):
            entry, at = rng.choice(now), rng.randrange(2)
            entry[at] = rng.choice([*numbers, entry[at] ^ 1 << rng.randrange(62 - 31 * at), 0, -1, -entry[at]])
            if rng.random() < 0.7:  # and others go on from there, or the entry says it twice
                rng.choice(now)[:] = rng.choice([entry, [entry[0] + entry[1], 200]])
        now = [[offset, max(-1 << 31, min(size, (1 << 31) - 1))] for offset, size in now]
        ends = [told.start]
        for offset, size in sorted(now):
            if offset != ends[-1] or size < 91:
                break
            ends.append(offset + size)
        adds_up = len(ends) == len(now) + 1 and ends[-1] == told.end
        assert (_with_places(told, now)._last() is not None) == adds_up
        found.add(adds_up)
    assert found == {True, False}
