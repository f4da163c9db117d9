"""Puts the keys of records read from the commit log into the index; an append does that itself with what it built."""

from __future__ import annotations

import asyncio
import logging

from rmq.broker.store.index.index import Index
from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.index.putting import put_all
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.log.records import index_keys
from rmq.protocol.record import store_time

__all__ = ["ROLLED_BACK", "IndexFeed"]

log = logging.getLogger(__name__)

#: Messages with both bits in their flag are in no queue and in no index.
ROLLED_BACK = 0xC
_MOST_HASHERS = 4096
#: Keys put before the loop gets its turn: some milliseconds.
_KEYS_IN_A_TURN = 2_000

#: No store time is so late, ms.
_LATEST = 1 << 53


class IndexFeed:
    """Hashes keys and puts them."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._hashers: dict[str, KeyHasher] = {}
        #: How many keys were put.
        self.keys = 0

    async def put_all(self, run: Run, start: int) -> None:
        """:meth:`put` to the run's end, with turns of the loop in between.

        :raises IndexStopped: it may be called again, from there on.
        """
        end = run.base + run.end
        start = self.put(run, start, _KEYS_IN_A_TURN)
        while start < end:
            await asyncio.sleep(0)
            start = self.put(run, start, _KEYS_IN_A_TURN)

    def put(self, run: Run, start: int, most: int) -> int:
        """Put the keys of a run's records, but of those before commit-log offset ``start``.

        :param most: keys after which it stops, behind a record.
        :returns: the commit-log offset behind the last record whose keys were put; another call goes on there.
        :raises IndexStopped: it may be called again, from there on.
        """
        data, base = run.data, run.base
        hashes: list[tuple[int, int]] = []
        stamp = 0
        end = run.base + run.end
        for at, size, sys_flag, _, _, topic, text in run.records:
            offset = base + at
            if offset < start or sys_flag & ROLLED_BACK == ROLLED_BACK:
                continue
            keys = index_keys(data, text, at + size)
            if not keys:
                continue
            stored = store_time(data, at)
            if not 0 < stored < _LATEST:
                continue  # a whole index file would have this time: its other messages would not be found
            if stored != stamp:
                if hashes:
                    put_all(self._index, hashes, stamp, self._refused)
                    hashes = []
                stamp = stored
            most -= len(keys)
            self.keys += len(keys)
            try:
                hasher = self._hasher(topic)
                hashes += [(hasher.unique(keys[0]), offset), *[(hasher.of(key), offset) for key in keys[1:]]]
            except Exception as error:
                self._refused(offset, error)
            if most <= 0:
                end = offset + size
                break
        if hashes:
            put_all(self._index, hashes, stamp, self._refused)
        return end

    @staticmethod
    def _refused(offset: int, error: Exception) -> None:
        log.error("the message at %d is not found by its keys: the index refuses them (%s)", offset, error)

    def _hasher(self, topic: str) -> KeyHasher:
        hasher = self._hashers.get(topic)
        if hasher is None:
            if len(self._hashers) > _MOST_HASHERS:
                self._hashers.clear()
            hasher = self._hashers[topic] = KeyHasher(topic)
        return hasher
