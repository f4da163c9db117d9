"""A connection of a group on real loops, clear and with TLS: words of every length are heard as they were said."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from rmq.broker.raft.incoming import Incoming
from rmq.broker.raft.wire import Hello, Word, encode
from rmq.protocol.errors import ReplicationError, RMQError
from rmq.raft.messages import Append, TimeoutNow
from rmq.raft.position import Position
from rmq.remoting.certificates import client_context
from rmq.remoting.tls import ServerTls, TlsMode
from tests.support.certificates import make_certificate
from tests.support.loops import factories, run_on
from tests.support.virtual import eventually

HELLO = Hello("group", "n1", "n0", "abc", "n0;n1;n2", 1 << 30, "10.0.0.1:10911", "broker")
#: Bytes of spans: the memory of a connection has room for one after the other, for some together, and not for the last.
SIZES = (1, 4000, 200_000, 500_000, 524_000, 0, 70_000, 524_288, 3 << 20, 5, 100_000)


class Listener:
    """Takes connections of whoever says who he is."""

    def __init__(self, tls: ServerTls) -> None:
        self.tls = tls
        self.words: list[Word] = []
        self.refusals: list[str] = []

    def opened(self, link: Incoming) -> None: ...

    def introduced(self, link: Incoming, hello: Hello) -> None: ...

    def is_known(self, hello: Hello) -> bool:
        return True

    def heard(self, message: Word) -> None:
        if isinstance(message, Append):  # a view, which is overwritten
            message = Append(message.term, message.source, message.before, message.after, 0, bytes(message.data))
        self.words.append(message)

    def left_out(self, link: Incoming, error: ReplicationError) -> None: ...

    def refused(self, link: Incoming, error: RMQError) -> None:
        self.refusals.append(str(error))
        link.refuse(str(error))

    def closed(self, link: Incoming) -> None: ...


def words() -> list[Word]:
    said: list[Word] = []
    at = 0
    for number, size in enumerate(SIZES):
        data = bytes([number + 1]) * size
        said.append(Append(5, "n1", Position(5, at), Position(5, at + size), 0, data))
        at += size
    return [*said, TimeoutNow(5, "n1")]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("loop", factories())
def test_all_words_are_heard(loop: str, secure: bool, tmp_path: Path) -> None:
    server = client = None
    if secure:
        own = make_certificate(tmp_path, "n0")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(own.cert, own.key)
        client = client_context(trust=own.cert)
    group = Listener(ServerTls(TlsMode.ENFORCING if secure else TlsMode.DISABLED, server))

    async def main() -> None:
        running = asyncio.get_running_loop()
        listener = await running.create_server(lambda: Incoming(group), "localhost", 0)
        port = listener.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("localhost", port, ssl=client)
        writer.write(HELLO.encode())
        for word in words():
            writer.write(encode(word))
        await writer.drain()
        await eventually(lambda: len(group.words) == len(SIZES) + 1, 20)
        assert group.words == words()
        # A length that nobody may have ends the connection, whatever lies before it.
        head = encode(TimeoutNow(6, "n1"))
        writer.write(head + b"\0" * 8 + b"\x7f" * 4 + bytes(600_000))
        await eventually(lambda: bool(group.refusals), 20)
        assert group.words[-1] == TimeoutNow(6, "n1")
        assert "no HA stream" in group.refusals[0]
        writer.close()
        listener.close()
        await listener.wait_closed()

    run_on(loop, main())
