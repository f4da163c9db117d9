"""What a member takes lies where the connection received it: it keeps what it cannot write at once."""

from __future__ import annotations

import pytest

from rmq.aio import Message, Producer
from rmq.broker.raft.driver import RaftDriver
from rmq.raft.messages import Append
from rmq.raft.position import Position
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time


def receive(driver: RaftDriver, *words: tuple[int, bytes], source: str) -> None:
    """The log goes on, word by word out of the same memory, which has something else in it afterwards."""
    assert driver.node is not None
    memory = memoryview(bytearray(1 << 16))
    before = driver.node.path.last
    for term, data in words:
        after = Position(term, before.end + len(data))
        memory[: len(data)] = data
        driver.step(Append(term, source, before, after, driver.node.commit, memory[: len(data)]))
        memory[:] = b"\xff" * len(memory)
        before = after


@in_virtual_time
@pytest.mark.parametrize("first", ["the same term", "a new term", "a cut"])
async def test_what_waits_has_bytes_of_its_own(first: str) -> None:
    async with GroupCluster(seed=4) as cluster:
        leader = await cluster.led_by()
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            for number in range(3):
                await producer.send(Message("Topic", b"%d" % number * 100))
        await cluster.alike()
        name, other = [name for name in cluster.names if name != leader]
        driver = cluster.driver(name)
        assert driver.node is not None
        log = driver._commit_log
        record = log.read(0, int.from_bytes(log.read(0, 4) or b"", "big"))
        assert record
        cluster.isolate(name)
        term = driver.node.term
        if first == "a cut":
            receive(driver, (term, record * 2), source=leader)
            # Another leads, and has something else there.
            at = Position(term, log.end - 2 * len(record))
            memory = memoryview(bytearray(record * 3))
            after = Position(term + 1, at.end + len(memory))
            driver.step(Append(term + 1, other, at, after, driver.node.commit, memory))
            memory[:] = b"\xff" * len(memory)
            end, count = after.end, 3
        else:
            of = term + (first == "a new term")
            end, count = log.end + 3 * len(record), 3
            receive(driver, (of, record), (of, record * 2), source=leader)
        assert bool(driver._effects) == (first != "the same term")
        await eventually(lambda: log.end == end and not driver._effects)
        assert log.read(end - count * len(record), count * len(record)) == record * count
        assert driver.parted is None
        assert driver.failures.count == 0
