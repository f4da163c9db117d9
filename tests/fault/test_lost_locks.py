"""A running broker whose lock, log or store is removed, renamed or replaced: it says so and takes nothing more."""

import asyncio
import logging
import re

import pytest

from rmq.broker.store.log.gate import Gate
from rmq.broker.store.stopped.stopped_store import StoppedStore
from rmq.protocol.errors import StoreError
from rmq.testing.simfiles import SimFiles
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import bodies, die, opened, put, small

MOVES = ["the lock is removed", "another lock", "the log is renamed", "a log file is removed", "the store is renamed",
         "another store"]  # fmt: skip


def move(files: SimFiles, what: str) -> None:
    if what == "the lock is removed":
        files.unlink("/store/lock")
    elif what == "another lock":
        files.open("/store/new", create=True).close()
        files.rename("/store/new", "/store/lock")
    elif what == "the log is renamed":
        files.rename("/store/commitlog", "/store/commitlog.old")
    elif what == "a log file is removed":
        files.unlink(f"/store/commitlog/{0:020d}")
    else:
        files.rename("/store", "/moved")
    if what == "another store":
        files.mkdir("/store")
        files.open("/store/lock", create=True).close()


def beside(simulation: Simulation, machine: SimNode) -> SimNode:
    """Another process on the same machine."""
    other = simulation.node("b")
    other.disk = machine.disk
    other.world = simulation.kill(other)
    return other


@pytest.mark.parametrize("what", MOVES)
def test_no_message_is_taken_where_none_would_be_found(what: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        machine = simulation.node("a")
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"kept")])
        await asyncio.sleep(5)
        assert not store.log.gate
        beside_it = beside(simulation, machine)
        move(beside_it.files, what)
        before = dict(machine.disk._entries)
        caplog.set_level(logging.CRITICAL)
        await asyncio.sleep(1.1)
        with pytest.raises(StoreError, match="moved, replaced or unlocked"):
            store.append([put(queue, b"lost")])
        assert Gate.ALARMS["not_owned"] & store.log.gate
        assert await bodies(store, queue) == [b"kept"]  # and what is there is served
        await asyncio.sleep(3600)
        assert len(caplog.records) == 1
        assert re.search("/store/(lock|commitlog/0+) is not the file any more .* Stop this broker", caplog.text)
        # Whatever is there now under these names may be another's.
        assert not await store.stop()
        assert dict(machine.disk._entries) == before

    run(main())


@pytest.mark.parametrize("what", ["the lock is removed", "another lock"])
def test_a_second_broker_is_refused_whatever_became_of_the_lock(what: str) -> None:
    async def main() -> None:
        simulation = Simulation(2)
        machine = simulation.node("a")
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"kept")])
        other = beside(simulation, machine)
        move(other.files, what)
        for _ in range(2):
            with pytest.raises(StoreError, match="Lock failed,MQ already started"):
                await opened(other.world, small())
        with pytest.raises(StoreError, match="a broker uses"):
            async with StoppedStore(other.world, small()):
                pass
        await asyncio.sleep(2)
        assert not await store.stop()
        simulation.kill(machine)
        await die(store)
        again = await opened(other.world, small())
        assert await bodies(again, again.queues.get_or_create("T", 0)) == [b"kept"]
        assert await again.stop()

    run(main())


def test_a_store_that_is_put_back_is_recovered() -> None:
    async def main() -> None:
        simulation = Simulation(3)
        machine = simulation.node("a")
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        other = beside(simulation, machine)
        other.files.rename("/store", "/moved")
        store.append([put(queue, b"kept")])  # within the second
        await asyncio.sleep(2)
        assert not await store.stop()
        other.files.rename("/moved", "/store")
        again = await opened(other.world, small())
        assert await bodies(again, again.queues.get_or_create("T", 0)) == [b"kept"]
        assert await again.stop()

    run(main())
