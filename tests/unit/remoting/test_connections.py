"""Connections over a simulated network: how many there are, what they may owe, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.protocol.errors import (
    ConnectFailed,
    ConnectionLost,
    RequestTimeout,
)
from rmq.remoting.client import RemotingClient
from rmq.remoting.limits import Limits
from rmq.testing import simloop
from tests.support.scenes.calls import Rig


def test_stop_answers_what_is_in_flight_and_closes() -> None:
    async def main() -> None:
        rig = Rig()
        async with rig:
            slow = asyncio.ensure_future(rig.ask(3))
            held = asyncio.ensure_future(rig.ask(7, timeout=60))
            await asyncio.sleep(0.1)
            await rig.server.stop()
            assert (await slow).remark == "slow"
            with pytest.raises(ConnectionLost):
                await held
            with pytest.raises(ConnectFailed):
                await rig.ask(1)
            assert rig.server.connections == {}

    simloop.run(main())


def test_stop_does_not_wait_for_ever() -> None:
    async def main() -> None:
        async with Rig() as rig:
            stuck = asyncio.ensure_future(rig.ask(11, timeout=60))
            await asyncio.sleep(0.1)
            began = asyncio.get_running_loop().time()
            await rig.server.stop(seconds=2)
            assert asyncio.get_running_loop().time() - began == pytest.approx(2, abs=0.1)
            with pytest.raises(ConnectionLost):
                await stuck

    simloop.run(main())


def test_closing_the_client_fails_what_waits() -> None:
    async def main() -> None:
        async with Rig() as rig:
            waiting = asyncio.ensure_future(rig.ask(7, timeout=60))
            await asyncio.sleep(0.1)
            await rig.client.close()
            with pytest.raises(ConnectionLost):
                await waiting
            with pytest.raises(ConnectFailed, match="the client is closed"):
                await rig.ask(1)

    simloop.run(main())


def test_a_silent_connection_is_closed_after_two_minutes() -> None:
    async def main() -> None:
        async with Rig(client_limits=Limits(idle_seconds=0)) as rig:
            loop = asyncio.get_running_loop()
            ended: list[float] = []
            rig.server.on_close.append(lambda conn: ended.append(loop.time()))
            await rig.ask(1)
            await asyncio.sleep(100)
            await rig.ask(1)
            last = loop.time()
            await asyncio.sleep(200)
            assert 120 <= ended[0] - last <= 122.5

    simloop.run(main())


def test_an_unfinished_frame_is_not_awaited_for_ever() -> None:
    async def main() -> None:
        async with Rig() as rig:
            conn = await rig.client.connection(rig.addr)
            data = frame.encode(Command(1, body=b"x" * 1000))
            for byte in data[:40]:
                conn.send(bytes([byte]))  # a drop now and then does not count as traffic that keeps it open
                await asyncio.sleep(1)
            assert conn.closed

            conn = await rig.client.connection(rig.addr)
            big = frame.encode(Command(1, body=b"x" * 4_000_000))
            for at in range(0, len(big), 40_000):
                conn.send(big[at : at + 40_000])
                await asyncio.sleep(1)  # a slow line: 100 s for the frame, and welcome
            assert not conn.closed

    simloop.run(main())


def test_a_closed_connection_does_not_wait_for_its_reader_for_ever() -> None:
    async def main() -> None:
        async with Rig() as rig:
            conn = await rig.client.connection(rig.addr)
            conn._transport.pause_reading()
            conn.oneway(Command(9))
            await asyncio.sleep(0.1)
            (inbound,) = rig.server.connections
            inbound.send(b"x" * 1000)
            inbound.close("test")
            await asyncio.sleep(5)
            assert inbound in rig.server.connections  # the peer may yet take it
            await asyncio.sleep(10)
            assert rig.server.connections == {}

    simloop.run(main())


def test_connections_beyond_the_limit_are_closed() -> None:
    async def main() -> None:
        async with Rig(Limits(connections=1)) as rig:
            await rig.ask(1)
            other = RemotingClient(rig.simulation.node("other").world)
            with pytest.raises(ConnectionLost):
                await other.request(rig.addr, Command(1))
            assert (await rig.ask(1)).code == 0
            await other.close()

    simloop.run(main())


def test_requests_that_take_time_hold_back_a_flood() -> None:
    async def main() -> None:
        async with Rig(Limits(owed=40_000)) as rig:
            conn = await rig.client.connection(rig.addr)
            for _ in range(50):
                for _ in range(10):
                    conn.oneway(Command(11, body=b"x" * 1000))
                await asyncio.sleep(0.01)
            (inbound,) = rig.server.connections
            assert inbound.owed_bytes < 200_000  # of 500 requests with about 5,000 each
            rig.services.gate.set()
            await asyncio.sleep(1)
            assert inbound.owed_bytes == 0
            assert (await rig.ask(1)).code == 0

    simloop.run(main())


def test_a_connection_made_while_the_process_stood_still_is_taken() -> None:
    async def main() -> None:
        async with Rig() as rig:
            call = asyncio.ensure_future(rig.ask(1, body=b"x", timeout=30.0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asyncio.get_running_loop().pass_time(4.0)  # type: ignore[attr-defined]
            assert (await call).body == b"x"

    simloop.run(main())


def test_a_peer_that_takes_everything_and_answers_nothing_is_left_for_a_new_connection() -> None:
    """A tunnel or sidecar whose other end is gone acknowledges every byte."""

    async def main() -> None:
        async with Rig() as rig:
            await rig.ask(1)
            first = await rig.client.connection(rig.addr)
            for _ in range(3):
                with pytest.raises((RequestTimeout, ConnectionLost)):
                    await rig.ask(7)
            assert first.closed
            assert (await rig.ask(1, body=b"x")).body == b"x"
            second = await rig.client.connection(rig.addr)
            beating = True

            async def beat() -> None:
                while beating:
                    await rig.ask(1)
                    await asyncio.sleep(1.0)

            beats = asyncio.ensure_future(beat())
            for _ in range(5):
                with pytest.raises(RequestTimeout):
                    await rig.ask(7)
            beating = False
            await beats
            assert not second.closed  # slow with one thing, there for another

    simloop.run(main())


def test_a_connection_that_took_long_leaves_a_request_what_is_left_of_its_time() -> None:
    async def main() -> None:
        async with Rig() as rig:
            connect = rig.client._connect

            async def slowly(*where: object) -> object:
                await asyncio.sleep(2.9)
                return await connect(*where)  # type: ignore[arg-type]

            rig.client._connect = slowly  # type: ignore[method-assign, assignment]
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(RequestTimeout):
                await rig.ask(7, timeout=3.0)
            assert loop.time() - began == pytest.approx(3.0, abs=0.03)

    simloop.run(main())


def test_a_loop_that_stood_still_while_it_connected_takes_no_time_of_a_request() -> None:
    async def main() -> None:
        async with Rig() as rig:
            connect = rig.client._connect

            async def slowly(*where: object) -> object:
                await asyncio.sleep(0.2)
                return await connect(*where)  # type: ignore[arg-type]

            rig.client._connect = slowly  # type: ignore[method-assign, assignment]
            loop = asyncio.get_running_loop()
            assert isinstance(loop, simloop.SimLoop)
            loop.call_later(0.1, loop.pass_time, 2.7)
            began = loop.time()
            with pytest.raises(RequestTimeout):
                await rig.ask(7, timeout=3.0)
            assert loop.time() - began == pytest.approx(5.7, abs=0.3)

    simloop.run(main())
