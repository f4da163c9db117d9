"""Master and slave over loopback, on the loop that the daemons run on: real files, real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rmq.broker.replication.master_service import MasterReplication
from rmq.broker.replication.slave_service import SlaveClient
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.store import Store
from rmq.runtime.loop import loop_factory
from rmq.runtime.world import World
from tests.support.scenes.replication import SIZE, fill, log_bytes
from tests.support.scenes.store import opened, small


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def master(world: World, folder: Path) -> tuple[Store, MasterReplication]:
    store = await opened(world, small(str(folder)))
    settings = BrokerSettings()
    settings.bind_address = "127.0.0.1"
    listener = await world.network.listen(asyncio.Protocol, "127.0.0.1", 0)
    settings.ha_listen_port = listener.address[1]
    await listener.close()
    service = MasterReplication(world, settings, store)
    await service.listen()
    return store, service


async def slave(world: World, folder: Path, address: str) -> tuple[Store, SlaveClient]:
    store = await opened(world, small(str(folder)))
    store.log.gate |= Gate.SLAVE
    client = SlaveClient(world, store, lambda: address, BrokerSettings())
    client.start()
    return store, client


def on_the_loop_of_daemons(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main)


def test_a_slave_follows_stops_and_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        world = World.real()
        leader, service = await master(world, tmp_path / "m")
        address = f"127.0.0.1:{service.settings.ha_listen_port}"
        store, client = await slave(world, tmp_path / "s", address)
        await until(service.slaves)
        fill(leader, 90)
        await until(lambda: store.log.end == leader.log.end)
        await client.stop()
        await store.stop()
        await until(lambda: not service.slaves())
        fill(leader, 90, 90)
        store, client = await slave(world, tmp_path / "s", address)
        await until(lambda: store.log.end == leader.log.end)
        await until(lambda: service.slaves()[0].acked == leader.log.end)
        assert leader.log.end > 4 * SIZE
        assert log_bytes(store) == log_bytes(leader)
        await client.stop()
        await service.stop()
        assert await store.stop()
        assert await leader.stop()
        # The unused space behind the end is zeros in both.
        for file in sorted((tmp_path / "m" / "commitlog").iterdir()):
            assert file.read_bytes() == (tmp_path / "s" / "commitlog" / file.name).read_bytes()

    on_the_loop_of_daemons(main())
