"""A network in memory on the running loop: latency, cut links, half-dead peers; every byte in order."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from rmq.protocol.errors import ClientError
from rmq.runtime.world import Listener, Reserved

__all__ = ["SimNet", "SimNetwork"]

_FIRST_PORT = 30_000


class SimNet:
    """The switch that every node of a simulation is plugged into.

    :param latency: seconds one way.
    """

    def __init__(self, latency: float = 0.0002) -> None:
        self.latency = latency
        #: Whose time it is; None = any.
        self.loop: asyncio.AbstractEventLoop | None = None
        #: Nodes that nobody reaches, and that reach nobody.
        self._cut: set[frozenset[str]] = set()
        self._listeners: dict[tuple[str, int], _SimListener] = {}
        #: Ports that wait for their listeners.
        self._kept: set[tuple[str, int]] = set()
        self._pipes: list[_SimTransport] = []
        self._alive: dict[str, SimNetwork] = {}
        self._next_port = _FIRST_PORT

    def node(self, host: str) -> SimNetwork:
        """The network as a new process of the node with this address sees it."""
        made = self._alive[host] = SimNetwork(self, host)
        return made

    def cut(self, one: str, other: str) -> None:
        """No byte passes between two nodes from now on; connections stay open and silent, as on a real network."""
        self._cut.add(frozenset((one, other)))

    def heal(self) -> None:
        """Every link works again; what was written meanwhile arrives."""
        self._cut.clear()
        for pipe in list(self._pipes):
            pipe._deliver_soon()

    def reaches(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self._cut

    def kill(self, host: str) -> None:
        """A process died: its listeners are gone, its connections reset on the other side, it reaches nobody."""
        if host in self._alive:
            self._alive.pop(host).dead = True
        for where in [where for where, listener in self._listeners.items() if listener.host == host]:
            del self._listeners[where]
        self._kept = {where for where in self._kept if where[0] != host}
        for pipe in [pipe for pipe in self._pipes if pipe.host == host]:
            pipe._die()

    def pipes_of(self, host: str) -> list[_SimTransport]:
        """The open connections of a node, its ends."""
        return [pipe for pipe in self._pipes if pipe.host == host]

    def port(self) -> int:
        """A port nobody has."""
        self._next_port += 1
        while any(port == self._next_port for _, port in (*self._listeners, *self._kept)):
            self._next_port += 1
        return self._next_port


class _SimReserved:
    def __init__(self, net: SimNet, host: str, port: int, beside: Sequence[int]) -> None:
        self.port = port
        self._net = net
        self._keys = {(host, port + number) for number in (0, *beside)}
        net._kept |= self._keys

    def release(self) -> None:
        self._net._kept -= self._keys


class _SimListener:
    def __init__(self, net: SimNet, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self.host = host
        self.factory = factory
        self.address = (host, port)
        self._net = net

    async def close(self) -> None:
        self._net._listeners.pop(self.address, None)


class SimNetwork:
    """One node's network; ``localhost`` and ``127.0.0.1`` are the node itself."""

    def __init__(self, net: SimNet, host: str) -> None:
        self.net = net
        self.host = host
        #: Answers of :meth:`http_get`, by address.
        self.http: dict[str, tuple[int, bytes]] = {}
        #: Where names lead.
        self.names: dict[str, list[str]] = {}
        #: Its process is.
        self.dead = False

    def _real(self, host: str) -> str:
        return self.host if host in ("", "localhost", "127.0.0.1", "0.0.0.0", "::") else host

    def _check_alive(self) -> None:
        if self.net.loop not in (None, asyncio.get_running_loop()):
            raise ClientError(
                "a client in virtual time, on another loop than its cluster: use the blocking clients in plain "
                "functions, and rmq.aio in the coroutine that the test is"
            )
        if self.dead:
            raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))

    async def reserve(self, host: str, beside: Sequence[int] = ()) -> Reserved:
        self._check_alive()
        net, real = self.net, self._real(host)
        port = net.port()
        while any((real, port + number) in taken for taken in (net._listeners, net._kept) for number in beside):
            port = net.port()
        return _SimReserved(net, real, port, beside)

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int = 1024
    ) -> Listener:
        self._check_alive()
        where = (self._real(host), port or self.net.port())
        if where[0] != self.host:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        if where in self.net._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self.net._kept.discard(where)
        listener = self.net._listeners[where] = _SimListener(self.net, *where, factory)
        return listener

    async def connect(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        if ssl_context is not None:
            raise OSError(errno.EPROTONOSUPPORT, "TLS is not simulated")
        self._check_alive()
        where = (self._real(host), port)
        await asyncio.sleep(2 * self.net.latency)
        if not self.net.reaches(self.host, where[0]):
            await asyncio.sleep(120.0)  # nobody says no: the caller's timeout decides
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        listener = self.net._listeners.get(where)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        here = (self.host, self.net.port())
        near, far = factory(), listener.factory()
        mine = _SimTransport(self.net, near, here, where)
        theirs = _SimTransport(self.net, far, where, here)
        mine._peer, theirs._peer = theirs, mine
        self.net._pipes += [mine, theirs]
        far.connection_made(theirs)
        near.connection_made(mine)
        return mine, near

    async def resolve(self, host: str) -> list[str]:
        await asyncio.sleep(2 * self.net.latency)
        if host not in self.names:
            raise OSError(errno.ENOENT, f"{host} is not known")
        return list(self.names[host])

    async def start_tls(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        *,
        server_side: bool,
    ) -> asyncio.BaseTransport | None:
        raise OSError(errno.EPROTONOSUPPORT, "TLS is not simulated")

    async def http_get(self, url: str, headers: dict[str, str], timeout: float) -> tuple[int, bytes]:
        await asyncio.sleep(2 * self.net.latency)
        if url not in self.http:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return self.http[url]


class _SimTransport(asyncio.Transport):
    """One end of a connection. What it wrote waits in ``_sent`` until the other end takes it."""

    _peer: _SimTransport

    def __init__(
        self, net: SimNet, protocol: asyncio.BaseProtocol, here: tuple[str, int], there: tuple[str, int]
    ) -> None:
        super().__init__({"sockname": here, "peername": there})
        self.host = here[0]
        self._net = net
        self._protocol: Any = protocol
        self._loop = asyncio.get_running_loop()
        self._there = there
        self._sent: list[bytes | None] = []  # None = end of the stream
        self._size = 0
        #: Bytes written since it was opened.
        self.total_written = 0
        self._high, self._low = 65_536, 16_384
        self._full = False
        self._reading = True
        self._closing = False
        self._gone = False
        self._dead = False
        self._delivering = False

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._peer._deliver_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65_536 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        self._sent.append(bytes(data))
        self._size += len(data)
        self.total_written += len(data)
        if self._size > self._high and not self._full:
            self._full = True
            self._protocol.pause_writing()
        self._deliver_soon()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._sent.append(None)
            self._deliver_soon()

    def abort(self) -> None:
        self._closing = True
        self._sent.clear()
        self._size = 0
        self._end(None)
        if self._net.reaches(self.host, self._there[0]):
            self._peer._closing = True
            self._peer._end(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _die(self) -> None:
        self._dead = True
        self.abort()

    def _end(self, error: Exception | None) -> None:
        if self._gone:
            return
        self._gone = True
        if self in self._net._pipes:
            self._net._pipes.remove(self)
        if not self._dead:
            self._loop.call_soon(self._protocol.connection_lost, error)

    def _deliver_soon(self) -> None:
        if self._sent and not self._delivering and not self._loop.is_closed():
            self._delivering = True
            self._loop.call_later(self._net.latency, self._deliver)

    def _deliver(self) -> None:
        """Hand over what was sent, one chunk; the rest follows unless the other end pauses or the link is cut."""
        self._delivering = False
        peer = self._peer
        if not self._sent or not self._net.reaches(self.host, self._there[0]):
            return
        if peer._gone:
            if self._closing:
                self._end(None)
            return
        if not peer._reading and self._sent[0] is not None:
            return
        head = self._sent.pop(0)
        if head is None:
            self._end(None)
            if not peer._closing and (peer._dead or not peer._protocol.eof_received()):
                peer.close()
            return
        self._size -= len(head)
        peer._protocol.data_received(head)
        if self._full and self._size <= self._low and not self._gone:
            self._full = False
            self._protocol.resume_writing()
        if self._sent:
            self._delivering = True
            self._loop.call_soon(self._deliver)
