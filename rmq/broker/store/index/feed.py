"""Puts the keys of records read from the commit log into the index; an append does that itself with what it built."""

from __future__ import annotations

import asyncio
import logging
from struct import Struct

from rmq.broker.store.index.index import Index
from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.index.putting import put_all
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.log.records import index_keys

__all__ = ["ROLLED_BACK", "IndexFeed"]

log = logging.getLogger(__name__)

#: Messages with both bits in their flag are in no queue and in no index.
ROLLED_BACK = 0xC
_MOST_HASHERS = 4096
#: Keys put before the loop gets its turn: some milliseconds.
_KEYS_IN_A_TURN = 2_000

#: No store time is so late, ms.
_LATEST = 1 << 53
#: Where the store time is in a record, and where behind an IPv6 host, which this bit of the sys flag tells of.
_long = Struct(">q").unpack_from
_STORED, _STORED_V6, _BORN_V6 = 56, 68, 0x10


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
        find, rfind = data.find, data.rfind
        hashes: list[tuple[int, int]] = []
        add = hashes.append
        stamp = 0
        behind = run.base + run.end
        left = most
        hashed, of, unique = "", _no_hash, _no_hash
        for at, size, sys_flag, _, _, topic, text in run.records:
            offset = base + at
            if offset < start or sys_flag & ROLLED_BACK == ROLLED_BACK:
                continue
            end = at + size
            unique_at = rfind(b"UNIQ_KEY\1", text, end)
            keys_at = rfind(b"KEYS\1", text, end)
            if unique_at < 0 and keys_at < 0:
                continue
            stored = _long(data, at + (_STORED_V6 if sys_flag & _BORN_V6 else _STORED))[0]
            if not 0 < stored < _LATEST:
                continue  # a whole index file would have this time: its other messages would not be found
            if stored != stamp:
                if hashes:
                    put_all(self._index, hashes, stamp, self._refused)
                    hashes = []
                    add = hashes.append
                stamp = stored
            before = len(hashes)
            try:
                if topic != hashed:
                    hasher = self._hasher(topic)
                    hashed, of, unique = topic, hasher.of, hasher.unique
                # As :func:`index_keys`, which has to look closer at what is odd.
                one = other = b""
                odd = False
                if unique_at >= 0:
                    stop = find(b"\2", unique_at, end)
                    one = data[unique_at + 9 : end if stop < 0 else stop]
                    odd = not one or (unique_at > text and data[unique_at - 1] != 2)
                if keys_at >= 0:
                    stop = find(b"\2", keys_at, end)
                    other = data[keys_at + 5 : end if stop < 0 else stop]
                    odd = odd or not other or (keys_at > text and data[keys_at - 1] != 2)
                if odd or b" " in other:
                    hashes += [(of(key), offset) for key in index_keys(data, text, end)]
                else:
                    if one:
                        add((unique(one), offset))
                    if other:
                        add((of(other), offset))
            except Exception as error:
                del hashes[before:]
                self._refused(offset, error)
            put = len(hashes) - before
            self.keys += put
            left -= put
            if left <= 0:
                behind = base + end
                break
        if hashes:
            put_all(self._index, hashes, stamp, self._refused)
        return behind

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


def _no_hash(key: bytes) -> int:
    raise AssertionError("no topic was looked at yet")
