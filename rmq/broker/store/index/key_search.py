"""Finds messages by key: the index knows hashes, the records say which keys they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple

from rmq.broker.store.index.index import Index
from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.log.records import index_keys
from rmq.protocol.record import places

__all__ = ["Found", "KeySearch"]

#: Records looked at in one search, and bytes of them. Keys of one hash are rare unless somebody makes them.
_MOST_LOOKED_AT = 10_000
_MOST_READ = 64 << 20
#: Records after which the loop gets its turn.
_TURN = 16


class Found(NamedTuple):
    """What a search found."""

    #: Oldest first.
    records: list[bytes]
    #: Why there may be more than these; empty when these are all, or as many as were asked for.
    cut: str = ""


class KeySearch:
    """Searches by key; only what is visible is found.

    :param index: None = there is none, and nothing is found.
    :param hasher: of a topic's keys.
    :param record_at: the record at a commit-log offset, or None.
    :param alive_from: the commit-log offset before which a topic's records are of a life that was deleted.
    """

    def __init__(
        self,
        index: Index | None,
        hasher: Callable[[str], KeyHasher],
        record_at: Callable[[int], Awaitable[bytes | None]],
        alive_from: Callable[[str], int] = lambda topic: 0,
    ) -> None:
        self._index = index
        self._hasher = hasher
        self._record_at = record_at
        self._alive_from = alive_from

    async def find(self, topic: str, key: str, limit: int, begin: int, end: int, size: int = 1 << 62) -> Found:
        """The newest messages of a topic that have this very key: as unique key or among their KEYS.

        Others of the same hash are passed over, and do not count.

        :param limit: at most so many.
        :param begin: earliest and
        :param end: latest store time, ms.
        :param size: at most so many bytes, but one message at least.
        """
        if self._index is None or not key or limit < 1:
            return Found([])
        name, wanted = topic.encode(), key.encode()
        found: dict[int, bytes] = {}
        cut = ""
        looked = read = 0
        room = size
        alive = self._alive_from(topic)
        async with aclosing(self._index.offsets(self._hasher(topic)(wanted), begin, end)) as offsets:
            async for offset in offsets:
                if offset < alive:
                    break
                if offset in found:
                    continue
                if looked >= _MOST_LOOKED_AT or read >= _MOST_READ:
                    cut = f"only the newest {looked} messages whose keys have the hash of this one were looked at"
                    break
                looked += 1
                if looked % _TURN == 0:
                    await asyncio.sleep(0)
                record = await self._record_at(offset)
                if record is None:
                    continue
                read += len(record)
                if not _has(record, name, wanted):
                    continue
                if found and len(record) > room:
                    cut = f"only the newest {len(found)}: one answer has {size >> 20} MiB at most"
                    break
                room -= len(record)
                found[offset] = record
                if len(found) >= limit:
                    break
        return Found([found[offset] for offset in sorted(found)], cut)


def _has(record: bytes, topic: bytes, key: bytes) -> bool:
    _, _, name_at, behind = places(record)
    return record[name_at:behind] == topic and key in index_keys(record, behind + 2, len(record))
