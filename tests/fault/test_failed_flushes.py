"""A disk that tells of a failed flush once: who was told, what is written again, and what outlives a power cut then."""

import asyncio
import errno
from typing import Any

import pytest

from rmq.broker.store.log.gate import Gate
from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import (
    LOG_SIZE,
    QUEUE_SIZE,
    SLOTS,
    bodies,
    die,
    found_keys,
    opened,
    put,
    small,
)
from tests.support.store_scan import check_store, scan_index

SLOW = 1.0
#: Of more than a page each: the page in which a log ends is written at every start.
SENT = [b"first" * 1200, b"second" * 1000]


async def begun(simulation: Simulation, **changes: Any) -> tuple[SimNode, Store, list[Any]]:
    """A store on a slow disk that has one message, acknowledged."""
    machine = simulation.node("a", fsync_seconds=SLOW)
    answers: list[Any] = []
    store = Store(machine.world, small(sync_flush=True, **changes), answers.extend)
    await store.load()
    await store.start()
    send(store, SENT[0])
    await asyncio.sleep(3 * SLOW)
    assert answers == [(SENT[0], b"0")]
    return machine, store, answers


def send(store: Store, body: bytes) -> None:
    span = store.append([put(store.queues.get_or_create("T", 0), body, key="k")])
    store.acks.hold(span.end, [(body, b"0")], lambda code: [(body, b"%d" % code)])


async def read(machine: SimNode) -> list[bytes]:
    """What a start finds, which the stop after it leaves clean."""
    store = await opened(machine.world, small())
    queue = store.queues.get("T", 0)
    found = [] if queue is None else await bodies(store, queue)
    assert await store.stop()
    assert not machine.files.exists("/store/abort")
    return found


@pytest.mark.parametrize("how", ["stopped while it fails", "killed", "killed while it fails"])
def test_what_a_flush_failed_for_is_written_again(how: str) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        machine, store, answers = await begun(simulation)
        machine.disk.fail("datasync", errno.EIO, "*commitlog*")
        send(store, SENT[1])
        await asyncio.sleep(0.5 * SLOW if "while" in how else 3 * SLOW)
        if how == "stopped while it fails":
            assert not store.flusher.failed
            assert not await store.stop()
        simulation.kill(machine)
        await die(store)
        if how != "killed while it fails":
            assert answers[1:] == [(SENT[1], b"10")]
            assert store.log.gate & Gate.FSYNC_FAILED
        assert machine.files.exists("/store/abort")
        # Nobody was told that it is stored; it is, and from now on for good.
        assert await read(machine) == SENT[:2]
        simulation.power_cut(machine, all_lost=True)
        assert await read(machine) == SENT[:2]

    run(main())


def test_a_start_that_could_not_force_it_either_leaves_that_to_the_next() -> None:
    async def main() -> None:
        simulation = Simulation(2)
        machine, store, _ = await begun(simulation)
        machine.disk.fail("datasync", errno.EIO, "*commitlog*", count=2)
        send(store, SENT[1])
        await asyncio.sleep(3 * SLOW)
        simulation.kill(machine)
        await die(store)
        with pytest.raises(Exception, match="cannot be used"):
            await opened(machine.world, small())
        simulation.kill(machine)
        assert await read(machine) == SENT[:2]
        simulation.power_cut(machine, all_lost=True)
        assert await read(machine) == SENT[:2]

    run(main())


@pytest.mark.parametrize("cut", [False, True])
def test_after_another_boot_nothing_is_written_again(cut: bool) -> None:
    async def main() -> None:
        simulation = Simulation(3)
        machine, store, _ = await begun(simulation)
        send(store, SENT[1])
        await asyncio.sleep(3 * SLOW)
        if cut:
            simulation.power_cut(machine)
        else:
            simulation.kill(machine)
        await die(store)
        machine.disk.recording = True
        store = await opened(machine.world, small(), start=False)
        machine.disk.recording = False
        written = [path for action, path in machine.disk.journal if action == "pwrite" and "commitlog" in path]
        assert bool(written) is not cut
        await store.abandon()

    run(main())


def test_a_disk_that_takes_nothing_is_read_all_the_same() -> None:
    async def main() -> None:
        simulation = Simulation(4)
        machine, store, _ = await begun(simulation)
        send(store, SENT[1])
        simulation.kill(machine)
        await die(store)
        machine.disk.fail("pwrite", errno.ENOSPC, "*commitlog*", count=-1)
        store = await opened(machine.world, small(), start=False)
        queue = store.queues.get("T", 0)
        assert queue is not None
        assert await bodies(store, queue) == SENT[:2]
        await store.abandon()

    run(main())


@pytest.mark.parametrize("what", ["queues", "all queues at once", "index"])
@pytest.mark.parametrize("stopped", [False, True], ids=["while it runs", "while it stops"])
def test_queues_and_index_of_which_a_flush_failed_are_written_again(
    stopped: bool, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Java would believe of them, should it open the store next, holds after a power cut."""
    if what == "all queues at once":
        monkeypatch.setattr("rmq.broker.store.queues.writer._ONE_BY_ONE", 0)
    action = "sync_tree" if what == "all queues at once" else "datasync"
    pattern = "*/index/*" if what == "index" else "*/consumequeue*"

    async def main() -> None:
        simulation = Simulation(5)
        machine, store, _ = await begun(simulation, queue_thorough_interval_ms=60_000, index_entries=500)
        queue = store.queues.get_or_create("T", 0)
        keys = [f"k{number}" for number in range(400)]
        store.append([put(queue, key=key) for key in keys])
        await asyncio.sleep(15 * SLOW)
        machine.disk.fail(action, errno.EIO, pattern)
        machine.disk.recording = True
        forcing = asyncio.create_task(store.force())
        while not any(  # noqa: ASYNC110
            done == action and pattern.strip("*") in path for done, path in machine.disk.journal
        ):
            await asyncio.sleep(0.5 * SLOW)
        if stopped:
            forcing.cancel()
        await asyncio.wait([forcing])
        await store.force()
        # Nothing is new for the flushes of the stop; they are what the checkpoint of it relies upon.
        assert await store.stop()
        simulation.power_cut(machine, all_lost=True)
        check_store(machine.files, "/store", log_size=LOG_SIZE, queue_size=QUEUE_SIZE)
        (index,) = scan_index(machine.files, "/store", SLOTS, 500)
        assert any(index["slots"])
        store = await opened(machine.world, small(index_entries=500), start=False)
        assert store.recovered.dispatched_from == store.log.end
        assert await found_keys(store, "T", keys) == dict.fromkeys(keys, 1)
        await store.abandon()

    run(main())
