"""ALICE-lite: the disk as it is after every step of a trace is recovered, killed and cut off from power (C03, C10)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from rmq.broker.store.store import Store
from rmq.runtime.real import seeded
from rmq.testing.simdisk import SimDisk
from rmq.testing.simworld import Simulation
from tests.support.faults.trace import Trace, traced
from tests.support.kills.campaign import LONG, amount
from tests.support.scenes.damaged import metadata_is_old_or_new
from tests.support.scenes.faulty import Key, Ledger, in_time
from tests.support.scenes.store import die, opened, small, snapshot

#: Steps of the trace that is recovered at every one of them.
STEPS = 200
SUBSETS = amount(1, 8)


async def _work(trace: Trace) -> tuple[Ledger, list[dict[Key, bytes]]]:
    """Two lives with a clean stop between them; what had been acknowledged after each step."""
    simulation = Simulation(11)
    machine = simulation.node("a", fsync_seconds=0.002)
    rng = random.Random(11)
    ledger = Ledger()
    promised: list[dict[Key, bytes]] = []

    def now() -> None:
        while len(promised) <= len(trace):
            promised.append(dict(ledger.acknowledged))

    def send(answers: Any) -> None:
        now()  # promises hold from here on, not for the steps before
        ledger.send(answers)

    settings = small(sync_flush=True, queue_flush_interval_ms=20, queue_thorough_interval_ms=50)
    for life in range(2):
        world = traced(machine.world, machine.disk, trace)
        store = Store(world, settings, send)
        await store.load()
        await store.start()
        while len(trace) < STEPS * (life + 1) // 2 + life * 20:
            ledger.append(store, rng, rng.randint(1, 5), together=rng.random() < 0.3)
            await asyncio.sleep(rng.choice((0.001, 0.01, 0.03)))
        if life == 0:
            await store.stop()
        else:
            await die(store)
        simulation.kill(machine)
    now()
    return ledger, promised


async def _recover(disk: SimDisk, ledger: Ledger, promised: dict[Key, bytes], what: str, *, twice: bool) -> None:
    simulation = Simulation(1)
    machine = simulation.node("a")
    machine.disk = disk
    world = simulation._world("a", machine.address, disk, machine.clock, 0.0)
    found = Ledger()
    found.sent = ledger.sent
    found.acknowledged = promised
    try:
        store = await opened(world, small(), start=False)
        await found.check(store)
        if twice:
            first = await snapshot(store)
            world.files.freeze()  # type: ignore[attr-defined]
            await die(store)
            store = await opened(simulation._world("a", machine.address, disk, machine.clock, 0.0), small())
            assert await snapshot(store) == first, "I10: a second recovery found something else"
        await store.stop()
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error


@pytest.mark.timeout(0 if LONG else 600)
def test_every_prefix_of_a_trace_is_recovered(say: Callable[[str], None]) -> None:
    recoveries = 0

    async def main() -> None:
        nonlocal recoveries
        trace = Trace()
        ledger, promised = await _work(trace)
        assert len(trace) >= STEPS
        assert len(ledger.acknowledged) > 40
        for count in range(len(trace) + 1):
            due = promised[min(count, len(promised) - 1)]
            what = f"after step {count}, {trace.describe(count)}"
            await _recover(trace.disk_after(count), ledger, due, f"killed {what}", twice=count % 8 == 0)
            disk = trace.disk_after(count)
            disk.power_cut()
            await _recover(disk, ledger, due, f"power cut {what}", twice=count % 8 == 4)
            recoveries += 2
            for seed in range(SUBSETS):
                disk = trace.disk_after(count)
                disk.power_cut(seeded(count * 100 + seed))
                await _recover(disk, ledger, due, f"power cut (seed {seed}) {what}", twice=False)
                recoveries += 1

    in_time(main())
    say(f"crash images: {recoveries} recoveries")
    assert recoveries >= STEPS * (2 + SUBSETS)


@pytest.mark.parametrize(
    "name",
    [
        "topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json",
        "lmqConsumerOffset.json", "messageRequestMode.json",
    ],
)  # fmt: skip
def test_c10_b005_b007_metadata_is_the_old_or_the_new_version_after_every_step(name: str) -> None:
    metadata_is_old_or_new(name, SUBSETS)
