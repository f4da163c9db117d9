"""Fills queues and index from the commit log: at start, and wherever the append did not do it itself.

Idempotent by commit-log offset: what a queue or the index has already is skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct

from rmq.broker.store.commit_log import CommitLog
from rmq.broker.store.index import Index
from rmq.broker.store.keyhash import KeyHasher
from rmq.broker.store.log_reader import LogReader
from rmq.broker.store.queue_files import BLANK_ENTRY
from rmq.broker.store.queues import QueueTable
from rmq.broker.store.records import Derived, TagsRule, derive
from rmq.broker.store.state import Queue
from rmq.protocol.errors import StoreError

__all__ = ["Dispatcher"]

log = logging.getLogger(__name__)

_entry = Struct(">qiq").pack
#: Entries a queue may lack because their records are damaged; more than that is itself damage.
_MOST_BLANK = 1 << 20


class Dispatcher:
    """Reads records in order and hands out what is derived from them.

    :param rule: tags codes.
    :param index: or None when ``messageIndexEnable`` is off.
    """

    def __init__(self, commit_log: CommitLog, queues: QueueTable, index: Index | None, rule: TagsRule) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._rule = rule
        self._hashers: dict[str, KeyHasher] = {}
        #: Next record to dispatch.
        self.position = 0
        #: The index lacks messages from here on.
        self.index_from = 0
        #: Called with queues that have got entries.
        self.on_dispatched: Callable[[list[Queue]], None] | None = None

    def took(self, start: int, end: int) -> bool:
        """An append has filled queues and index itself; whether that was next."""
        if start == self.position or self.position >= self._log.end - (end - start):
            self.position = end
            return True
        return False

    @property
    def behind(self) -> int:
        """Bytes that are not dispatched."""
        return max(0, self._log.end - self.position)

    async def advance(self, reader: LogReader, limit: int) -> int:
        """Dispatch the good records of the next ``limit`` bytes; how many bytes were passed.

        Damage is reported by the reader and skipped.
        """
        start = self.position
        stop = min(self._log.end, start + limit)
        touched: dict[Queue, None] = {}
        async for data, records in reader.records(start, stop):
            hashes: list[tuple[int, int]] = []
            stamp = 0
            for at, offset, size in records:
                found = derive(data, at, self._rule)
                queue = await self._put(found, offset, size)
                if queue is not None:
                    touched[queue] = None
                if self._index is not None and found.keys and offset >= self.index_from and found.sys_flag & 0xC != 0xC:
                    if found.store_timestamp != stamp and hashes:
                        self._index.put_many(hashes, stamp)
                        hashes = []
                    stamp = found.store_timestamp
                    hasher = self._hasher(found.topic)
                    hashes += [(hasher(key), offset) for key in found.keys]
            if hashes and self._index is not None:
                self._index.put_many(hashes, stamp)
            await asyncio.sleep(0)
        self.position = reader.position
        if touched and self.on_dispatched is not None:
            self.on_dispatched(list(touched))
        return self.position - start

    def _hasher(self, topic: str) -> KeyHasher:
        hasher = self._hashers.get(topic)
        if hasher is None:
            if len(self._hashers) > 4096:
                self._hashers.clear()
            hasher = self._hashers[topic] = KeyHasher(topic)
        return hasher

    async def _put(self, found: Derived, offset: int, size: int) -> Queue | None:
        # Prepared and rolled-back messages are in no queue (store-and-broker.md 3.2).
        if found.sys_flag & 0xC not in (0, 8):
            return None
        try:
            queue = self._queues.get_or_create(found.topic, found.queue_id)
        except StoreError as error:
            log.error("record at %d is in no queue: %s", offset, error)
            return None
        if offset + size <= queue.max_phys:
            return None
        index = found.queue_offset
        entries = 1
        if index != queue.next:
            gap = index - queue.next
            if gap < 0:
                # The topic was deleted and made again: the later life counts.
                await self._queues.cut(queue, index)
                if index != queue.next:
                    await self._queues.restart(queue, index)
            elif queue.next == queue.min:
                await self._queues.restart(queue, index)
            elif gap > _MOST_BLANK:
                log.error("record at %d says it is entry %d of %r; it is skipped", offset, index, queue)
                return None
            else:
                log.error("%r lacks %d entries before the record at %d; they stay empty", queue, gap, offset)
                queue.tail += BLANK_ENTRY * gap
                entries += gap
        queue.tail += _entry(offset, size, found.tags_code)
        queue.next = index + 1
        queue.max_phys = offset + size
        self._queues.note([queue], entries)
        return queue
