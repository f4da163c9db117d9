"""H04 and H08: a machine of a pair goes, in the middle of anything, with its disk or for a minute.

With SYNC_MASTER nothing is lost that was acknowledged; with ASYNC_MASTER the youngest of it at most. Groups that went
on at the slave go on from there when their master is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq.broker.store.log.durability import Durability
from rmq.runtime.real import seeded
from rmq.testing.simfiles import SimCrash
from rmq.testing.simloop import run
from tests.support.history import OK, Seen, Send, Verdict, judge, read_histories, sends_of
from tests.support.kills.campaign import LONG, amount
from tests.support.kills.load import Load, read_back
from tests.support.scenes.pair import Pair, pair, rounds
from tests.support.virtual import eventually

SEEDS = range(amount(1, 300))
#: Messages that are stored before anything goes wrong: a campaign that acknowledges nothing loses nothing.
_LEAST = 30


async def dies(scene: Pair, how: Callable[[], object]) -> None:
    """The master's process is no more."""
    dead, scene.master = scene.master, None  # type: ignore[assignment]
    how()
    with contextlib.suppress(SimCrash, Exception):  # nothing answers it
        await dead.stop()


async def gone_with_its_disk(scene: Pair, load: Load, seed: int) -> None:
    """Send and consume, with a slave that comes and goes, until the master's machine is no more."""
    rng = seeded(seed)
    master, slave = (scene.nodes[name] for name in ("master", "slave"))
    clients = asyncio.create_task(load.run(scene.addr("master"), lambda: False))
    await eventually(lambda: load.acknowledged >= _LEAST)
    for _ in range(rng.randrange(4)):
        await asyncio.sleep(rng.random())
        how = rng.choice(("cut", "restart", "slow"))
        if how == "cut":
            scene.simulation.net.cut(master.address, slave.address)
            await asyncio.sleep(rng.choice((0.05, 1.0, 4.0, 25.0) if LONG else (0.05, 1.0)))
            scene.simulation.net.heal()
        elif how == "restart":
            await scene.slave.stop()
            await asyncio.sleep(rng.random() * 3)
            await scene.start_slave()
        else:
            scene.simulation.net.latency = rng.choice((0.0002, 0.005, 0.05))
    await asyncio.sleep(rng.random())
    if rng.random() < 0.5:
        scene.simulation.net.cut(master.address, slave.address)
        await asyncio.sleep(rng.random() * 2)
    await dies(scene, lambda: scene.simulation.power_cut(master, all_lost=True))
    await clients
    scene.simulation.net.heal()
    await scene.slave.stop()
    await scene.start_slave(brokerRole="ASYNC_MASTER", brokerId="0")


async def what_is_left(role: str, seed: int, folder: Path) -> tuple[dict[str, Send], Seen]:
    """Every send, and what the promoted slave gives to consumers."""
    async with pair(brokerRole=role) as scene:
        for topic in ("T0", "T1"):
            await scene.topic(topic, queues=2)
        await rounds(scene)
        sends_log = scene.master.roles.sends_log
        await eventually(lambda: sends_log and sends_log.slaves())
        load = Load(folder, seed=seed, producers=4, answer=60.0, pause=0.04, world=scene.outside)
        await gone_with_its_disk(scene, load, seed)
        seen = await read_back(scene.addr("slave"), world=scene.outside)
        load.close()
        return sends_of(read_histories(folder))[0], seen


def held_against(sends: dict[str, Send], seen: Seen, folder: Path, *, may_lose: bool) -> Verdict:
    """I1 to I7 of what is left; what may be lost is excused when it is the youngest.

    What was answered with 11 or 12, or that nobody waited for, consumers get although one machine alone has it.
    """
    there = {key for items in seen.places.values() for key, _ in items.values()}
    promised = [send for send in sends.values() if send.outcome == OK and send.claims]
    assert len(promised) > 10
    lost = [send for send in sends.values() if send.outcome == OK and send.key not in there]
    excused = sends.keys() - there if may_lose else sends.keys() - there - {send.key for send in promised}
    verdict = judge(read_histories(folder), [seen], lost_ok=excused)
    verdict.counts["lost"] = len(lost)
    newest = min((send.end for send in lost), default=1 << 62)
    for send in sends.values():
        if send.key in there and send.begin > newest:
            verdict.fault("I1", f"{send.key} is there, and what was acknowledged before it was sent is lost")
    return verdict


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_where_a_slave_has_to_have_it(seed: int, tmp_path: Path) -> None:
    sends, seen = run(what_is_left("SYNC_MASTER", seed, tmp_path))
    held_against(sends, seen, tmp_path, may_lose=False).demand()


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_youngest_is_lost_where_nobody_waits_for_a_slave(seed: int, tmp_path: Path) -> None:
    sends, seen = run(what_is_left("ASYNC_MASTER", seed, tmp_path))
    held_against(sends, seen, tmp_path, may_lose=True).demand()


async def gone_for_a_minute(seed: int, folder: Path) -> Verdict:
    """Groups go on at the slave; the verdict of both brokers and of what each group was given."""
    rng = seeded(seed)
    async with pair(brokerRole="SYNC_MASTER", haCopyFromFirstFile="true") as scene:
        for topic in ("T0", "T1"):
            await scene.topic(topic, queues=2)
        await rounds(scene)
        load = Load(folder, seed=seed, producers=2, answer=60.0, pause=0.04, world=scene.outside)
        clients = asyncio.create_task(load.run(scene.addr("master"), lambda: False))
        await asyncio.sleep(1 + 10 * rng.random() * LONG)
        await dies(scene, lambda: scene.simulation.kill(scene.nodes["master"]))
        await clients
        await eventually(lambda: scene.slave.store.dispatcher.behind == 0)
        await load.finish(scene.addr("slave"))
        await asyncio.sleep(60)
        there = scene.slave.offsets.reached()
        assert len(there) == len(load.places)
        await scene.start_master()
        here = scene.master.offsets.reached()
        assert {place: here.get(place) for place in there} == there, "I18: an offset went back"
        until = asyncio.get_running_loop().time() + 1
        await load.run(scene.addr("master"), lambda: asyncio.get_running_loop().time() > until)
        await load.finish(scene.addr("master"))
        await rounds(scene)
        seen = [await read_back(scene.addr(name), name=name, world=scene.outside) for name in ("master", "slave")]
        load.close()
        return judge(read_histories(folder), seen, all_consumed=True)


@pytest.mark.parametrize("seed", range(amount(1, 100)))
def test_groups_go_on_where_they_were_when_their_master_is_back(seed: int, tmp_path: Path) -> None:
    run(gone_for_a_minute(seed, tmp_path)).demand()


def test_it_is_seen_when_a_master_does_not_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Durability, "_met", lambda self, held: True)
    for seed in range(8):
        sends, seen = run(what_is_left("SYNC_MASTER", seed, tmp_path / str(seed)))
        if any(
            fault.startswith("I1") for fault in held_against(sends, seen, tmp_path / str(seed), may_lose=False).faults
        ):
            return
    pytest.fail("not seen")
