"""A slave that follows a scripted master, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq.broker.replication.slave_service import SlaveClient
from rmq.broker.replication.wire import header, report
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.store import Store
from rmq.testing.simworld import Simulation
from tests.support.scenes.replication import SIZE, filled_log, log_bytes, record_head
from tests.support.scenes.store import opened, small
from tests.support.virtual import eventually, in_virtual_time


class Master(asyncio.Protocol):
    """Takes reports; sends what the test says."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.got = b""
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.scene.masters.append(self)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def unit(self, offset: int, data: bytes) -> None:
        self.transport.write(header(offset, len(data)) + data)


class Scene:
    """A slave's store and client, and the connections its master has seen."""

    def __init__(self, simulation: Simulation, store: Store, **settings: object) -> None:
        self.simulation = simulation
        self.store = store
        self.masters: list[Master] = []
        self.address: str | None = None
        values = BrokerSettings()
        for key, value in settings.items():
            setattr(values, key, value)
        self.client = SlaveClient(simulation.nodes["s"].world, store, lambda: self.address, values)

    async def connected(self, count: int) -> Master:
        await eventually(lambda: len(self.masters) == count)
        return self.masters[-1]

    async def following(self, data: bytes) -> Master:
        """The first master, which has sent a log: it is stored."""
        master = await self.connected(1)
        master.unit(0, data)
        await eventually(lambda: self.store.log.end == len(data))
        return master


@asynccontextmanager
async def scene(*, listening: bool = True, **settings: object) -> AsyncIterator[Scene]:
    simulation = Simulation(3)
    master, slave = simulation.node("m"), simulation.node("s")
    store = await opened(slave.world, small())
    store.log.gate |= Gate.SLAVE
    made = Scene(simulation, store, **settings)
    if listening:
        listener = await master.network.listen(lambda: Master(made), "", 10912)
        made.address = f"{master.address}:{listener.address[1]}"
    made.client.start()
    try:
        yield made
    finally:
        await made.client.stop()
        await store.stop()


@in_virtual_time
async def test_it_stores_and_acknowledges_what_comes() -> None:
    data = await filled_log(90)
    async with scene() as s:
        master = await s.connected(1)
        await eventually(lambda: master.got == report(0))
        master.unit(0, data[:1000])
        await eventually(lambda: len(master.got) == 16)
        acknowledged = int.from_bytes(master.got[8:], "big")
        assert 1000 - 36 < acknowledged <= 1000
        for at in range(1000, len(data), 777):
            for lo, hi in pieces(at, min(at + 777, len(data))):
                master.unit(lo, data[lo:hi])
        await eventually(lambda: s.store.log.end == len(data))
        assert log_bytes(s.store) == data
        await eventually(lambda: not s.store.dispatcher.behind)
        assert s.store.durability.visible == len(data)
        status = s.client.status()
        assert (status.connected, status.end, status.received, status.trouble) == (True, len(data), len(data), None)


def pieces(lo: int, hi: int) -> list[tuple[int, int]]:
    """A range, cut where files end."""
    middle = lo - lo % SIZE + SIZE
    return [(lo, hi)] if hi <= middle else [(lo, middle), (middle, hi)]


@in_virtual_time
async def test_it_goes_on_from_the_exact_offset_once_the_next_connection_has_the_same_before_it() -> None:
    data = await filled_log(30)
    async with scene() as s:
        master = await s.connected(1)
        master.unit(0, data[:5000])
        await eventually(lambda: s.store.log.end > 4900)
        end = s.store.log.end
        # A good link that ends is made again at once, or after the pause that a short one costs.
        master.transport.abort()
        master = await s.connected(2)
        await eventually(lambda: master.got)
        asked = int.from_bytes(master.got, "big")
        assert end - 1000 < asked < end
        master.unit(asked, data[asked:end])
        await eventually(lambda: master.got == report(asked) + report(end))
        master.unit(end, data[end:])
        await eventually(lambda: s.store.log.end == len(data))
        assert log_bytes(s.store) == data


@in_virtual_time
async def test_a_master_with_another_log_is_left_and_tried_again_after_a_pause() -> None:
    data = await filled_log(30)
    async with scene() as s:
        master = await s.following(data)
        master.unit(len(data) + 1, b"")
        await eventually(lambda: master.lost)
        status = s.client.status()
        assert (status.connected, status.refused) == (False, 1)
        assert "the two logs are not the same" in (status.trouble or "")
        assert await eventually(lambda: len(s.masters) == 2) < 5.1
        assert log_bytes(s.store) == data


@in_virtual_time
async def test_what_is_to_be_done_where_files_have_another_size_is_something_else() -> None:
    data = await filled_log(30)
    async with scene() as s:
        master = await s.following(data)
        master.unit(len(data), record_head(len(data), SIZE))
        await eventually(lambda: master.lost)
        assert log_bytes(s.store) == data
        trouble = s.client.status().trouble or ""
        assert "set the master's number here, and: mqadmin store truncate --all" in trouble
        assert "--to-master" not in trouble


