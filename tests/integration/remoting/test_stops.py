"""A server that stops: what it has taken is answered, and the answers arrive."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest

from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.remoting.certificates import client_context, server_context
from rmq.remoting.conn import Conn
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.remoting.tls import ServerTls, TlsMode
from rmq.runtime.world import World
from tests.support.loops import factories, run_on

LOOPS = sorted(factories())
PLAIN, HELD = 1, 2


class Held:
    """Answers that wait, as for a flush: of no task, and owed to the connection."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Conn, Command]] = []
        self.came = asyncio.Event()

    def take(self, conn: Conn, request: Command) -> None:
        conn.owed_bytes += 100
        self.waiting.append((conn, request.reply(0)))
        self.came.set()

    def release(self) -> None:
        for conn, answer in self.waiting:
            conn.settle(100)
            conn.send_command(answer)


async def started(held: Held, tls: ServerTls) -> tuple[Server, int]:
    router = Router()
    router.on(PLAIN, lambda conn, request: request.reply(0, body=b"x" * 10_000))
    router.on(HELD, held.take)
    server = Server(World.real(), router, tls=tls)
    _, port = await server.start("127.0.0.1", 0)
    return server, port


def asked(code: int, opaque: int) -> bytes:
    command = Command(code)
    command.opaque = opaque
    return frame.encode(command)


def opaques(data: bytes) -> list[int]:
    found = []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        found.append(frame.decode(data[4:size]).opaque)
        data = data[size:]
    return found


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("loop", LOOPS)
def test_answers_arrive_though_the_peer_sends_on_and_reads_late(loop: str, secure: bool, certificate: Any) -> None:
    """A socket that is closed with something unread in it is reset, and takes the answers in it along."""

    async def main() -> None:
        held = Held()
        context = server_context(certificate.cert, certificate.key)
        server, port = await started(held, ServerTls(TlsMode.PERMISSIVE, context))
        tls: ssl.SSLContext | None = client_context(verify=False) if secure else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(b"".join(asked(PLAIN, opaque) for opaque in range(1, 21)) + asked(HELD, 21))
        await held.came.wait()
        stopping = asyncio.create_task(server.stop(seconds=30))
        while not server.draining:  # noqa: ASYNC110
            await asyncio.sleep(0)
        # Nobody reads it any more.
        writer.write(asked(PLAIN, 99) * 5_000)
        await writer.drain()
        assert not stopping.done()
        held.release()
        assert opaques(await reader.read()) == list(range(1, 22))
        writer.close()
        await stopping
        assert not server.connections

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_stays_is_given_up(loop: str) -> None:
    async def main() -> None:
        held = Held()
        server, port = await started(held, ServerTls())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked(HELD, 1))
        await held.came.wait()
        await server.stop(seconds=0.05)
        assert not server.connections
        writer.close()
        reader.feed_eof()

    run_on(loop, main())
