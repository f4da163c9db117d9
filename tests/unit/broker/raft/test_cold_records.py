"""A disk that does not say what is in memory (RAM disks, macOS): members read there what memory does not keep."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from rmq.aio import Message, Producer
from rmq.broker.store.log.memory_tail import MemoryTail
from rmq.protocol.errors import StoreError
from rmq.testing.simfiles import SimFile
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is hot, and memory keeps less of the log than a span of it has."""
    monkeypatch.setattr(SimFile, "pread_hot", lambda self, size, offset: None)
    monkeypatch.setattr(MemoryTail.__init__, "__defaults__", (64 << 10,))


@in_virtual_time
async def test_a_message_that_memory_does_not_keep_is_taken() -> None:
    async with GroupCluster(seed=1) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        await cluster.led_by()
        for name in cluster.names:  # a message is longer than what may be on its way
            object.__setattr__(cluster.driver(name)._members, "window", 64 << 10)
        sent = [Message("Topic", Random(seed).randbytes(1_500_000)) for seed in range(2)]
        await asyncio.gather(*map(producer.send, sent))
        await producer.send(Message("Topic", b"behind it"))
        await cluster.alike()
        assert [cluster.driver(name).failures.count for name in cluster.names] == [0, 0, 0]


@in_virtual_time
async def test_who_begins_anew_finds_where_records_end_that_are_in_no_queue() -> None:
    async with GroupCluster(seed=2) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        leader = await cluster.led_by()
        other = next(name for name in cluster.names if name != leader)
        await producer.send(Message("Topic", b"first"))
        await cluster.alike()
        driver, store = cluster.driver(other), cluster.members[other].store
        store.committed = lambda end: None  # type: ignore[method-assign]
        for seed in range(3):
            await producer.send(Message("Topic", Random(seed).randbytes(100_000)))
        await eventually(lambda: store.log.end == cluster.members[leader].store.log.end)
        assert store.dispatcher.position < store.log.end - 300_000
        del store.committed
        driver._fail(StoreError("the disk"))
        await producer.send(Message("Topic", b"last"))
        await cluster.alike()
        assert driver.failures.count == 1
