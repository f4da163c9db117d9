"""Makes a store with millions of messages, through the product's own append, for the measurements of its start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from benchmark.servers import PROPERTIES
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import Put, Queue
from rmq.broker.store.store import Store
from rmq.protocol.tags import string_hash
from rmq.runtime.world import World

__all__ = ["TOPIC", "fill", "unique_key"]

TOPIC = "BenchTopic"
QUEUES = 4
_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
_TAG = "TagA"
_BATCH = 1000
#: Bytes that may wait for the disk while a store is made.
_AHEAD = 512 << 20


def unique_key(number: int) -> bytes:
    """The unique key of a message, by its place in the store."""
    return b"7F000001%024X" % number


def fill(root: Path, messages: int, body: int) -> float:
    """Make a store of ``messages`` with ``body`` bytes each below ``root``; seconds it took.

    Every message has a unique key, one key and one tag, as the load program's have.
    """
    begin = time.monotonic()
    asyncio.run(_fill(root, messages, body))
    return time.monotonic() - begin


async def _fill(root: Path, messages: int, body: int) -> None:
    settings = StoreSettings(
        str(root),
        commit_log_file_size=int(PROPERTIES["mappedFileSizeCommitLog"]),
        queue_file_size=int(PROPERTIES["mappedFileSizeConsumeQueue"]),
        index_slots=int(PROPERTIES["maxHashSlotNum"]),
        index_entries=int(PROPERTIES["maxIndexNum"]),
    )
    store = Store(World.real(), settings)
    await store.load()
    await store.start()
    try:
        queues = [store.queues.get_or_create(TOPIC, number) for number in range(QUEUES)]
        for puts in _batches(queues, messages, body):
            store.append(puts)
            while store.log.end - store.durable_end() > _AHEAD or not store.log.prepared:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await asyncio.sleep(0)
    finally:
        await store.stop()


def _batches(queues: list[Queue], messages: int, body: int) -> Iterator[list[Put]]:
    text = bytes(range(32, 127)) * (body // 95 + 1)
    text = text[:body]
    code = string_hash(_TAG)
    for first in range(0, messages, _BATCH):
        puts = []
        for number in range(first, min(messages, first + _BATCH)):
            unique = unique_key(number)
            key = b"k-%d" % number
            properties = b"KEYS\1%b\2UNIQ_KEY\1%b\2WAIT\1true\2TAGS\1%b" % (key, unique, _TAG.encode())
            queue = queues[number % len(queues)]
            puts.append(Put(queue, text, properties, 0, 0, number, _HOST, _HOST, 0, 0, code, (unique, key)))
        yield puts
