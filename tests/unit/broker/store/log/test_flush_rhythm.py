"""When the commit log and the queues are forced to disk: flushIntervalCommitLog, least pages, timed, thorough."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from rmq.testing.simloop import run
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.store import die, opened, put, small

#: So far away that nothing but the key in question can force anything.
NEVER = 3_600_000


def node() -> SimNode:
    return Simulation(1).node("a")


@pytest.mark.parametrize("timed", [True, False])
def test_after_an_interval_everything_is_on_disk_however_little(timed: bool) -> None:
    """Not so in Java, where less than the least pages waits for flushCommitLogThoroughInterval (10 s)."""

    async def main() -> None:
        settings = small(flush_interval_ms=500, flush_least_pages=1000, flush_timed=timed)
        store = await opened(node().world, settings)
        end = store.append([put(store.queues.get_or_create("T", 0), b"one")]).end
        assert store.durable_end() < end
        await asyncio.sleep(0.6)
        assert store.durable_end() == end
        await store.stop()

    run(main())


@pytest.mark.parametrize(("timed", "pages", "at_once"), [(False, 1, True), (False, 3, False), (True, 1, False)])
def test_least_pages_begin_a_flush_before_its_time_when_it_is_not_timed(timed: bool, pages: int, at_once: bool) -> None:
    async def main() -> None:
        settings = small(flush_interval_ms=NEVER, flush_least_pages=pages, flush_timed=timed)
        store = await opened(node().world, settings)
        end = store.append([put(store.queues.get_or_create("T", 0), bytes(6000))]).end
        await asyncio.sleep(1)
        assert (store.durable_end() == end) is at_once
        await store.stop()

    run(main())


def test_the_thorough_interval_of_the_queues_forces_them_and_moves_the_checkpoint() -> None:
    async def main() -> None:
        machine = node()
        changes: dict[str, Any] = {"queue_flush_interval_ms": 100, "queue_thorough_interval_ms": 5000}
        store = await opened(machine.world, small(**changes))
        store.append([put(store.queues.get_or_create("T", 0), b"one")])
        before = store.checkpoint.logics
        await asyncio.sleep(4.5)
        assert store.checkpoint.logics == before, "written, but not forced"
        await asyncio.sleep(1)
        assert store.checkpoint.logics == store.log.stamp > before
        machine.disk.power_cut()
        path = "/store/consumequeue/T/0/00000000000000000000"
        assert any(machine.files.read(path)), "what the checkpoint says is there after a power cut"

    run(main())


def test_after_a_failed_flush_no_file_is_made_any_more() -> None:
    """Nothing is appended until somebody has looked at the disk: there is nothing to make one for."""

    async def main() -> None:
        machine = node()
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        machine.disk.fail("datasync", errno.EIO, "*commitlog*", count=1000)
        while len(store.log.segments) < 2:  # so that the next file is to be made
            store.append([put(queue, bytes(1000))])
        await asyncio.sleep(1)
        assert store.flusher.failed
        machine.disk.heal()
        files = machine.files.list("/store/commitlog")
        await asyncio.sleep(60)
        assert machine.files.list("/store/commitlog") == files
        assert not store.log.prepared
        machine.files.freeze()
        await die(store)

    run(main())


def test_a_file_that_could_not_be_made_is_tried_again_without_a_message() -> None:
    async def main() -> None:
        machine = node()
        store = await opened(machine.world, small())
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"one")])
        await asyncio.sleep(1)
        assert store.log.prepared
        machine.disk.fail("allocate", errno.ENOSPC, "*commitlog*", count=-1)
        while len(store.log.segments) < 2:
            store.append([put(queue, bytes(1000))])
        await asyncio.sleep(5)
        assert not store.log.prepared
        machine.disk.heal()
        await asyncio.sleep(3)
        assert store.log.prepared
        await store.stop()

    run(main())


def test_what_is_appended_while_queues_are_forced_is_not_in_the_checkpoint_yet() -> None:
    """Java starts its recovery from these times: what it does not find in a queue, nobody would make."""

    async def main() -> None:
        machine = node()
        store = await opened(machine.world, small(queue_flush_interval_ms=NEVER, queue_thorough_interval_ms=NEVER))
        queue = store.queues.get_or_create("T", 0)
        store.append([put(queue, b"one")])
        before = store.log.stamp
        forced = store.writer.sync

        async def busy() -> None:
            await forced()
            await asyncio.sleep(1)
            store.append([put(queue, b"two")])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store.writer, "sync", busy)
            await store.force()
        assert (store.checkpoint.logics, store.log.stamp > before) == (before, True)
        await store.stop()

    run(main())
