"""A forwarder that takes plain connections and passes them on over TLS, so that the load program need not speak it.

``python -m benchmark.tls_forward HOST PORT [CPU]`` prints its own port and the cipher of its first connection.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from typing import cast

from rmq.runtime import loop


class _Half(asyncio.Protocol):
    """One side of a connection; what arrives goes to the other side."""

    def __init__(self) -> None:
        self.other: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.write(data)

    def lead_to(self, other: asyncio.Transport) -> None:
        self.other = other
        other.writelines(self._early)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.close()


class _Plain(_Half):
    """The load's side: dials the server."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__()
        self._server = host, port, context
        self._dialing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._dialing = asyncio.ensure_future(self._dial(cast(asyncio.Transport, transport)))

    async def _dial(self, plain: asyncio.Transport) -> None:
        host, port, context = self._server
        try:
            tls, beyond = await asyncio.get_running_loop().create_connection(_Half, host, port, ssl=context)
        except OSError as error:
            print(f"benchmark: TLS to {host}:{port}: {error}", file=sys.stderr, flush=True)
            plain.close()
            return
        beyond.lead_to(plain)
        self.lead_to(tls)
        print("cipher", tls.get_extra_info("cipher")[0], flush=True)


async def forward(host: str, port: int) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    server = await asyncio.get_running_loop().create_server(lambda: _Plain(host, port, context), "127.0.0.1", 0)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) > 3:
        os.sched_setaffinity(0, {int(sys.argv[3])})
    loop.run(forward(sys.argv[1], int(sys.argv[2])))
