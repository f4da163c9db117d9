"""A transport that fails ends its own connection: not the stop, the sweep or the turn in which it was asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.runtime.world import World
from rmq.testing import simloop
from rmq.testing.simworld import Simulation

EVERYTHING = ("write", "write_eof", "close", "abort", "pause_reading", "resume_reading", "is_closing")


class Refusing:
    """A transport some of whose methods raise."""

    def __init__(self, inner: asyncio.Transport, failing: tuple[str, ...]) -> None:
        self._inner = inner
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        if name not in self._failing:
            return getattr(self._inner, name)

        def fail(*_: object) -> None:
            raise RuntimeError(f"{name} is broken")

        return fail


class Peer(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: Any = None
        self.data = b""
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def begun(failing: tuple[str, ...], limits: Limits | None = None) -> tuple[Server, list[Peer]]:
    """A server with three connections, the first of which is broken."""
    simulation = Simulation(seed=1)
    machine = simulation.node("server")
    router = Router()
    router.on(1, lambda conn, request: request.reply(0))
    server = Server(machine.world, router, limits)
    _, port = await server.start("", 0)
    world: World = simulation.node("client").world
    peers = []
    for _ in range(3):
        _, peer = await world.network.connect(Peer, machine.address, port)
        assert isinstance(peer, Peer)
        peers.append(peer)
    await asyncio.sleep(0.1)
    first = next(iter(server.connections))
    first._transport = Refusing(first._transport, failing)  # type: ignore[arg-type, assignment]
    return server, peers


@pytest.mark.parametrize("failing", [*((name,) for name in EVERYTHING), EVERYTHING], ids=lambda names: names[-1])
def test_a_stop_ends_every_other_connection(failing: tuple[str, ...]) -> None:
    async def main() -> None:
        server, peers = await begun(failing)
        ended: list[str] = []
        server.on_close.append(lambda conn: ended.append(conn.peer))
        await server.stop(seconds=2.0)
        assert not server.connections
        assert len(set(ended)) == len(ended) == 3
        await asyncio.sleep(0.1)
        assert all(peer.lost for peer in peers[1:])

    simloop.run(main())


def test_a_sweep_goes_on_to_the_others() -> None:
    async def main() -> None:
        server, peers = await begun(EVERYTHING, Limits(idle_seconds=5.0))
        await asyncio.sleep(8)
        assert not server.connections
        assert all(peer.lost for peer in peers[1:])
        await server.stop()

    simloop.run(main())


def test_a_tick_answers_the_others() -> None:
    async def main() -> None:
        server, peers = await begun(EVERYTHING)
        for peer in peers:
            peer.transport.write(frame.encode(Command(1)))
        await asyncio.sleep(0.1)
        assert [bool(peer.data) for peer in peers] == [False, True, True]
        assert len(server.connections) == 2
        await server.stop()

    simloop.run(main())
