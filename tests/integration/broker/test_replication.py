"""Master and slave over loopback, on the loop that the daemons run on: real files, real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rmq.broker.replication.master import Why
from rmq.broker.replication.master_service import MasterReplication
from rmq.broker.replication.slave_service import SlaveClient
from rmq.broker.replication.wire import report
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.store import Store
from rmq.runtime.loop import loop_factory
from rmq.runtime.world import World
from tests.support.daemons import PATIENCE
from tests.support.scenes.replication import SIZE, fill, log_bytes
from tests.support.scenes.store import opened, put, small


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def master(world: World, folder: Path, size: int = SIZE) -> tuple[Store, MasterReplication]:
    store = await opened(world, small(str(folder), commit_log_file_size=size))
    settings = BrokerSettings()
    settings.bind_address = "127.0.0.1"
    listener = await world.network.listen(asyncio.Protocol, "127.0.0.1", 0)
    settings.ha_listen_port = listener.address[1]
    await listener.close()
    service = MasterReplication(world, settings, store)
    await service.listen()
    return store, service


async def slave(world: World, folder: Path, address: str, size: int = SIZE) -> tuple[Store, SlaveClient]:
    store = await opened(world, small(str(folder), commit_log_file_size=size))
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


def test_strangers_are_closed_and_cost_bounded_memory_while_a_slave_follows(tmp_path: Path) -> None:
    async def main() -> None:
        world = World.real()
        leader, service = await master(world, tmp_path / "m", 1 << 20)
        port = service.settings.ha_listen_port
        store, client = await slave(world, tmp_path / "s", f"127.0.0.1:{port}", 1 << 20)
        await until(service.slaves)

        async def connected(data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            # Java's slaves read 4 MiB at a time; this one takes nothing until it is asked to.
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
            writer.write(data)
            return reader, writer

        lazy = await connected(report(0))
        await until(lambda: len(service.slaves()) == 2)
        crowd = [await connected(b"") for _ in range(1000)]
        queue = leader.queues.get_or_create("T", 0)
        for number in range(240):
            leader.append([put(queue, b"%d" % number * 8000)])
            await asyncio.sleep(0)
        for data, why in (
            (b"\xff" * 64, Why.STRANGE),
            (b"GET / HTTP/1.1\r\n\r\n", Why.AHEAD),
            (report(1 << 60), Why.AHEAD),
        ):
            before = service.refused[why]
            reader, writer = await connected(data)
            assert await reader.read() == b""
            writer.close()
            assert service.refused[why] == before + 1
        await until(lambda: store.log.end == leader.log.end)
        assert log_bytes(store) == log_bytes(leader)
        links = list(service._connections)
        assert len(links) <= 64
        assert max(link._transport.get_write_buffer_size() for link in links if link._transport) < 2 << 20
        assert leader.log.end > 4 << 20
        for _, writer in (lazy, *crowd):
            writer.close()
        await client.stop()
        await service.stop()
        await store.stop()
        await leader.stop()

    on_the_loop_of_daemons(main())
