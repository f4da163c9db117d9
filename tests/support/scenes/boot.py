"""Scenes about what a start believes of the boot before it, for the tests and for the table of planted bugs."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from unittest.mock import patch

from rmq.broker.store.care import upkeep
from rmq.broker.store.start import queue_loader
from rmq.broker.store.state import Queue
from rmq.broker.store.store import Store
from rmq.testing.simworld import SimNode, Simulation
from tests.support.scenes.faulty import Ledger, in_time
from tests.support.scenes.store import LOG_SIZE, die, opened, put, records, small
from tests.support.store_scan import scan_log

__all__ = ["SEGMENT", "a_disk_that_lied_is_found_out", "lost_pages_are_found", "many_deaths", "spoil", "written"]

#: Entries are added up over so little of the log here that recovery begins in the middle of files.
SEGMENT = LOG_SIZE // 4
#: An index to be filled would have more of the log read.
_SETTINGS = {"queue_file_size": 20_000, "index_enable": False}


async def written(machine: SimNode, files: int, **changes: Any) -> tuple[Store, list[bytes]]:
    """A running store of several commit-log files, and the bodies in it."""
    store = await opened(machine.world, small(**_SETTINGS, **changes))
    queue = store.queues.get_or_create("T", 0)
    sent: list[bytes] = []
    while len(store.log.segments) < files:
        sent.append(b"n%05d" % len(sent) * 12)
        store.append([put(queue, sent[-1], key=f"k{len(sent)}")])
    await asyncio.sleep(70)
    return store, sent


def spoil(machine: SimNode, at_least: int) -> int:
    """Flip a bit in the body of the first record from an offset on, beneath the file system; the record's offset."""
    records = scan_log(machine.files, "/store/commitlog", LOG_SIZE).records
    victim = next(record for record in records if record.offset >= at_least)
    path = f"/store/commitlog/{victim.offset - victim.offset % LOG_SIZE:020d}"
    file = machine.disk.open(path)
    at = victim.offset % LOG_SIZE + 90
    with machine.disk.unnoticed(path):
        file.pwrite(bytes([file.pread(1, at)[0] ^ 8]), at)
        file.datasync()
    return victim.offset


async def _read(store: Store) -> int:
    queue = store.queues.get("T", 0)
    assert isinstance(queue, Queue)
    return len(await records(store, queue))


def a_disk_that_lied_is_found_out() -> None:
    """I11: after a power cut the newest files are checked, whatever a flush said of them before it."""

    async def main() -> None:
        simulation = Simulation(31)
        machine = simulation.node("a")
        store, sent = await written(machine, 5)
        forced = store.flusher.flushed
        simulation.power_cut(machine)
        await die(store)
        offset = spoil(machine, 3 * LOG_SIZE + 3000)
        assert offset < forced
        store = await opened(machine.world, small(**_SETTINGS), start=False)
        found = [damage.start for damage in store.recovered.damages]
        assert found == [offset], f"I11: what a disk lost at {offset} was not found, but {found}"
        assert await _read(store) == len(sent) - 1
        await store.stop()

    in_time(main())


def lost_pages_are_found() -> None:
    """I11: a disk that goes away and comes back loses what was not forced, and the boot is the same."""

    async def main() -> None:
        simulation = Simulation(32)
        machine = simulation.node("a", fsync_seconds=1.0)
        store = await opened(machine.world, small(**_SETTINGS))
        queue = store.queues.get_or_create("T", 0)
        count = 0
        while len(store.log.segments) < 10:  # at once: the flush is behind by many files
            store.append([put(queue, b"n%05d" % count * 12)])
            count += 1
        await store.writer.write(everything=True)
        await store.writer.sync()
        lost = 8 * LOG_SIZE + 4096
        assert 0 < store.flusher.flushed < lost
        simulation.kill(machine)
        await die(store)
        path = f"/store/commitlog/{8 * LOG_SIZE:020d}"
        with machine.disk.unnoticed(path):
            machine.disk.open(path).pwrite(bytes(4096), 4096)
        store = await opened(machine.world, small(**_SETTINGS), start=False)
        assert store.recovered.damages, "I11: a page that was not forced is lost, and nobody noticed"
        assert 0 < count - await _read(store) < 40
        await store.stop()

    with patch.object(upkeep, "_NOTE_EVERY", 1):
        in_time(main())


async def _deaths(seed: int, ledger: Ledger) -> int:
    rng = random.Random(seed)
    simulation = Simulation(seed)
    machine = simulation.node("a", fsync_seconds=0.003)
    settings = small(sync_flush=True, queue_flush_interval_ms=100, queue_thorough_interval_ms=400)
    short = 0
    for _ in range(7):
        store = Store(machine.world, settings, ledger.send)
        found = await store.load()
        short += found.checked_from % LOG_SIZE != 0
        await ledger.check(store)
        await store.start()
        for _ in range(rng.randint(5, 40)):
            ledger.append(store, rng, rng.randint(1, 6), together=rng.random() < 0.3)
            await asyncio.sleep(rng.choice((0, 0.001, 0.02, 0.2)))
            if rng.random() < 0.2:
                await ledger.consume(store)
        end = rng.choice(("kill", "kill", "stop", "disk", "power"))
        if end == "stop":
            await store.stop()
            simulation.kill(machine)
            continue
        if end == "kill":
            simulation.kill(machine)
        else:
            simulation.power_cut(machine, all_lost=rng.random() < 0.3, disk_only=end == "disk")
        await die(store)
    store = await opened(machine.world, settings, start=False)
    await ledger.check(store)
    await store.stop()
    return short


def many_deaths(seeds: int = 6) -> None:
    """I1, I2, I4, I7: kills, lost disks, power cuts and stops in turn, starts that check little among them."""
    short = 0
    with patch.object(upkeep, "_NOTE_EVERY", 1), patch.object(queue_loader, "_SEGMENT", SEGMENT):
        for seed in range(seeds):
            ledger = Ledger()

            async def main(seed: int = seed, ledger: Ledger = ledger) -> None:
                nonlocal short
                short += await _deaths(seed, ledger)

            in_time(main())
    assert short > seeds, "the scene proves nothing: hardly a start began within a file"
