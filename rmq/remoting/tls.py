"""TLS over an open connection, by memory buffers: it works on every loop and after bytes were read.

A server looks at the first byte of a connection: 0x16 begins a TLS handshake, a plain frame begins with 0x00
(protocol.md 6.4). :class:`TlsPipe` then sits between the loop's transport and the connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from enum import Enum
from typing import Protocol, cast

from rmq.protocol.errors import ConfigError, ProtocolError
from rmq.runtime.sudden_end import end_in_order

__all__ = ["ServerTls", "TlsMode", "TlsPipe", "TlsRefused"]

#: First byte of a TLS record of type handshake.
_HANDSHAKE = 0x16
_READ_SIZE = 1 << 18


class TlsMode(Enum):
    """What a server accepts (Java: TlsMode)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"

    @classmethod
    def named(cls, text: str) -> TlsMode:
        """:raises ConfigError: no such mode."""
        try:
            return cls(text.strip().lower())
        except ValueError:
            raise ConfigError("disabled, permissive or enforcing is expected") from None


class TlsRefused(ProtocolError):
    """A connection that does not begin as it has to: its first bytes are, or are not, a handshake."""


class ServerTls:
    """How a server treats TLS; without a context a handshake is refused.

    :param context: what handshakes are done with, or what gives it for each of them.
    """

    __slots__ = ("_context", "mode")

    def __init__(
        self,
        mode: TlsMode = TlsMode.PERMISSIVE,
        context: ssl.SSLContext | Callable[[], ssl.SSLContext | None] | None = None,
    ) -> None:
        self.mode = mode
        self._context = context

    @property
    def context(self) -> ssl.SSLContext | None:
        """What the next handshake is done with."""
        return self._context() if callable(self._context) else self._context

    def sense(
        self,
        data: bytes | memoryview,
        transport: asyncio.BaseTransport,
        inner: TakesClear,
        failed: Callable[[str], None],
        *,
        advice: str = "",
    ) -> TlsPipe | None:
        """What carries a connection whose first bytes these are: a pipe where they begin a handshake.

        The connection writes through the pipe from now on, and hands ``data`` to it; clear bytes (None) are its own.

        :param transport: the loop's; its protocol is the pipe from now on.
        :param inner: the connection: takes the clear bytes.
        :param failed: as of :class:`TlsPipe`.
        :param advice: what to do at the other end, for who does not speak TLS and has to.
        :raises TlsRefused: they ought to begin one, or ought not to.
        """
        if data[0] != _HANDSHAKE:
            if self.mode is TlsMode.ENFORCING:
                raise TlsRefused("it does not speak TLS, which is enforced here" + (advice and f": {advice}"))
            return None
        if self.mode is TlsMode.DISABLED:
            raise TlsRefused("it speaks TLS, which is disabled here")
        if (context := self.context) is None:
            raise TlsRefused("it speaks TLS, but no certificate is configured here")
        pipe = TlsPipe(transport, inner, context, failed)
        cast(asyncio.Transport, transport).set_protocol(pipe)
        return pipe


class TakesClear(Protocol):
    """What takes the clear bytes of a connection."""

    def data_received(self, data: bytes) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


class TlsPipe(asyncio.Protocol):
    """The loop's protocol and the connection's transport at once.

    :param transport: the loop's transport; its protocol is to be set to this pipe.
    :param inner: takes the clear bytes.
    :param failed: told why, when a handshake or a record is wrong; the transport is closed then.
    """

    __slots__ = ("_failed", "_inner", "_object", "_out", "_ready", "_received", "_transport", "_waiting")

    def __init__(
        self,
        transport: asyncio.BaseTransport,
        inner: TakesClear,
        context: ssl.SSLContext,
        failed: Callable[[str], None],
    ) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._inner = inner
        self._failed = failed
        self._received = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._received, self._out, server_side=True)
        self._ready = False
        self._waiting: list[bytes] = []

    @property
    def ready(self) -> bool:
        """The handshake is done."""
        return self._ready

    # -- protocol side

    def data_received(self, data: bytes) -> None:
        self._received.write(data)
        try:
            if not self._ready and not self._handshake():
                return
            parts = []
            ended = False
            while True:
                try:
                    part = self._object.read(_READ_SIZE)
                except ssl.SSLWantReadError:
                    break
                if not part:
                    ended = True
                    break
                parts.append(part)
            self._push()
        except ssl.SSLZeroReturnError:
            self.close()
            return
        except ssl.SSLError as error:
            self._push()  # the alert
            self._failed(f"TLS: {error.reason or error}")
            end_in_order(self._transport)
            self._transport.close()
            return
        if parts:
            self._inner.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if ended:
            self.close()

    def _handshake(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._push()
            return False
        self._ready = True
        self._push()
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self.write(data)
        return True

    def _push(self) -> None:
        data = self._out.read()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    # -- transport side

    def write(self, data: bytes) -> None:
        if not self._ready:
            self._waiting.append(data)
            return
        done = self._object.write(data)
        if done < len(data):  # a record at a time, as some builds of OpenSSL do
            view = memoryview(data)
            while done < len(data):
                done += self._object.write(view[done:])
        self._push()

    def close(self) -> None:
        self.farewell().close()

    def farewell(self) -> asyncio.Transport:
        """Say that nothing more comes; the loop's transport, which is to be closed."""
        if self._ready and not self._transport.is_closing():
            try:
                self._object.unwrap()  # writes our close_notify; the other side's is not awaited
            except ssl.SSLError:
                pass
            self._push()
        return self._transport

    def abort(self) -> None:
        end_in_order(self._transport)
        self._transport.abort()

    def get_extra_info(self, name: str) -> object:
        """What is known of the connection below."""
        return self._transport.get_extra_info(name)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()
