"""A SYNC_MASTER without a slave, with a slow one and with a good one: statuses are true, and consumers are not stopped.

The slave here is what the store is told of one; ``tests/unit/broker/replication`` has real ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from rmq.testing.simloop import run
from tests.support.kills.killer import BrokerProcess
from tests.support.kills.load import read_back, send_command
from tests.support.scenes.pop import pop_scene
from tests.support.scenes.slave import SOON, TIMEOUT_MS, UNWAITED, a_dead_slave_stops_nobody, appeared, seen, sent

SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": str(TIMEOUT_MS)}
FLUSHES = ["ASYNC_FLUSH", "SYNC_FLUSH"]


@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("what", UNWAITED)
def test_a_dead_slave_stops_nobody(what: str, flush: str) -> None:
    a_dead_slave_stops_nobody(flush, what)


@pytest.mark.parametrize("flush", FLUSHES)
def test_who_waits_is_told_11_at_once_and_the_message_is_seen(flush: str) -> None:
    async def main() -> None:
        async with pop_scene(1, **SYNC, flushDiskType=flush) as scene:
            for command in (sent("a"), send_command("T0", 0, ["b", "c"]), sent("d", "DELAY=1")):
                before = scene.outside.clock.monotonic()
                answer = await scene.client.request(scene.addr, command, 60)
                assert answer.code == 11, answer
                assert answer.ext is not None
                assert answer.ext["queueOffset"] is not None
                assert scene.outside.clock.monotonic() - before < SOON
            assert await seen(scene) == ["a", "b", "c"]
            await scene.client.oneway(scene.addr, sent("x"))
            assert await appeared(scene, SOON)

    run(main())


@pytest.mark.parametrize("what", UNWAITED)
def test_with_a_slave_it_is_seen_when_the_slave_has_it_or_is_too_late(what: str) -> None:
    async def main(*, alive: bool) -> None:
        async with pop_scene(1, **SYNC) as scene:
            await scene.topic("T0")
            store = scene.app.store
            store.acks.has_replica = lambda: True
            await UNWAITED[what](scene)
            assert not await appeared(scene, TIMEOUT_MS / 1000 - SOON), "no slave has it, and it may still come"
            if alive:
                store.durability.on_replica("slave", store.log.end)
                assert what in ("delayed", "timed") or await appeared(scene, 0.2)
            # A delayed message is decided twice: where it waits, and where it is delivered.
            assert await appeared(scene, 2 * TIMEOUT_MS / 1000 + SOON)

    run(main(alive=True))
    run(main(alive=False))


def test_with_a_slave_who_waits_gets_0_or_12() -> None:
    async def main() -> None:
        async with pop_scene(1, **SYNC) as scene:
            store = scene.app.store
            store.acks.has_replica = lambda: True
            answer = await scene.client.request(scene.addr, sent("a"), 60)
            assert (answer.code, await seen(scene)) == (12, ["a"])
            store.durability.on_visible = lambda queues: None
            store.durability.on_replica("slave", 1 << 40)
            answer = await scene.client.request(scene.addr, sent("b"), 60)
            assert (answer.code, await seen(scene)) == (0, ["a", "b"])
            # It goes away while a send waits for it: the next is told at once.
            store.acks.has_replica = lambda: False
            assert (await scene.client.request(scene.addr, sent("c"), 60)).code == 11
            assert await seen(scene) == ["a", "b", "c"]

    run(main())


async def test_a_real_broker_says_at_start_that_it_has_no_slaves_and_in_each_answer(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path / "broker", RMQ_BROKER_ROLE="SYNC_MASTER") as broker:
        address = await broker.start()
        client = RemotingClient(World.real())
        try:
            assert (await client.request(address, send_command("T0", 0, ["waits"]), 30)).code == 11
            await client.oneway(address, send_command("T0", 0, ["oneway"]))
            # Answered behind the one-way send of the same connection.
            ext: dict[str, str | None] = {"topic": "T0", "queueId": "0"}
            answer = await client.request(address, Command(30, ext=ext), 30)
            assert (answer.ext or {})["offset"] == "2"
        finally:
            await client.close()
        assert {key for held in (await read_back(address)).places.values() for key, _ in held.values()} == {
            "waits",
            "oneway",
        }
        assert await broker.stop() == 0
    lines = [line for line in broker.errors.splitlines() if "SYNC_MASTER" in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: brokerRole=SYNC_MASTER")
    assert "SLAVE_NOT_AVAILABLE" in lines[0]
