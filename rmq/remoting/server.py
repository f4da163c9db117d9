"""The remoting server: listens, senses TLS, serves every connection in one tick per loop turn, stops gracefully."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable
from typing import cast

from rmq.remoting.conn import Conn
from rmq.remoting.endpoint import Endpoint, Step
from rmq.remoting.limit_settings import LimitSettings
from rmq.remoting.limits import Limits
from rmq.remoting.router import Router
from rmq.remoting.tls import ServerTls, TlsRefused
from rmq.runtime.ending import end_each
from rmq.runtime.world import Listener, World

__all__ = ["Server"]

_TOO_MANY = "%d connections are open already"


class Server(Endpoint):
    """Serves remoting commands (Java: NettyRemotingServer).

    :param router: answers what ``step`` does not.
    :param limits: sizes and times; the defaults are a broker's.
    :param step: serves the ready connections of one tick (the broker's lane). It takes over each ``conn.frames``
        (list of ``(buffer, lo, hi)``; what it leaves there comes again next tick), calls :meth:`route_frame` for what
        it does not handle itself and ``conn.send`` for answers. It must not raise.
    :param after: called at the end of each tick, when its answers are written. It must not raise.
    :param tls: which connections may or must speak TLS.
    :param settings: what the limits of connections follow; they stay as they are when not given.
    :param name: begins log lines and task names.
    """

    def __init__(
        self,
        world: World,
        router: Router,
        limits: Limits | None = None,
        *,
        step: Step | None = None,
        after: Callable[[], None] | None = None,
        tls: ServerTls | None = None,
        settings: LimitSettings | None = None,
        name: str = "server",
    ) -> None:
        super().__init__(world, router, limits or Limits(), step=step, after=after, name=name)
        self._settings = settings
        #: Open connections by address, of IPv6 by network: one host has a /64 of them.
        self._of_address: Counter[str] = Counter()
        self.tls = tls or ServerTls()
        self._listeners: list[Listener] = []
        self._tls_missing_said = False

    async def start(self, host: str, port: int, *, backlog: int = 1024) -> tuple[str, int]:
        """Listen; the address with the port that was taken.

        :param host: an address of this machine, or "" for every interface.
        :param port: 0 = any free one.
        :raises OSError: the address is taken or not ours.
        """
        return await self._listen(host, port, fast=False, backlog=backlog)

    async def listen_also(self, host: str, port: int, *, backlog: int = 1024) -> tuple[str, int]:
        """Listen on one more port, whose connections are ``fast`` (the VIP port, listenPort - 2)."""
        return await self._listen(host, port, fast=True, backlog=backlog)

    async def _listen(self, host: str, port: int, *, fast: bool, backlog: int) -> tuple[str, int]:
        def factory() -> Conn:
            return Conn(self, fast=fast)

        listener = await self.world.network.listen(factory, host, port, backlog=backlog)
        self._listeners.append(listener)
        self.draining = False
        return listener.address

    async def stop(self, *, seconds: float = 5.0) -> None:
        """Stop accepting, answer what is in flight, drain for at most ``seconds``, close every connection."""
        listeners, self._listeners = self._listeners, []
        await end_each(self.name, {f"listener {number}": one.close for number, one in enumerate(listeners, 1)})
        await self.close_connections(seconds)

    def opened(self, conn: Conn) -> None:
        if self._settings is not None:
            self._settings.bound(self.limits)
        limits, place = self.limits, _place(conn)
        if self.draining:
            conn.abort("too many connections")
        elif len(self.connections) >= limits.connections:
            self.cut(conn, "connections", "too many connections", _TOO_MANY, len(self.connections))
        elif limits.per_address and self._of_address[place] >= limits.per_address:
            form = _TOO_MANY + " from %s"
            self.cut(conn, "connections", "too many connections", form, self._of_address[place], place)
        else:
            self._of_address[place] += 1
            super().opened(conn)

    def lost(self, conn: Conn) -> None:
        if conn in self.connections:
            place = _place(conn)
            self._of_address[place] -= 1
            if not self._of_address[place]:
                del self._of_address[place]
        super().lost(conn)

    def _sweep(self) -> None:
        if self._settings is not None:
            self._settings.bound(self.limits)
        super()._sweep()

    def greet(self, conn: Conn, data: bytes) -> bool:
        def complain(why: object) -> None:
            self.complain("%s: closed: %s", conn.peer, why)

        try:
            pipe = self.tls.sense(data, cast(asyncio.Transport, conn._transport), conn, complain)
        except TlsRefused as error:
            complain(error)
            conn.close(str(error))
            return False
        if pipe is None:
            return True
        conn.secured(pipe)
        pipe.data_received(data)
        return False


def _place(conn: Conn) -> str:
    """Whom a connection counts for: its address, or its network of IPv6."""
    return f"{ipaddress.IPv6Address(conn.born_host[:8] + bytes(8))}/64" if conn.born_v6 else conn.host
