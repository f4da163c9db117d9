"""A client and a server over a simulated network, with a handler for each way to answer."""

from __future__ import annotations

import asyncio
from typing import Any

from rmq.protocol.command import Command
from rmq.protocol.errors import (
    ResponseError,
)
from rmq.protocol.header import Header, wire, wire_header
from rmq.remoting.client import RemotingClient
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router, handles
from rmq.remoting.server import Server
from rmq.testing.simworld import Simulation


@wire_header
class NumberRequest(Header):
    number: int = wire("number")


class Services:
    """One handler for each way to answer."""

    def __init__(self) -> None:
        self.oneways: list[int] = []
        self.bodies: list[bytes] = []
        self.held: list[tuple[Conn, Command]] = []
        self.gate = asyncio.Event()

    @handles(1)
    def echo(self, conn: Conn, request: Command) -> Command:
        self.bodies.append(request.body)
        return request.reply(0, body=request.body)

    @handles(2, header=NumberRequest)
    def double(self, conn: Conn, request: Command, header: NumberRequest) -> Command:
        return request.reply(0, str(header.number * 2))

    @handles(3)
    async def slow(self, conn: Conn, request: Command) -> Command:
        await asyncio.sleep(0.5)
        return request.reply(0, "slow")

    @handles(4)
    def refuse(self, conn: Conn, request: Command) -> Command:
        raise ResponseError(17, "no such topic")

    @handles(5)
    def throw(self, conn: Conn, request: Command) -> Command:
        raise ZeroDivisionError("secret detail")

    @handles(6)
    async def throw_later(self, conn: Conn, request: Command) -> Command:
        await asyncio.sleep(0)
        raise KeyError("secret detail")

    @handles(7)
    def hold(self, conn: Conn, request: Command) -> None:
        self.held.append((conn, request))

    @handles(8)
    async def ask_back(self, conn: Conn, request: Command) -> Command:
        answer = await conn.request(Command(40, body=b"you?"), 1.0)
        return request.reply(0, body=answer.body)

    @handles(9, 10)
    def note(self, conn: Conn, request: Command) -> Command:
        self.oneways.append(request.code)
        return request.reply(0)

    @handles(11)
    async def gated(self, conn: Conn, request: Command) -> Command:
        await self.gate.wait()
        return request.reply(0)

    @handles(12, body=3)
    def short(self, conn: Conn, request: Command) -> Command:
        self.oneways.append(request.code)
        return request.reply(0, body=request.body)


class Rig:
    def __init__(self, limits: Limits | None = None, client_limits: Limits | None = None) -> None:
        self.simulation = Simulation(seed=1)
        self.machine = self.simulation.node("server")
        self.services = Services()
        self.server = Server(self.machine.world, Router([self.services]), limits)
        self.client = RemotingClient(self.simulation.node("client").world, limits=client_limits)
        self.addr = ""

    async def __aenter__(self) -> Rig:
        _, port = await self.server.start("", 0)
        self.addr = f"{self.machine.address}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.server.stop()

    async def ask(self, code: int, timeout: float = 3.0, **fields: Any) -> Command:
        return await self.client.request(self.addr, Command(code, **fields), timeout)
