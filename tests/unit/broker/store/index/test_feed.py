"""The keys that are read from the log are those of each record, whatever its properties look like."""

from __future__ import annotations

import random
from typing import Any, cast

from rmq.broker.store.index.feed import IndexFeed
from rmq.broker.store.index.index import Index
from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.log.append import pack
from rmq.broker.store.log.record_runs import Run, stored, take
from rmq.broker.store.log.records import derive, index_keys
from rmq.broker.store.state import Put, Queue
from tests.support.scenes.store import HOST

PARTS = [
    b"KEYS\1a", b"KEYS\1a b", b"KEYS\1", b"KEYS\1 ", b"KEYS\1c", b"UNIQ_KEY\1AC", b"UNIQ_KEY\1", b"UNIQ_KEY\1d e",
    b"XKEYS\1f", b"XUNIQ_KEY\1g", b"TAGS\1KEYS", b"TAGS\1h", b"WAIT\1true", b"",
]  # fmt: skip
LONG = bytes(15) + b"\1" + HOST[4:]


class Taken:
    """An index that keeps what is put."""

    end = (0, 0)

    def __init__(self) -> None:
        self.put: list[tuple[int, int, int]] = []

    def put_many(self, hashes: list[tuple[int, int]], stamp: int) -> None:
        self.put += [(value, offset, stamp) for value, offset in hashes]


def made(seed: int) -> Run:
    """Records of all kinds, some milliseconds apart."""
    rng = random.Random(seed)
    queues = [Queue("T", 0), Queue("Other", 1)]
    data, at, stamp = b"", 1000, 5_000
    for _ in range(60):
        properties = b"\2".join(rng.choices(PARTS, k=rng.randint(0, 4)))
        hosts, sys_flag = ((HOST, HOST), 0) if rng.random() < 0.8 else ((LONG, HOST), 0x10)
        sys_flag |= rng.choice([0, 0, 0, 0xC])
        put = Put(rng.choice(queues), b"x", properties, 0, sys_flag, 7, *hosts, 0, 0, 0, ())
        packed = pack([put], (at, 1 << 20, 1 << 30), stamp)
        data += packed.pieces[0]
        at += len(packed.pieces[0])
        stamp += rng.choice([0, 0, 1])
    run = take(data, 0, 1000, 1 << 30, 1 << 30, {}, crc=False)
    assert len(run.records) == 60
    return run


def test_every_key_is_put() -> None:
    for seed in range(30):
        run, expected = made(seed), []
        for (at, size, sys_flag, _, _, topic, text), stamp in zip(run.records, stored(run), strict=True):
            found = derive(run.data, at, cast(Any, _Rule))
            assert stamp == found.store_timestamp
            keys = index_keys(run.data, text, at + size)
            assert list(keys) == list(found.keys)
            if sys_flag & 0xC != 0xC:
                expected += [(KeyHasher(topic).of(key), run.base + at, stamp) for key in keys]
        taken = Taken()
        feed = IndexFeed(cast(Index, taken))
        position = 0
        while position < run.base + run.end:
            position = feed.put(run, position, 7)
        assert taken.put == expected
        assert feed.keys == len(expected)


class _Rule:
    tag = staticmethod(len)
