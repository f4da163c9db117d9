"""Consumers read from a slave while its master is away, or when they are told to, and find their way back."""

from __future__ import annotations

import asyncio
from collections import Counter

from rmq.aio import MessageExt, PullConsumer, PushConsumer
from rmq.client.message import MessageQueue
from tests.support.scenes.pair import Pair, pair
from tests.support.virtual import eventually, in_virtual_time

QUEUE = MessageQueue("T", "b", 0)


def consumer(scene: Pair, got: Counter[str], *, orderly: bool = False, group: str = "g") -> PushConsumer:
    start = "CONSUME_FROM_FIRST_OFFSET"
    made = PushConsumer(
        group, namesrv=scene.namesrv_addr, world=scene.outside, consume_from_where=start, orderly=orderly
    )

    @made.on("T")
    async def handle(message: MessageExt) -> None:
        got[message.body.decode()] += 1

    return made


async def filled(scene: Pair, count: int = 20) -> list[str]:
    await scene.topic("T")
    bodies = [f"m{number}" for number in range(count)]
    await scene.send("T", *bodies)
    for group in ("g", "o"):
        scene.master.groups.find(group)
        await scene.topic(f"%RETRY%{group}")
    await scene.replicated()
    await asyncio.sleep(12)
    return bodies


@in_virtual_time
async def test_while_the_master_is_away_its_slave_is_read_and_keeps_the_offsets() -> None:
    """Field case B047."""
    async with pair() as scene:
        bodies = await filled(scene)
        got: Counter[str] = Counter()
        in_order: Counter[str] = Counter()
        await scene.master.stop()
        async with consumer(scene, got), consumer(scene, in_order, orderly=True, group="o"):
            await eventually(lambda: len(got) == len(bodies), within=40)
            await eventually(lambda: scene.slave.offsets.query("g", "T", 0) == len(bodies), within=20)
            assert not in_order, "no lock without a master"
            await scene.start_master()
            await eventually(lambda: len(in_order) == len(bodies), within=90)
            await scene.send("T", "after")
            await eventually(lambda: got["after"] == 1, within=90)
            await eventually(lambda: scene.master.offsets.query("g", "T", 0) == len(bodies) + 1, within=90)
            holds = scene.slave.front.delivery.holds
            await eventually(lambda: holds.count == 0, within=60)  # nobody reads from the slave any more
        assert got == Counter([*bodies, "after"]), "nothing twice"


@in_virtual_time
async def test_a_master_that_vanishes_is_not_waited_for_until_name_servers_notice() -> None:
    """A cut cable: name servers tell its address for two minutes more."""
    async with pair() as scene:
        bodies = await filled(scene)
        got: Counter[str] = Counter()
        async with consumer(scene, got):
            await eventually(lambda: len(got) == len(bodies), within=40)
            scene.simulation.net.cut(scene.nodes["master"].address, scene.nodes["client"].address)
            holds = scene.slave.front.delivery.holds
            assert holds.count == 0
            await eventually(lambda: holds.count, within=60)


@in_virtual_time
async def test_who_is_told_reads_from_the_slave_and_comes_back() -> None:
    async with pair(slaveReadEnable="true") as scene:
        await filled(scene)
        scene.master.groups.find("p")
        await asyncio.sleep(12)
        limits = scene.master.front.delivery._reader.limits
        limits.memory_bound = 0
        asked: list[str] = []
        for name, app in (("master", scene.master), ("slave", scene.slave)):
            delivery = app.front.delivery
            serve = delivery._serve
            delivery._serve = lambda *how, name=name, serve=serve: (asked.append(name), serve(*how))[1]  # type: ignore
        async with PullConsumer("p", namesrv=scene.namesrv_addr, world=scene.outside) as puller:
            for offset in (0, 5, 10):
                found = await puller.pull(QUEUE, "*", offset, 5)
                assert len(found.messages) == 5
        # The slave, where they are in memory, sends back who has caught up.
        assert asked == ["master", "slave", "master"]


@in_virtual_time
async def test_a_slave_that_keeps_back_is_no_end_of_messages() -> None:
    async with pair() as scene:
        bodies = await filled(scene)
        scene.slave.settings.slave_read_enable = False
        got: Counter[str] = Counter()
        await scene.master.stop()
        async with consumer(scene, got):
            await asyncio.sleep(40)
            assert not got
            await scene.start_master()
            await eventually(lambda: len(got) == len(bodies), within=90)
