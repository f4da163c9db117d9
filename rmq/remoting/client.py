"""The remoting client: a connection per address, opened at first use, shared by every call."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ConnectFailed, ConnectTimeout, ResponseError
from rmq.remoting.calls import Done
from rmq.remoting.conn import Conn
from rmq.remoting.endpoint import Endpoint
from rmq.remoting.limits import MAX_FRAME, Limits
from rmq.remoting.peer_tls import SDK, OptionNames, PeerTls
from rmq.remoting.router import Router
from rmq.runtime import patience
from rmq.runtime.aside import logger
from rmq.runtime.world import World

__all__ = ["Hook", "RemotingClient", "Turn", "left_for_answer", "split_address"]

log = logger(__name__)

CONNECT_SECONDS = 3.0
#: Of the servers that we choose, an answer may be as long as its frame.
_LIMITS = Limits(header=MAX_FRAME - 8)
#: Addresses that could not be reached which are remembered.
_MOST_FAILED = 1_000


class Hook(Protocol):
    """Sees every request of a client (Java: RPCHook); ``before`` may change it (sign it).

    What either of them returns is awaited; None: it is done.
    """

    def before(self, addr: str, request: Command) -> Awaitable[None] | None: ...

    def after(self, addr: str, request: Command, response: Command | None) -> Awaitable[None] | None:
        """``response`` is None when there was none."""


class Turn(Protocol):
    """When a request may be written that is ready to be: behind others."""

    async def come(self, seconds: float) -> None:
        """Wait for it. :raises RequestTimeout: it did not come in time."""

    def leave(self) -> None:
        """The request is with its connection."""


def split_address(addr: str) -> tuple[str, int]:
    """``host:port`` or ``[ipv6]:port`` as a pair; a bare IPv6 address with a port (``::1:9876``) is read as Java does.

    :raises ConfigError: no port, or none that exists.
    """
    host, colon, port = addr.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{addr!r} is no address: host:port or [ipv6]:port is expected")
    return host.lstrip("/").strip("[]"), int(port)


def left_for_answer(timeout: float, connecting: float) -> float:
    """Seconds for an answer on a connection that had to be opened: what that has left of ``timeout``.

    :param connecting: seconds that it took, without those in which the loop stood still.
    """
    return max(0.001, timeout - connecting)


def _not_reached(addr: str, why: str, kind: type[ConnectFailed] = ConnectFailed) -> ConnectFailed:
    return kind(f"connect to {addr} failed: {why}").about(address=addr)


def _reason(error: OSError) -> str:
    """The system's words; loops differ in theirs."""
    if error.errno is not None and error.errno > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return error.strerror or str(error) or "the other side ended the connection"


