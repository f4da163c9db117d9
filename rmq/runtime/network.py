"""The real network: TCP through the running asyncio (or uvloop) loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import os
import socket
import ssl
import sys
import urllib.parse
from collections.abc import Callable, Sequence

from rmq.runtime import patience
from rmq.runtime.dial import is_own_end
from rmq.runtime.world import Listener, Offload, Reserved

__all__ = ["RealNetwork"]

_HTTP_BODY_LIMIT = 1 << 20
#: A connection that we opened ends when the peer's kernel has acknowledged nothing of what was sent for this long, ms.
_SILENCE_MS = 20_000
#: Ports of the kernel's choice that are tried for one that is free together with those beside it.
_CHOICES = 1000
#: Seconds for what has a port to answer at it.
_PROBE = 1.0
_NOBODY = (
    "and nobody answers there: a connection that was opened here may have the port, now or within the last minute "
    "(net.ipv4.ip_local_reserved_ports keeps ports from those)"
)


class _Listening:
    __slots__ = ("_server", "address")

    def __init__(self, server: asyncio.AbstractServer, address: tuple[str, int]) -> None:
        self._server = server
        self.address = address

    async def close(self) -> None:
        # Not wait_closed: from Python 3.12 on it also waits for the connections, which are the server's to end.
        self._server.close()
        await asyncio.sleep(0)


class _Kept:
    """Sockets that have their ports and do not listen: who connects is refused, and nobody else gets these ports."""

    __slots__ = ("_all", "_keys", "port")

    def __init__(
        self, everyone: dict[tuple[str, int], socket.socket], host: str, made: dict[int, socket.socket]
    ) -> None:
        self._all = everyone
        self.port = next(iter(made))
        self._keys = [(host, port) for port in made]
        everyone.update(zip(self._keys, made.values(), strict=True))

    def release(self) -> None:
        for key in self._keys:
            if (one := self._all.pop(key, None)) is not None:
                one.close()


class RealNetwork:
    """TCP sockets of this machine."""

    __slots__ = ("_kept", "_offload")

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        #: What is reserved, by host and port.
        self._kept: dict[tuple[str, int], socket.socket] = {}

    async def reserve(self, host: str, beside: Sequence[int] = ()) -> Reserved:
        family, where = await self._bind_address(host, 0)
        for _ in range(_CHOICES):
            made: dict[int, socket.socket] = {}
            try:
                first = _bound_socket(family, where, shared=False)
                port = int(first.getsockname()[1])
                made[port] = first
                for number in beside:
                    made[port + number] = _bound_socket(family, (where[0], port + number), shared=False)
            except (OSError, OverflowError):
                for one in made.values():
                    one.close()
                if not made:
                    raise
            else:
                return _Kept(self._kept, host, made)
        raise OSError(errno.EADDRINUSE, f"{host or '*'} has no port that is free together with those beside it")

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        backlog: int = 1024,
    ) -> Listener:
        loop = asyncio.get_running_loop()
        listening = self._kept.pop((host, port), None)
        if listening is None:
            family, where = await self._bind_address(host, port)
            try:
                listening = _bound_socket(family, where)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and await self._is_silent(family, where):
                    raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}, {_NOBODY}") from error
                raise
        else:
            # What it accepts is to keep nobody from this port later.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server = await loop.create_server(factory, sock=listening, backlog=backlog)
        except BaseException:
            listening.close()
            raise
        name = listening.getsockname()
        return _Listening(server, (host or "0.0.0.0", int(name[1])))

    async def _bind_address(self, host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
        if not host:
            # One socket for both families, as a Java wildcard listener is; IPv4 alone where IPv6 is switched off.
            if socket.has_dualstack_ipv6():
                return socket.AF_INET6, ("::", port)
            return socket.AF_INET, ("0.0.0.0", port)
        bare = host.strip("[]")
        found = await asyncio.get_running_loop().getaddrinfo(
            bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        if not found:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is no address of this machine")
        family, _, _, _, where = found[0]
        return family, (str(where[0]), int(where[1]))

    @staticmethod
    async def _is_silent(family: socket.AddressFamily, where: tuple[str, int]) -> bool:
        """Whether a port that is taken refuses who connects: what has it does not listen."""
        host, port = where
        if host in ("::", "0.0.0.0"):
            family, host = socket.AF_INET, "127.0.0.1"
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                async with patience.timeout(_PROBE):
                    await asyncio.get_running_loop().sock_connect(probe, (host, port))
            except ConnectionRefusedError:
                return True
            except OSError:  # a timeout, too
                return False
            return is_own_end(probe)

    async def connect(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(
            factory,
            host.strip("[]"),
            port,
            ssl=ssl_context,
            server_hostname=server_name or host.strip("[]") if ssl_context is not None else None,
        )
        # asyncio sets TCP_NODELAY itself.
        handle = transport.get_extra_info("socket")
        if handle is not None:
            if is_own_end(handle):
                transport.abort()
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            with contextlib.suppress(OSError):
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if sys.platform == "linux":
                # A peer that vanished without a word: the kernel would send again for a quarter of an hour.
                with contextlib.suppress(OSError):
                    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        return transport, protocol

    async def resolve(self, host: str) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(where[0]) for _, _, _, _, where in found))

    async def start_tls(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        *,
        server_side: bool,
    ) -> asyncio.BaseTransport | None:
        loop = asyncio.get_running_loop()
        return await loop.start_tls(transport, protocol, context, server_side=server_side)  # type: ignore[arg-type]

    async def http_get(self, url: str, headers: dict[str, str], timeout: float) -> tuple[int, bytes]:
        return await self._offload(_http_get, url, headers, timeout)


def _bound_socket(family: socket.AddressFamily, where: tuple[str, int], *, shared: bool = True) -> socket.socket:
    """A socket that has its port.

    :param shared: with ports of connections that end, and of others that do not listen either; the first listener
        gets it.
    """
    # With its protocol, or asyncio would give what it accepts no TCP_NODELAY: the second of two answers that are close
    # to each other came 40 ms later.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shared))
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if where[0] == "::" else 1)
        made.bind(where)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def _http_get(url: str, headers: dict[str, str], timeout: float) -> tuple[int, bytes]:
    """One GET without proxies, redirects or cookies: an address server answers with one line.

    ``timeout`` is for connecting and for each read; an answer longer than 1 MiB is cut.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OSError(errno.EINVAL, f"not an HTTP address: {url}")
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname, parts.port, timeout=timeout)
    try:
        path = parts.path or "/"
        connection.request("GET", f"{path}?{parts.query}" if parts.query else path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_HTTP_BODY_LIMIT)
    except http.client.HTTPException as error:
        raise OSError(errno.EPROTO, f"{url}: {type(error).__name__}") from error
    finally:
        connection.close()
