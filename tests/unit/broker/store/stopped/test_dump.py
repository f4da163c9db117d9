"""What is printed of the golden store is what its manifest says, over any range."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import pytest

from rmq.broker.store.stopped import dump
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World
from tests.support.golden_store import MANIFEST, golden_settings, state_of, unpack

T = TypeVar("T")
RECORDS = MANIFEST["records"]


async def all_of(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("golden"))


@pytest.fixture
async def store(root: Path) -> AsyncIterator[StoppedStore]:
    before = state_of(root)
    async with StoppedStore(World.real(), golden_settings(root)) as store:
        yield store
    assert state_of(root) == before


async def test_records(store: StoppedStore) -> None:
    found = await all_of(dump.records(store))
    assert [(one.physical_offset, one.size, one.topic, one.properties) for one in found] == [
        (one["offset"], one["size"], one["topic"], one["properties"]) for one in RECORDS
    ]


async def test_records_of_a_range_and_a_queue(store: StoppedStore) -> None:
    start, end = RECORDS[10]["offset"], RECORDS[20]["offset"]
    offsets = [one["offset"] for one in RECORDS[10:20]]
    assert [one.physical_offset for one in await all_of(dump.records(store, start, end))] == offsets
    # From the middle of a record: the next one is the first.
    assert [one.physical_offset for one in await all_of(dump.records(store, start - 30, end))] == offsets
    behind = RECORDS[-1]["offset"] + 1
    assert await all_of(dump.records(store, behind)) == []
    tagged = await all_of(dump.records(store, topic="GoldTag", queue_id=1))
    assert [one.physical_offset for one in tagged] == [
        one["offset"] for one in RECORDS if (one["topic"], one["queueId"]) == ("GoldTag", 1)
    ]


async def test_queue_entries(store: StoppedStore) -> None:
    for queue in MANIFEST["queues"]:
        entries = await all_of(dump.queue_entries(store, queue["topic"], queue["queueId"]))
        assert [list(entry) for entry in entries] == queue["entries"]
    ranged = await all_of(dump.queue_entries(store, "GoldTag", 1, 3, 6))
    assert [entry.queue_offset for entry in ranged] == [3, 4, 5]
    with pytest.raises(StoreError, match="no queue 9 of topic GoldTag"):
        await all_of(dump.queue_entries(store, "GoldTag", 9))


async def test_index_entries(store: StoppedStore) -> None:
    for file in MANIFEST["indexFiles"]:
        found = await all_of(dump.index_entries(store, file=file["file"]))
        assert [[one.hash, one.offset, one.before] for one in found] == [
            [entry[0], entry[1], entry[3]] for entry in file["entries"]
        ]
    keyed = next(one for one in RECORDS if one["properties"].get("KEYS"))
    key = keyed["properties"]["KEYS"].split(" ")[0]
    found = await all_of(dump.index_entries(store, key=(keyed["topic"], key)))
    assert keyed["offset"] in [one.offset for one in found]
    assert len(found) < 20
    start = RECORDS[50]["offset"]
    assert all(one.offset >= start for one in await all_of(dump.index_entries(store, start)))
    with pytest.raises(StoreError, match="no index file 20200101000000000"):
        await all_of(dump.index_entries(store, file="20200101000000000"))
