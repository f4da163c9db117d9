"""C02 in virtual time: a store dies at every named point, with both types of flush; ``test_kills.py`` does the same to
real processes, of which CI has time for some points only."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rmq.broker.store.store import Store
from rmq.protocol.errors import StoreError
from rmq.runtime.world import World
from rmq.testing.simfiles import SimCrash
from rmq.testing.simworld import SimNode, Simulation
from tests.fault.test_kills import BROKER, POINTS
from tests.support.kills.campaign import LONG, amount
from tests.support.kills.points import Killer, watched
from tests.support.scenes.faulty import Ledger, in_time
from tests.support.scenes.store import die, opened, small

#: At the others real processes die, also in CI.
STORE_POINTS = [point for point in POINTS if point not in BROKER]
#: How often a life may pass by without meeting its point.
_TRIES = 12


def _settings(sync: bool) -> Any:
    return small(sync_flush=sync, queue_flush_interval_ms=100, queue_thorough_interval_ms=400)


async def _work(store: Store, ledger: Ledger, rng: random.Random, count: int) -> None:
    for _ in range(count):
        ledger.append(store, rng, rng.randint(1, 6), together=rng.random() < 0.3)
        await asyncio.sleep(rng.choice((0, 0.001, 0.02, 0.2)))
        if rng.random() < 0.1:
            await ledger.consume(store)


async def _earlier_life(
    simulation: Simulation, machine: SimNode, ledger: Ledger, rng: random.Random, sync: bool
) -> None:
    """Something for a start to find: a clean store, a killed one, and with SYNC_FLUSH one that lost its power."""
    store = Store(machine.world, _settings(sync), ledger.send)
    await store.load()
    await store.start()
    await _work(store, ledger, rng, rng.randint(1, 25))
    end = rng.choice(("stop", "kill", "power") if sync else ("stop", "kill"))
    if end == "stop":
        await store.stop()
    if end == "power":
        simulation.power_cut(machine)
    else:
        simulation.kill(machine)
    await die(store)


async def _life(killer: Killer, seed: int, sync: bool) -> Ledger:
    """Three lives of a store, the second of which ends at the killer's point, and everything that was promised."""
    rng = random.Random(f"{killer.point} {seed} {sync}")
    simulation = Simulation(seed)
    machine = simulation.node("a", fsync_seconds=0.002)
    ledger = Ledger()

    def make(world: World, send: Callable[[Any], None]) -> Store:
        return Store(world, _settings(sync), send)

    await _earlier_life(simulation, machine, ledger, rng, sync)
    store = watched(machine.world, machine.disk, killer, make, ledger.send)
    try:
        await store.load()
        await store.start()
        killer.phase = "run"
        for _ in range(25):
            if not killer.struck:
                await _work(store, ledger, rng, 1)
        killer.phase = "stop"
        if not killer.struck:
            await store.stop()
    except (SimCrash, StoreError):
        assert killer.struck
    if sync and rng.random() < 0.5:
        simulation.power_cut(machine)
    else:
        simulation.kill(machine)
    await die(store)
    store = await opened(machine.world, _settings(sync), start=False)
    await ledger.check(store)
    await store.stop()
    return ledger


@pytest.mark.timeout(0 if LONG else 600)
@pytest.mark.parametrize("sync", [True, False], ids=["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_c02_every_point_in_virtual_time(sync: bool, say: Callable[[str], None]) -> None:
    """I1, I2, I4, I7, I9: what was acknowledged is there, nothing else is, wherever the process died."""
    died: Counter[str] = Counter()
    acknowledged = 0
    for point in STORE_POINTS:
        rng = random.Random(point)
        wanted = amount(1, 20)
        skips = (0, 0, 3, 20) if LONG else (0, 0, 3)
        for seed in range(wanted * _TRIES):
            if died[point] >= wanted:
                break
            killer = Killer(point, skip=rng.choice(skips) if seed < wanted * _TRIES // 2 else 0)

            async def main(killer: Killer = killer, seed: int = seed) -> None:
                nonlocal acknowledged
                acknowledged += len((await _life(killer, seed, sync)).acknowledged)

            in_time(main())
            died[point] += killer.struck
    hit = [point for point in STORE_POINTS if died[point]]
    say(
        f"C02 in virtual time, {'SYNC' if sync else 'ASYNC'}_FLUSH: {len(hit)} of {len(STORE_POINTS)} points, "
        f"{died.total()} deaths at them, {acknowledged} messages acknowledged"
    )
    missed = set(STORE_POINTS) - set(hit)
    assert not missed, f"points that were never reached: {sorted(missed)}"
    assert acknowledged > 10 * len(hit)
