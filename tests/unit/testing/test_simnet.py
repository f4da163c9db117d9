"""The simulated network: order, cut links, half-dead peers, back-pressure."""

from __future__ import annotations

import asyncio

import pytest

from rmq.testing import simloop
from rmq.testing.simworld import Simulation
from tests.support.virtual import in_virtual_time


class Noting(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.events: list[str] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {type(exc).__name__}")


class Pair:
    def __init__(self) -> None:
        self.simulation = Simulation()
        self.one = self.simulation.node("one")
        self.two = self.simulation.node("two")
        self.accepted: list[Noting] = []

    async def connect(self) -> tuple[Noting, Noting]:
        def accept() -> Noting:
            self.accepted.append(Noting())
            return self.accepted[-1]

        listener = await self.two.world.network.listen(accept, "", 0)
        _, near = await self.one.world.network.connect(Noting, *listener.address)
        assert isinstance(near, Noting)
        return near, self.accepted[-1]


def test_bytes_arrive_in_order_and_the_end_after_them() -> None:
    async def main() -> None:
        near, far = await Pair().connect()
        for number in range(100):
            near.transport.write(bytes([number]))
        near.transport.close()
        await asyncio.sleep(1)
        assert far.received == bytes(range(100))
        assert far.events == ["lost NoneType"]
        assert near.events == ["lost NoneType"]
        assert far.transport.get_extra_info("peername")[0] == "10.0.0.1"

    simloop.run(main())


def test_a_cut_link_is_silent_until_it_heals() -> None:
    async def main() -> None:
        pair = Pair()
        near, far = await pair.connect()
        pair.simulation.net.cut(pair.one.address, pair.two.address)
        near.transport.write(b"x")
        await asyncio.sleep(100)
        assert (far.received, far.events, near.events) == (b"", [], [])
        pair.simulation.net.heal()
        await asyncio.sleep(1)
        assert far.received == b"x"

    simloop.run(main())


def test_a_reader_that_pauses_fills_the_writer() -> None:
    async def main() -> None:
        near, far = await Pair().connect()
        near.transport.set_write_buffer_limits(100, 10)
        far.transport.pause_reading()
        near.transport.write(b"x" * 101)
        await asyncio.sleep(1)
        assert near.events == ["pause"]
        assert near.transport.get_write_buffer_size() == 101
        far.transport.resume_reading()
        await asyncio.sleep(1)
        assert near.events == ["pause", "resume"]
        assert len(far.received) == 101

    simloop.run(main())


def test_a_killed_peer_resets_its_connections_and_hears_nothing() -> None:
    async def main() -> None:
        pair = Pair()
        near, far = await pair.connect()
        pair.simulation.kill(pair.two)
        await asyncio.sleep(1)
        assert near.events == ["lost ConnectionResetError"]
        assert far.events == []
        with pytest.raises(ConnectionRefusedError):
            await pair.one.world.network.connect(Noting, pair.two.address, 30_001)

    simloop.run(main())


@in_virtual_time
async def test_a_free_port_is_none_that_somebody_asked_for_by_number() -> None:
    network = Simulation().node("one").network
    first = await network.listen(asyncio.Protocol, "", 0)
    port = first.address[1]
    await network.listen(asyncio.Protocol, "", port + 1)
    assert (await network.listen(asyncio.Protocol, "", 0)).address[1] == port + 2


@in_virtual_time
async def test_ports_that_are_kept_wait_for_their_listeners() -> None:
    network = Simulation().node("one").network
    free = (await network.listen(asyncio.Protocol, "", 0)).address[1]
    kept = await network.reserve("", (-2, 1))
    assert kept.port == free + 1
    assert (await network.listen(asyncio.Protocol, "", 0)).address[1] == free + 3  # the next one is kept
    assert (await network.reserve("", (-1,))).port == free + 5  # below the next one is a listener
    assert (await network.listen(asyncio.Protocol, "", kept.port)).address[1] == kept.port
    kept.release()
    await network.listen(asyncio.Protocol, "", kept.port + 1)
