"""The newest bytes of the log in memory."""

import random

from rmq.broker.store.log.memory_tail import MemoryTail


def test_what_was_written_is_read_until_it_is_dropped() -> None:
    rng = random.Random(1)
    tail = MemoryTail(5000)
    log = bytearray()
    for _ in range(2000):
        chunk = rng.randbytes(rng.randint(1, 300))
        tail.add(len(log), chunk)
        log += chunk
        size = rng.randint(1, 700)
        offset = rng.randint(max(0, len(log) - 6000), len(log) - 1)
        data = tail.read(offset, size)
        if offset < tail.first or offset + size > len(log):
            assert data is None
        else:
            assert data == bytes(log[offset : offset + size])
        spans = sorted((rng.randint(max(tail.first, 0), len(log) - 20), 20) for _ in range(5))
        if tail.first + 20 < len(log):
            assert tail.read_many(spans) == [bytes(log[o : o + n]) for o, n in spans]
        assert tail.size <= 5000 + 300
    assert tail.first > 0


def test_a_gap_is_not_bridged() -> None:
    tail = MemoryTail()
    tail.add(0, b"abcd")
    tail.add(100, b"efgh")
    tail.add(104, b"ijkl")
    assert tail.read(2, 2) == b"cd"
    assert tail.read(2, 3) is None
    assert tail.read(50, 1) is None
    assert tail.read(102, 4) == b"ghij"
    assert tail.rest(1, 100) == b"bcd"
    assert tail.rest(101, 6) == b"fghijk"
    assert tail.rest(101, 100) == b"fghijkl"
    assert tail.read_many([(0, 2), (3, 9)]) is None
    tail.clear()
    assert tail.read(0, 1) is None


def test_one_large_chunk_is_kept() -> None:
    tail = MemoryTail(10)
    tail.add(0, b"x" * 100)
    assert tail.read(0, 100) == b"x" * 100
    tail.add(100, b"y")
    assert tail.read(0, 1) is None
    assert tail.read(100, 1) == b"y"
