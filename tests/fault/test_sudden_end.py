"""A daemon that is killed resets its connections, as Java's clients need it; one that stops ends them in order."""

from __future__ import annotations

import asyncio
import signal
import ssl
from pathlib import Path

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frame import encode
from rmq.runtime import patience
from tests.support.daemons import PATIENCE, environment, running
from tests.support.peers.ports import free_port


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_connections_end_as_the_process_does(number: signal.Signals, tls: bool, tmp_path: Path) -> None:
    port = free_port()
    context = None
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with running("mqnamesrv", env=environment(tmp_path, RMQ_LISTEN_PORT=str(port))) as daemon:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(encode(Command(RequestCode.GET_BROKER_CLUSTER_INFO)))
        async with patience.timeout(PATIENCE):
            assert await reader.read(4)
            reading = asyncio.ensure_future(reader.read())
            await daemon.stop(number)
            if number is signal.SIGKILL:
                with pytest.raises(ConnectionResetError):
                    await reading
            else:
                assert await reading
        writer.close()