class RemotingClient:
    """Calls servers and answers what they ask (Java: NettyRemotingClient).

    :param router: answers requests that come from servers; one of its own when not given.
    :param tls: speak TLS on every connection.
    :param connect_timeout: seconds.
    :param options: what those of TLS are called here, for errors.
    """

    def __init__(
        self,
        world: World,
        *,
        router: Router | None = None,
        limits: Limits | None = None,
        tls: ssl.SSLContext | PeerTls | None = None,
        connect_timeout: float = CONNECT_SECONDS,
        name: str = "client",
        options: OptionNames = SDK,
    ) -> None:
        self.world = world
        self.router = router if router is not None else Router()
        self.hooks: list[Hook] = []
        #: Puts the signature of an account into a request, behind what hooks have changed; None: there is no account.
        self.signer: Callable[[Command], None] | None = None
        #: Address -> the name that led there, which its TLS certificate is checked against.
        self.server_names: dict[str, str] = {}
        self._tls = PeerTls(tls, names=options) if isinstance(tls, ssl.SSLContext) else tls
        self._options = options
        self._connect_timeout = connect_timeout
        self._endpoint = Endpoint(world, self.router, limits or _LIMITS, step=None, at_once=True, name=name)
        self._conns: dict[str, Conn] = {}
        self._opening: dict[str, asyncio.Task[Conn | ConnectFailed]] = {}
        #: Addresses to which the last attempt to connect has failed, and when, monotonic seconds; the newest last.
        self._failed: dict[str, float] = {}
        self._closed = False
        self._endpoint.on_close.append(self._gone)
        self._endpoint.why = self._why

    @property
    def on_served(self) -> list[Callable[[], None]]:
        """Told when what was read has been served, in the same turn of the loop."""
        return self._endpoint.on_served

    @property
    def on_close(self) -> list[Callable[[Conn], None]]:
        """Told each connection that ended."""
        return self._endpoint.on_close

    @property
    def addresses(self) -> list[str]:
        """Where connections are open."""
        return list(self._conns)

    def connected(self, addr: str) -> Conn | None:
        """The open connection to an address, if there is one."""
        conn = self._conns.get(addr)
        return conn if conn is not None and not conn.closed else None

    def unreachable(self, addr: str, within: float) -> bool:
        """Whether the last attempt to connect to an address has failed, not longer ago than ``within`` seconds."""
        return self._failed.get(addr, -math.inf) > self.world.clock.monotonic() - within

    async def connection(self, addr: str) -> Conn:
        """The connection to ``addr``, opened when there is none; callers that come meanwhile share the attempt.

        :raises ConnectFailed: it cannot be opened in time, or the client is closed.
        :raises ConfigError: not an address.
        """
        conn = self._conns.get(addr)
        if conn is not None and not conn.closed:
            return conn
        if self._closed:
            raise ConnectFailed(f"{addr}: the client is closed").about(address=addr)
        opening = self._opening.get(addr)
        if opening is None:
            host, port = split_address(addr)
            opening = self._endpoint.tasks.spawn(self._open(addr, host, port), f"connect {addr}")
            self._opening[addr] = opening
            opening.add_done_callback(lambda task: self._opened(addr, task))
        try:
            result = await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise ConnectFailed(f"{addr}: the client is closed").about(address=addr) from None
            raise
        if isinstance(result, Conn):
            return result
        raise type(result)(*result.args).about(address=addr)

    async def _open(self, addr: str, host: str, port: int) -> Conn | ConnectFailed:
        """The connection or why there is none: returned, so that a failure nobody waits for any more is no error."""
        result = await self._connect(addr, host, port)
        self._failed.pop(addr, None)
        if isinstance(result, ConnectFailed):
            self._failed[addr] = self.world.clock.monotonic()
            if len(self._failed) > _MOST_FAILED:
                del self._failed[next(iter(self._failed))]
        return result

    async def _connect(self, addr: str, host: str, port: int) -> Conn | ConnectFailed:
        tls = self._tls

        def factory() -> Conn:
            return Conn(self._endpoint, inbound=False, address=addr)

        try:
            async with patience.timeout(self._connect_timeout):
                _, conn = await self.world.network.connect(
                    factory, host, port,
                    ssl_context=tls.context if tls else None,
                    server_name=tls.server_name if tls and tls.server_name else self.server_names.get(addr),
                )  # fmt: skip
        except TimeoutError:
            return _not_reached(addr, f"no answer in {self._connect_timeout:g} s", ConnectTimeout)
        except OSError as error:  # ssl.SSLError is one
            return _not_reached(addr, (tls.fault(error, connecting=True) if tls else None) or _reason(error))
        assert isinstance(conn, Conn)
        self._conns[addr] = conn
        return conn

    def _why(self, conn: Conn, error: Exception | None) -> str:
        """Why the other side has ended a connection."""
        if self._tls is not None and isinstance(error, ssl.SSLError) and (fault := self._tls.fault(error)):
            return fault
        if error is None and self._tls is None and not conn.active and conn.heard_at == conn.opened_at:
            return (
                "closed by the other side before it answered anything: perhaps it takes TLS only "
                f"({self._options.on}); its log says why"
            )
        return str(error) if error else "closed by the other side"

    def _opened(self, addr: str, task: asyncio.Task[Conn | ConnectFailed]) -> None:
        if self._opening.get(addr) is task:
            del self._opening[addr]

    def _gone(self, conn: Conn) -> None:
        if self._conns.get(conn.address) is conn:
            del self._conns[conn.address]

    async def request(self, addr: str, command: Command, timeout: float = 3.0, turn: Turn | None = None) -> Command:
        """Ask and wait for the answer, whatever its code.

        :param addr: ``host:port`` or ``[ipv6]:port``.
        :param timeout: seconds for connecting and the answer together.
        :param turn: it is written when that has come, which begins the time for its answer anew.
        :raises ConnectFailed: nothing was sent.
        :raises ConnectionLost: the connection ended; whether the call took effect is unknown.
        :raises RequestTimeout: no answer in time; other calls on the connection go on.
        :raises TooManyRequests: too many calls, or bytes, wait on this connection; nothing was sent.
        """
        conn = self._conns.get(addr)
        if conn is None or conn.closed:
            began = self.world.clock.monotonic()
            with patience.Standstill() as still:
                conn = await self._within(addr, timeout)
            timeout = left_for_answer(timeout, self.world.clock.monotonic() - began - still.seconds)
        if not self.hooks:
            if turn is None:
                return await conn.request(self.signed(command), timeout)
            await turn.come(timeout)
            return await conn.request(self.signed(command), timeout, turn.leave)
        await self._before(addr, command)
        if turn is not None:
            await turn.come(timeout)
        answer: Command | None = None
        try:
            answer = await conn.request(command, timeout, None if turn is None else turn.leave)
            return answer
        finally:
            await self._after(addr, command, answer)

    async def ask(self, addr: str, command: Command, timeout: float = 3.0) -> Command:
        """:meth:`request`, of which only success is an answer.

        :raises ResponseError: the other side says no.
        """
        answer = await self.request(addr, command, timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark, addr)
        return answer

    def signed(self, command: Command) -> Command:
        """The same request, signed where there is an account to sign with."""
        if self.signer is not None:
            self.signer(command)
        return command

    async def _before(self, addr: str, command: Command) -> None:
        for hook in self.hooks:
            if (waits := hook.before(addr, command)) is not None:
                await waits
        self.signed(command)

    async def _after(self, addr: str, command: Command, answer: Command | None) -> None:
        """Tell the hooks how a call ended: what one of them raises changes nothing of that."""
        for hook in self.hooks:
            try:
                if (waits := hook.after(addr, command, answer)) is not None:
                    await waits
            except Exception:
                log.exception("a hook failed after a call of %s", addr)

    async def _within(self, addr: str, timeout: float) -> Conn:
        try:
            async with patience.timeout(timeout):
                return await self.connection(addr)
        except TimeoutError:
            raise _not_reached(addr, f"no answer in {float(f'{timeout:.3g}'):g} s") from None

    def call(self, addr: str, command: Command, timeout: float, done: Done) -> None:
        """Ask without waiting: ``done`` is told once how it ended, an answer or an error of :meth:`request`.

        Never raises what concerns the connection: that goes to ``done`` too.
        """
        conn = self._conns.get(addr)
        if conn is not None and not conn.closed and not self.hooks:
            try:
                conn.call(self.signed(command), timeout, done)
            except Exception as error:
                done(error)
        elif self._closed or self._endpoint.tasks.closed:
            done(ConnectFailed(f"{addr}: the client is closed").about(address=addr))
        else:
            task = self._endpoint.tasks.spawn(self._call_later(addr, command, timeout, done), f"call {addr}")
            closed = ConnectFailed(f"{addr}: the client is closed").about(address=addr)
            # Not by the task: one that is cancelled before it begins says nothing.
            task.add_done_callback(lambda ended: done(closed) if ended.cancelled() else None)

    async def _call_later(self, addr: str, command: Command, timeout: float, done: Done) -> None:
        answer: Command | Exception
        try:
            answer = await self.request(addr, command, timeout)
        except Exception as error:
            answer = error
        done(answer)

    async def oneway(self, addr: str, command: Command, timeout: float = 3.0, turn: Turn | None = None) -> None:
        """Send without an answer; returns when it is handed to the connection.

        :param turn: it is written when that has come.

        :raises ConnectFailed: nothing was sent.
        """
        conn = self._conns.get(addr)
        if conn is None or conn.closed:
            conn = await self._within(addr, timeout)
        if self.hooks:
            await self._before(addr, command)
        else:
            self.signed(command)
        if turn is not None:
            await turn.come(timeout)
        conn.oneway(command)
        if turn is not None:
            turn.leave()
        if self.hooks:
            await self._after(addr, command, None)

    def disconnect(self, addr: str, reason: str = "closed here") -> None:
        """Close the connection to an address; calls that wait on it fail with ConnectionLost."""
        conn = self._conns.pop(addr, None)
        if conn is not None:
            conn.close(reason)

    async def close(self, *, seconds: float = 1.0) -> None:
        """Close every connection; calls that wait fail with ConnectionLost."""
        self._closed = True
        for task in list(self._opening.values()):
            task.cancel()
        await self._endpoint.close_connections(seconds)
        self._conns.clear()

    async def __aenter__(self) -> RemotingClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
