"""Live settings of the registration with name servers, as a name server sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.namesrv import QueryDataVersionResponse, RegisterBrokerResponse
from rmq.remoting.conn import Conn
from rmq.remoting.router import Router, handles
from rmq.remoting.server import Server
from tests.support.scenes.live import LiveScene, live
from tests.support.virtual import eventually


class Namesrv:
    """A name server that counts, and may be slow."""

    def __init__(self) -> None:
        self.registrations: list[Command] = []
        self.looks = 0
        self.delay = 0.0

    @handles(RequestCode.REGISTER_BROKER)
    async def register(self, conn: Conn, request: Command) -> Command:
        self.registrations.append(request)
        await asyncio.sleep(self.delay)
        return request.reply(ResponseCode.SUCCESS, header=RegisterBrokerResponse())

    @handles(RequestCode.QUERY_DATA_VERSION)
    def version(self, conn: Conn, request: Command) -> Command:
        self.looks += 1
        return request.reply(ResponseCode.SUCCESS, header=QueryDataVersionResponse(changed=False))

    @handles(RequestCode.UNREGISTER_BROKER)
    def unregister(self, conn: Conn, request: Command) -> Command:
        return request.reply(ResponseCode.SUCCESS)

    async def within(self, seconds: float) -> int:
        """How many registrations come in the next time."""
        before = len(self.registrations)
        await asyncio.sleep(seconds)
        return len(self.registrations) - before


@asynccontextmanager
async def namesrv(s: LiveScene) -> AsyncIterator[Namesrv]:
    """A name server that the broker was told of."""
    served = Namesrv()
    node = s.simulation.node("namesrv")
    server = Server(node.world, Router([served]))
    await server.start(node.address, 9876)
    try:
        await s.update(namesrvAddr=f"{node.address}:9876")
        await asyncio.sleep(1)
        yield served
    finally:
        await server.stop()


@live("namesrvAddr")
async def test_whom_the_broker_registers_with(s: LiveScene) -> None:
    async with namesrv(s) as served:
        assert served.registrations


@live("registerNameServerPeriod", "forceRegister", "compressedRegister")
async def test_how_it_registers(s: LiveScene) -> None:
    async with namesrv(s) as served:
        assert 9 <= await served.within(300) <= 11
        assert (served.registrations[-1].ext or {})["compressed"] == "false"
        await s.update(registerNameServerPeriod=10_000)
        await asyncio.sleep(60)
        assert 29 <= await served.within(300) <= 31
        await s.update(compressedRegister=True)
        await asyncio.sleep(60)
        assert (served.registrations[-1].ext or {})["compressed"] == "true"
        await s.update(forceRegister=False)
        await asyncio.sleep(60)
        assert await served.within(300) == 0
        assert served.looks >= 29


@live("registerBrokerTimeoutMills")
async def test_how_long_it_waits_for_a_registration(s: LiveScene) -> None:
    async with namesrv(s) as served:
        served.delay = 20.0
        registered = s.app._registration
        await eventually(lambda: registered.missing is not None, 120.0)
        await s.update(registerBrokerTimeoutMills=30_000)
        await eventually(lambda: registered.missing is None, 120.0)