@in_virtual_time
async def test_a_silent_master_is_given_up() -> None:
    async with scene() as s:
        master = await s.connected(1)
        assert 19 < await eventually(lambda: master.lost) < 21
        # Its own signs of life, every 5 s.
        assert master.got == report(0) * 4
        await s.connected(2)


@in_virtual_time
async def test_it_looks_for_an_address_and_follows_a_master_that_moves() -> None:
    async with scene(listening=False) as s:
        await asyncio.sleep(60)
        assert not s.masters
        node = s.simulation.nodes["m"]
        for port in (10912, 20912):
            await node.network.listen(lambda: Master(s), "", port)
        s.address = f"{node.address}:10912"
        first = await s.connected(1)
        s.address = f"{node.address}:20912"
        await eventually(lambda: first.lost)
        second = await s.connected(2)
        assert second.transport.get_extra_info("sockname")[1] == 20912
        s.address = "nonsense"
        await eventually(lambda: second.lost)
        await eventually(lambda: "nonsense" in (s.client.status().trouble or ""), within=20)


@pytest.mark.parametrize(
    ("known", "told"),
    [("10.0.0.1:10912", False), ("10.9.9.9:10912", True), ("10.0.0.1:20912", True), ("a.name:10912", False)],
)
@in_virtual_time
async def test_a_ha_master_address_that_is_not_its_masters_is_told_of_once(
    known: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(listening=False, ha_master_address="10.0.0.1:10912", broker_name="b") as s:
        await s.simulation.nodes["m"].network.listen(lambda: Master(s), "", 10912)
        s.address = known
        for count in (1, 2):
            master = await s.connected(count)
            master.transport.abort()
        lines = [record.message for record in caplog.records if "haMasterAddress" in record.message]
    assert len(lines) == told
    assert all(f"leads to 10.0.0.1:10912, and name servers say that the master of b sends its log from {known}" in one
               for one in lines)  # fmt: skip


@in_virtual_time
async def test_who_closes_at_once_is_perhaps_no_master_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        (await s.connected(1)).transport.abort()
        await asyncio.sleep(1)
        assert "following the master fails: 10.0.0.1:10912: the master has closed the connection" in caplog.text
        assert "or this is not the port where it listens for slaves, its listenPort + 1" in caplog.text
        master = await s.connected(2)
        master.unit(0, b"")
        await asyncio.sleep(1)
        master.transport.abort()
        await asyncio.sleep(1)
        assert (s.client.status().trouble or "").endswith("or is gone: its log says why")


@in_virtual_time
async def test_a_disk_that_refuses_ends_the_connection_and_nothing_is_acknowledged() -> None:
    data = await filled_log(30)
    async with scene() as s:
        master = await s.connected(1)
        await eventually(lambda: master.got == report(0))
        s.store.log.gate |= Gate.DISK_FULL
        master.unit(0, data)
        await eventually(lambda: master.lost)
        assert (master.got, s.store.log.end) == (report(0), 0)
        s.store.log.gate &= ~Gate.DISK_FULL
        master = await s.connected(2)
        master.unit(0, data)
        await eventually(lambda: s.store.log.end == len(data))


@in_virtual_time
async def test_nothing_is_acknowledged_before_it_is_written() -> None:
    data = await filled_log(30)
    async with scene() as s:
        master = await s.connected(1)
        await eventually(lambda: master.got == report(0))
        (pipe,) = s.simulation.net.pipes_of(s.simulation.nodes["s"].address)
        append, reported = s.store.append_raw, []

        def watched(offset: int, body: bytes) -> None:
            reported.append(pipe.total_written // 8)
            append(offset, body)

        s.store.append_raw = watched  # type: ignore[method-assign]
        units = [header(at, len(data[at : at + 1000])) + data[at : at + 1000] for at in range(0, len(data), 1000)]
        for one in units:
            master.transport.write(one)
            await asyncio.sleep(0.1)
        assert s.store.log.end == len(data)
        assert len(reported) == len(units)
        assert all(count <= 1 + number for number, count in enumerate(reported))
        await eventually(lambda: master.got.endswith(report(len(data))))


@in_virtual_time
async def test_it_acknowledges_what_is_on_disk_when_told_to() -> None:
    data = await filled_log(30)
    async with scene(ha_ack_after_flush=True) as s:
        master = await s.connected(1)
        await eventually(lambda: master.got == report(0))
        delay = s.simulation.nodes["s"].world.offload
        delay.delay = 2.0  # type: ignore[attr-defined]
        master.unit(0, data)
        await eventually(lambda: s.store.log.end == len(data))
        await asyncio.sleep(1)
        assert master.got == report(0)
        await eventually(lambda: master.got.endswith(report(len(data))))
        assert s.store.durable_end() == len(data)
