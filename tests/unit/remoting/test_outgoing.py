"""When what a connection sends is written: with all else of its tick, or at once where no tick is under way."""

from __future__ import annotations

import asyncio
from typing import Any

from rmq.remoting.conn import Conn
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.runtime.world import World
from rmq.testing import simloop
from rmq.testing.simworld import Simulation


class Wire:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def connected() -> tuple[Server, Conn, Wire]:
    world: World = Simulation(seed=1).node("server").world
    server, wire = Server(world, Router()), Wire()
    conn = Conn(server)
    conn.connection_made(wire)  # type: ignore[arg-type]
    return server, conn, wire


def test_between_ticks_an_answer_that_is_waited_for_is_written_at_once_and_asks_for_no_tick() -> None:
    async def main() -> None:
        server, conn, wire = connected()
        conn.send_at_once(b"one")
        assert wire.writes == [b"one"]
        assert not server.scheduled
        conn.send(b"two")
        assert wire.writes == [b"one"]
        await asyncio.sleep(0)
        assert wire.writes == [b"one", b"two"]
        conn.abort("the test is over")

    simloop.run(main())


def test_with_a_tick_under_way_it_goes_behind_what_is_gathered_already() -> None:
    async def main() -> None:
        _, conn, wire = connected()
        conn.send(b"first, ")
        conn.send_at_once(b"then this")
        assert wire.writes == []
        await asyncio.sleep(0)
        assert wire.writes == [b"first, then this"]
        conn.abort("the test is over")

    simloop.run(main())


def test_nothing_is_written_to_a_connection_that_is_closed() -> None:
    async def main() -> None:
        _, conn, wire = connected()
        conn.close("closed")
        conn.send_at_once(b"too late")
        assert wire.writes == []

    simloop.run(main())
