"""A server over real sockets, under attack: it serves on, holds little, writes few log lines and no traceback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import struct

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.remoting.conn import Conn
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.runtime.world import World
from tests.support.loops import factories, run_on

LOOPS = sorted(factories())


class Target:
    """A server with an echo (1), a big answer (2), and a count of what came (3, oneway)."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.counted = 0
        router = Router()
        router.on(1, lambda conn, request: request.reply(0, body=request.body))
        router.on(2, lambda conn, request: request.reply(0, body=bytes(100_000)))
        router.on(3, self.count)
        router.on(4, self.refuse)
        self.server = Server(World.real(), router, limits)
        self.port = 0

    def count(self, conn: Conn, request: Command) -> None:
        self.counted += 1

    def refuse(self, conn: Conn, request: Command) -> None:
        raise ResponseError(1, request.body.decode() + ": no such thing")

    async def __aenter__(self) -> Target:
        _, self.port = await self.server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def still_serves(self) -> None:
        reader, writer = await self.open()
        writer.write(frame.encode(Command(1, opaque=77, body=b"alive")))
        (length,) = struct.unpack(">I", await reader.readexactly(4))
        assert frame.decode(await reader.readexactly(length)).body == b"alive"
        writer.close()

    async def until(self, count: int) -> None:
        """Until the server has so many connections."""
        while len(self.server.connections) != count:  # noqa: ASYNC110 (nothing tells of a new one)
            await asyncio.sleep(0.005)


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("loop", LOOPS)
def test_random_bytes(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        chance = random.Random(11)
        async with Target() as target:
            for number in range(150):
                reader, writer = await target.open()
                writer.write(chance.randbytes(chance.randint(1, 3000)))
                if number % 2:
                    writer.write_eof()
                    with contextlib.suppress(ConnectionError):
                        await reader.read()
                writer.close()
            await target.still_serves()
            await target.until(0)

    run_on(loop, main())
    assert len(warnings(caplog)) <= 30  # rationed
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("loop", LOOPS)
def test_frames_mutated_by_a_byte(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        chance = random.Random(12)
        good = frame.encode(Command(1, opaque=5, ext={"topic": "t"}, body=b"body"))
        async with Target() as target:
            for _ in range(300):
                data = bytearray(good)
                for _ in range(chance.randint(1, 4)):
                    data[chance.randrange(len(data))] = chance.randrange(256)
                _, writer = await target.open()
                writer.write(bytes(data) + good)
                writer.write_eof()
                writer.close()
            await target.still_serves()

    run_on(loop, main())
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("loop", LOOPS)
def test_lengths_beyond_the_limit_close_at_once(loop: str) -> None:
    async def main() -> None:
        async with Target() as target:
            for length in (0xFFFFFFFF, 0x7FFFFFFF, 16_777_213, 3, 0):
                reader, writer = await target.open()
                writer.write(struct.pack(">I", length))
                assert await reader.read() == b""
                writer.close()
            await target.still_serves()

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_the_largest_frame_passes(loop: str) -> None:
    async def main() -> None:
        async with Target() as target:
            empty = len(frame.encode(Command(1, opaque=1)))
            data = frame.encode(Command(1, opaque=1, body=b"z" * (16_777_216 - empty)))
            assert len(data) == 16_777_216
            reader, writer = await asyncio.open_connection("127.0.0.1", target.port, limit=1 << 24)
            for at in range(0, len(data), 300_000):
                writer.write(data[at : at + 300_000])
                await writer.drain()
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            answer = frame.decode(await reader.readexactly(length))
            assert len(answer.body) == 16_777_216 - empty
            writer.close()

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_half_closed_connection_is_closed_after_its_requests(loop: str) -> None:
    async def main() -> None:
        async with Target() as target:
            reader, writer = await target.open()
            writer.write(frame.encode(Command(3).mark_oneway()) * 50)
            writer.write_eof()
            assert await reader.read() == b""
            assert target.counted == 50
            await target.until(0)
            writer.close()

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_flood_of_oneways_is_taken_in_turns(loop: str) -> None:
    async def main() -> None:
        async with Target(Limits(tick_frames=100)) as target:
            _, flood = await target.open()
            data = frame.encode(Command(3, body=b"x" * 50).mark_oneway()) * 500
            for _ in range(20):
                flood.write(data)
            await target.still_serves()  # another connection is served meanwhile
            while target.counted < 10_000:
                await asyncio.sleep(0.005)
                assert all(conn.queued < 2_000_000 for conn in target.server.connections)
            flood.close()

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_never_reads_is_not_served_on(loop: str) -> None:
    async def main() -> None:
        async with Target(Limits(write_high=1 << 20, write_low=1 << 18)) as target:
            _, writer = await target.open()
            writer.transport.pause_reading()
            writer.write(frame.encode(Command(2)) * 2_000)  # 200 MB of answers
            await target.until(1)
            (conn,) = target.server.connections
            while not conn.congested:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            for _ in range(20):
                await target.still_serves()
            assert conn._transport.get_write_buffer_size() + conn.out_bytes < 4 << 20
            writer.transport.abort()
            await target.until(0)

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_many_connections_with_a_partial_frame_each(loop: str) -> None:
    async def main() -> None:
        async with Target(Limits(partial_seconds=0.05)) as target:
            opened = [await target.open() for _ in range(200)]
            for _, writer in opened:
                writer.write(struct.pack(">II", 16_000_000, 256) + b"x" * 10)
            for reader, writer in opened:
                assert await reader.read() == b""
                writer.close()
            await target.until(0)
            await target.still_serves()

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_refusal_repeats_little_of_what_it_refuses(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Target() as target:
            reader, writer = await target.open()
            writer.write(frame.encode(Command(4, opaque=5, body=b"x" * 5_000_000)))
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            answer = frame.decode(await reader.readexactly(length))
            assert (answer.code, answer.opaque, answer.remark) == (1, 5, "x" * 4_096)
            writer.close()

    run_on(loop, main())
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("loop", LOOPS)
def test_one_port_for_both_families_and_a_taken_port(loop: str) -> None:
    async def main() -> None:
        router = Router()
        router.on(1, lambda conn, request: request.reply(0, f"{conn.host} {conn.born_v6}"))
        server = Server(World.real(), router)
        _, port = await server.start("", 0)
        other = Server(World.real(), router)
        with pytest.raises(OSError, match="in use"):
            await other.start("", port)
        hosts = ["127.0.0.1"]
        try:
            probe = await World.real().network.listen(asyncio.Protocol, "::1", 0)
        except OSError:
            pass
        else:
            await probe.close()
            hosts.append("::1")
        for host in hosts:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(frame.encode(Command(1)))
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            assert frame.decode(await reader.readexactly(length)).remark == f"{host} {':' in host}"
            writer.close()
        await server.stop()

    run_on(loop, main())
