"""Pulls at a slave, and when a master sends a group to one."""

from __future__ import annotations

import asyncio

from rmq.protocol.message import decode_records
from tests.support.raw_peer import pull
from tests.support.scenes.pair import pair, rounds
from tests.support.virtual import in_virtual_time


@in_virtual_time
async def test_who_wants_what_a_slave_has_not_waits_for_it() -> None:
    """Java tells him to ask at once: he would ask without an end for as long as the master is away."""
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await rounds(scene)
        await scene.unfollow()
        await scene.send("T", "b", "c")
        waiting = asyncio.create_task(scene.ask("slave", pull("g", "T", 2, hold_ms=60_000)))
        await asyncio.sleep(5)
        assert not waiting.done()
        await scene.copy_by_hand()
        found = await waiting
        assert [record.body for record in decode_records(found.body)] == [b"c"]


@in_virtual_time
async def test_a_slave_that_is_not_to_be_read_hands_out_nothing_and_skips_nothing() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a")
        await rounds(scene)
        scene.slave.settings.slave_read_enable = False
        at_once = await scene.ask("slave", pull("g", "T"))
        began = asyncio.get_running_loop().time()
        later = await scene.ask("slave", pull("g", "T", hold_ms=60_000))
        waited = asyncio.get_running_loop().time() - began
        for answer in (at_once, later):
            assert answer.ext is not None
            told = (answer.code, answer.ext["nextBeginOffset"], answer.ext["suggestWhichBrokerId"], answer.body)
            assert told == (20, "0", "0", b"")
        assert 0.9 < waited < 2


@in_virtual_time
async def test_a_group_that_is_far_behind_is_sent_to_the_slave() -> None:
    async with pair() as scene:
        await scene.topic("T")
        await scene.send("T", "a", "b", "c")
        await rounds(scene)

        async def told(name: str) -> str | None:
            answer = await scene.ask(name, pull("g", "T"))
            assert answer.ext is not None, answer
            return answer.ext["suggestWhichBrokerId"]

        config = scene.master.groups.find("g")
        assert config is not None
        assert (config.broker_id, config.which_broker_when_consume_slowly) == (0, 1)
        limits = scene.master.front.delivery._reader.limits
        limits.memory_bound = 100
        assert await told("master") == "0", "slaveReadEnable is off there"
        scene.master.settings.slave_read_enable = True
        assert await told("master") == "1"
        limits.memory_bound = 1 << 40
        assert await told("master") == "0"
        assert await told("slave") == "0", "who has caught up goes back to the master"
