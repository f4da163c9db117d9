"""Connections with more under way than buffers hold, both ways at once, and peers that read no more or are gone."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import pytest

from rmq.protocol.command import Command
from rmq.protocol.errors import TooManyRequests
from rmq.remoting.certificates import client_context, server_context
from rmq.remoting.client import RemotingClient
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.server import Server
from rmq.remoting.tls import ServerTls, TlsMode
from rmq.runtime.world import World
from tests.support.loops import factories, run_on

LOOPS = sorted(factories())
BODY = bytes(range(256)) * 4096
#: More than both kernels' buffers hold, and than a client may have waiting.
CALLS = 80


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("loop", LOOPS)
def test_neither_end_waits_for_the_other(loop: str, secure: bool, certificate: Any) -> None:
    """A server does not read who does not take its answers; were a client to do the same, both would stand still."""

    async def main() -> None:
        router = Router()
        router.on(1, lambda conn, request: request.reply(0, body=request.body))
        tls = ServerTls(TlsMode.PERMISSIVE, server_context(certificate.cert, certificate.key)) if secure else None
        server = Server(World.real(), router, tls=tls)
        _, port = await server.start("127.0.0.1", 0)
        async with RemotingClient(World.real(), tls=client_context(verify=False) if secure else None) as client:
            calls = [client.request(f"127.0.0.1:{port}", Command(1, body=BODY), 60.0) for _ in range(CALLS)]
            for call in asyncio.as_completed(calls):
                assert (await call).body == BODY
        await server.stop()

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_what_waits_for_a_peer_that_does_not_read_is_bounded(loop: str) -> None:
    async def main() -> None:
        held = asyncio.Event()

        async def stalled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await held.wait()
            writer.transport.abort()

        server = await asyncio.start_server(stalled, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = RemotingClient(World.real(), limits=Limits(write_most=8 << 20))
        conn = await client.connection(address)
        calls: list[asyncio.Task[Command]] = []
        while not (calls and calls[-1].done()):
            assert len(calls) < 200
            calls.append(asyncio.create_task(client.request(address, Command(1, body=BODY), 60.0)))
            await asyncio.sleep(0.001)
        with pytest.raises(TooManyRequests, match=r"\d MiB of requests wait to be sent"):
            await calls.pop()
        with pytest.raises(TooManyRequests):
            await client.oneway(address, Command(1, body=BODY))
        assert conn._transport.get_write_buffer_size() + conn.out_bytes < 10 << 20
        assert not conn.closed
        assert not any(call.done() for call in calls)
        held.set()
        await asyncio.wait(calls)
        for call in calls:
            call.exception()
        await client.close()
        server.close()

    run_on(loop, main())


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is Linux's")
@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_vanished_is_noticed_in_20_seconds(loop: str) -> None:
    """By the kernel, which would else send again for a quarter of an hour; here only that it was told so."""

    async def main() -> None:
        server = Server(World.real(), Router())
        _, port = await server.start("127.0.0.1", 0)
        async with RemotingClient(World.real()) as client:
            number = (await client.connection(f"127.0.0.1:{port}")).descriptor()
            assert number is not None
            handle = socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM)
            assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
            assert handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            handle.close()
        await server.stop()

    run_on(loop, main())
