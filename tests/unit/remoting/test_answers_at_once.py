"""A client serves what it has read in the turn of its loop that has read it: one answer, or several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.remoting.conn import Conn
from rmq.remoting.endpoint import Endpoint
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.testing import simloop
from rmq.testing.simworld import Simulation
from tests.unit.remoting.test_outgoing import Wire


def connected() -> tuple[Endpoint, Conn, Wire]:
    world = Simulation(seed=1).node("client").world
    endpoint = Endpoint(world, Router(), Limits(), step=None, at_once=True, name="client")
    conn, wire = Conn(endpoint, inbound=False, address="10.0.0.1:1"), Wire()
    conn.connection_made(wire)  # type: ignore[arg-type]
    conn._need = 0  # what comes first is a frame as any other, where we have connected
    return endpoint, conn, wire


def answer(opaque: int) -> bytes:
    made = Command(0, flag=1)
    made.opaque = opaque
    return frame.encode(made)


def told(seen: list[int], then: Callable[[], Any] = lambda: None) -> Callable[[Command | Exception], None]:
    def done(how: Command | Exception) -> None:
        assert isinstance(how, Command)
        seen.append(how.opaque)
        then()

    return done


@pytest.mark.parametrize("together", [False, True])
def test_who_waits_is_told_before_the_turn_ends_and_what_he_asks_next_is_written_then(together: bool) -> None:
    async def main() -> None:
        endpoint, conn, wire = connected()
        seen: list[int] = []

        def next_one() -> None:
            conn.call(Command(1), 3.0, told(seen))
            assert len(wire.writes) == written, "it goes with all else of this turn"

        first = conn.call(Command(1), 3.0, told(seen, next_one))
        assert len(wire.writes) == 1, "nothing else is on its way"
        second = conn.call(Command(1), 3.0, told(seen)) if together else 0
        await asyncio.sleep(0)
        written = len(wire.writes)
        conn.data_received(answer(first) + (answer(second) if together else b""))
        assert seen == [first, second] if together else [first]
        assert len(wire.writes) == written + 1
        assert not endpoint.ready
        assert not conn._ready
        conn.data_received(answer(conn._opaque))
        assert len(seen) == 2 + together
        conn.abort("the test is over")

    simloop.run(main())


def test_a_lone_frame_that_cannot_be_read_closes_the_connection() -> None:
    async def main() -> None:
        _, conn, _ = connected()
        conn.data_received((8).to_bytes(4, "big") + (4).to_bytes(4, "big") + b"nope")
        assert conn.closed

    simloop.run(main())


@pytest.mark.parametrize("together", [False, True])
def test_what_is_done_once_all_is_served_is_done_in_the_same_turn(together: bool) -> None:
    async def main() -> None:
        endpoint, conn, wire = connected()
        seen: list[int] = []
        served: list[int] = []

        def done() -> None:
            served.append(len(seen))
            conn.call(Command(1), 3.0, told(seen))

        opaques = [conn.call(Command(1), 3.0, told(seen)) for _ in range(1 + together)]
        await asyncio.sleep(0)
        endpoint.on_served.append(done)
        conn.data_received(b"".join(answer(opaque) for opaque in opaques))
        assert served == [len(opaques)]
        sent = b"".join(wire.writes)
        assert sent.count(b'"opaque":3' if together else b'"opaque":2') == 1, "what that has sent is written in it, too"

    simloop.run(main())
