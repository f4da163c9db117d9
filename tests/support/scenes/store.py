"""Stores for tests: small files, puts, and directories in simulated or real trees."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Any

from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import Put, Queue
from rmq.broker.store.store import Store
from rmq.runtime.world import World

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
LOG_SIZE = 16 * 1024
QUEUE_SIZE = 40 * 20
SLOTS = 16
ENTRIES = 50


def small(root: str = "/store", **changes: Any) -> StoreSettings:
    """Settings with files so small that a few messages roll them."""
    values: dict[str, Any] = {
        "commit_log_file_size": LOG_SIZE,
        "queue_file_size": QUEUE_SIZE,
        "index_slots": SLOTS,
        "index_entries": ENTRIES,
        "checksums_on_append": True,
    }
    return StoreSettings(root, **(values | changes))


def put(queue: Queue, body: bytes = b"hello", *, key: str = "", tag: str = "", sys_flag: int = 0, born: int = 1) -> Put:
    """A message; a key is its only index key."""
    properties = []
    if key:
        properties.append(f"KEYS\x01{key}")
    if tag:
        properties.append(f"TAGS\x01{tag}")
    code = 0
    for unit in tag:
        code = (31 * code + ord(unit)) & 0xFFFFFFFF
    if code >= 0x80000000:
        code -= 0x100000000
    return Put(
        queue, body, "\x02".join(properties).encode(), 0, sys_flag, born, HOST, HOST, 0, 0, code,
        (key.encode(),) if key else (),
    )  # fmt: skip


async def opened(world: World, settings: StoreSettings, *, start: bool = True) -> Store:
    store = Store(world, settings)
    await store.load()
    if start:
        await store.start()
    return store


async def die(store: Store) -> None:
    """The process is gone: its tasks end, nothing else does. Freeze its files first."""
    await store.tasks.close()


async def until_open(store: Store) -> None:
    """A disk that refused without looking full is tried again after a while."""
    while store.log.gate:  # noqa: ASYNC110
        await asyncio.sleep(1)


async def bodies(store: Store, queue: Queue) -> list[bytes]:
    """Bodies of every visible message of a queue, in order."""
    return [body_of(record) for record in await records(store, queue)]


async def entries(store: Store, queue: Queue, first: int = 0) -> dict[int, tuple[int, int]]:
    """Commit-log offset and size by index, of every visible entry from ``first`` on that is not blank."""
    found: dict[int, tuple[int, int]] = {}
    index = max(queue.min, first)
    while index < queue.visible:
        data = await store.queues.entries_cold(queue, index, queue.visible - index)
        assert data, f"{queue!r} has no entry {index}"
        for offset, size, _ in struct.iter_unpack(">qiq", data):
            if (offset, size) != (0, 0x7FFFFFFF):
                found[index] = (offset, size)
            index += 1
    return found


async def records(store: Store, queue: Queue, first: int = 0) -> list[bytes]:
    found: list[bytes] = []
    for index, (offset, size) in (await entries(store, queue, first)).items():
        record = await store.messages.at(offset)
        assert record is not None, f"{queue!r} entry {index}: no record at {offset}"
        assert len(record) == size
        assert int.from_bytes(record[20:28], "big") == index
        found.append(record)
    return found


def body_of(record: bytes) -> bytes:
    size = int.from_bytes(record[84:88], "big")
    return record[88 : 88 + size]


async def snapshot(store: Store) -> dict[str, Any]:
    """Everything a client can see: recovery must give the same whatever became of derived files."""
    seen: dict[str, Any] = {"start": store.log.start, "end": store.log.end}
    for queue in sorted(store.queues, key=lambda q: (q.topic, q.id)):
        if queue.next:
            # Store times are left out: two runs of one workload differ in them by a millisecond.
            found = [record[:56] + record[64:] for record in await records(store, queue)]
            seen[f"{queue.topic}-{queue.id}"] = (queue.min, queue.visible, queue.next, found)
    return seen


async def found_keys(store: Store, topic: str, keys: Iterable[str]) -> dict[str, int]:
    """How many records are found by each key."""
    return {key: len((await store.query_message(topic, key, 64, 0, 1 << 62)).records) for key in keys}
