"""Peers that begin frames and do not end them: what they hold is bounded, and who goes on comes through."""

from __future__ import annotations

import asyncio

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.runtime.world import World
from tests.support.virtual import eventually, in_virtual_time, one_world

_MIB = 1 << 20
_PIECE = 64 << 10


class Peer(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self) -> None:
        self.data = b""
        self.lost = False
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def to(cls, world: World, address: tuple[str, int]) -> Peer:
        transport, peer = await world.network.connect(cls, *address)
        assert isinstance(peer, cls)
        assert isinstance(transport, asyncio.Transport)
        peer.transport = transport
        return peer

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._writable.set()

    async def write(self, data: bytes, *, pause: float = 0.001) -> None:
        """Write in pieces, as the other side takes them."""
        for at in range(0, len(data), _PIECE):
            await self._writable.wait()
            if self.lost:
                return
            self.transport.write(data[at : at + _PIECE])
            await asyncio.sleep(pause)


def held(server: Server) -> int:
    """Bytes of unfinished frames, counted where they lie."""
    return sum(len(chunk) for conn in server.connections for chunk in conn._chunks)


async def begun(limits: Limits) -> tuple[Server, World, tuple[str, int]]:
    world = one_world()
    router = Router()
    router.on(1, lambda conn, request: request.reply(0, str(len(request.body))))
    server = Server(world, router, limits)
    return server, world, await server.start("127.0.0.1", 0)


def asked(size: int) -> bytes:
    return frame.encode(Command(1, body=bytes(size)))


@in_virtual_time
async def test_many_that_never_end_their_frames() -> None:
    server, world, address = await begun(Limits(unfinished=16 * _MIB))
    begin = asked(3 * _MIB)[:-100_000]
    stuck = [await Peer.to(world, address) for _ in range(100)]
    writing = [asyncio.create_task(peer.write(begin)) for peer in stuck]
    await asyncio.sleep(3)
    assert server.unfinished.total == held(server)
    # The bound; one that is read beyond it; and of each what is not looked at, and a piece.
    assert 12 * _MIB < held(server) < 16 * _MIB + 3 * _MIB + 100 * 2 * _PIECE
    assert len(server.unfinished.waiting) > 80
    small = await Peer.to(world, address)
    for at in range(20):
        whole = asked(12_000)
        await small.write(whole[:6_000])
        await small.write(whole[6_000:])
        await eventually(lambda: small.data.count(b"12000") > at, within=0.1)  # noqa: B023
    large = await Peer.to(world, address)
    await large.write(asked(2 * _MIB))
    await eventually(lambda: large.data, within=120)
    assert not large.lost
    assert server.unfinished.closed
    await eventually(lambda: all(peer.lost for peer in stuck), within=4_000, step=1.0)
    for task in writing:
        await task
    assert (server.unfinished.total, server.unfinished.holding, server.unfinished.waiting) == (0, {}, {})
    await server.stop()


@in_virtual_time
async def test_more_than_the_bound_of_those_who_go_on() -> None:
    server, world, address = await begun(Limits(unfinished=8 * _MIB))
    peers = [await Peer.to(world, address) for _ in range(30)]
    most = 0

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, held(server))
            await asyncio.sleep(0.001)

    looking = asyncio.create_task(look())
    await asyncio.gather(*(peer.write(asked(3 * _MIB) * 2, pause=0.002) for peer in peers))
    await eventually(lambda: all(peer.data.count(str(3 * _MIB).encode()) == 2 for peer in peers))
    looking.cancel()
    assert 8 * _MIB < most < 8 * _MIB + 3 * _MIB + 30 * 2 * _PIECE
    assert (server.unfinished.total, server.unfinished.closed) == (0, 0)
    await server.stop()


@in_virtual_time
async def test_whole_frames_are_not_counted() -> None:
    server, world, address = await begun(Limits())
    counted: list[Conn] = []
    server.unfinished.note = lambda conn, size: counted.append(conn)  # type: ignore[method-assign]
    peer = await Peer.to(world, address)
    for size in (0, 10_000):
        peer.transport.write(asked(size))
        await asyncio.sleep(0.1)
    assert peer.data.count(b"10000") == 1
    assert counted == []
    await server.stop()
