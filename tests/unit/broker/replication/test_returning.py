"""A master that returns takes over how far groups have come at its slaves."""

from __future__ import annotations

import asyncio

import pytest

from rmq.broker.app import BrokerApp
from rmq.protocol.names import TIMER_GROUP
from tests.support.scenes.pair import Pair, pair, rounds
from tests.support.virtual import in_virtual_time


def offset(scene: Pair, group: str = "g", topic: str = "T") -> int:
    return scene.slave.offsets.query(group, topic, 0)


@in_virtual_time
async def test_a_master_that_returns_goes_on_where_groups_are_at_its_slave() -> None:
    """Field case B101."""
    async with pair() as scene:
        for topic in ("T", "U"):
            await scene.topic(topic)
            await scene.send(topic, *"abcdefghij")
        await scene.commit("master", "g", "T", 5)
        await scene.commit("master", "h", "T", 9)
        await rounds(scene)
        await scene.master.stop()
        await scene.commit("slave", "g", "T", 8)
        await scene.commit("slave", "g", "U", 400)
        for group, topic in (("h", "T"), (TIMER_GROUP, "T"), ("g", "Elsewhere")):
            scene.slave.offsets.commit(group, topic, 0, 7)
        asked = []
        listen = BrokerApp._listen

        async def listening(app: BrokerApp) -> None:
            asked.append(app.offsets.query("g", "T", 0))
            await listen(app)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BrokerApp, "_listen", listening)
            await scene.start_master()
        assert asked == [8], "before it serves anybody"
        offsets = scene.master.offsets
        assert offsets.query("h", "T", 0) == 9
        assert offsets.query("g", "U", 0) == 10, "no further than the queue"
        assert offsets.query(TIMER_GROUP, "T", 0) == -1
        assert offsets.query("g", "Elsewhere", 0) == -1
        await rounds(scene)
        assert offset(scene) == 8


@in_virtual_time
async def test_a_master_without_messages_takes_no_offsets_over() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a", "b")
        await scene.commit("master", "g", "T", 2)
        await rounds(scene)
        await scene.master.stop()
        await scene.start_master(storePathRootDir="/other")
        assert scene.master.offsets.query("g", "T", 0) == -1


@in_virtual_time
async def test_a_slave_that_does_not_answer_delays_its_master_by_seconds() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await scene.commit("master", "g", "T", 1)
        await scene.master.stop()
        scene.slave.offsets.encode = lambda: asyncio.sleep(1000, b"")  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        await scene.start_master()
        assert asyncio.get_running_loop().time() - began < 5
        assert scene.master.offsets.query("g", "T", 0) == 1
