"""TCP that blocks, for processes that do one thing at a time: Spark's workers have no loop to give way to."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import struct
import time
from typing import Protocol

__all__ = ["Dial", "RealDial", "Wire", "is_own_end"]

#: Bytes the kernel may hold of an answer while the last one is decoded.
_RECEIVE_BUFFER = 4 << 20
#: Bytes read ahead of what is asked for: a short answer comes whole, with one call of the system for all its parts.
_AHEAD = 64 << 10


def is_own_end(opened: socket.socket) -> bool:
    """Whether a connection that was opened is one to itself; it leaves nothing behind when it is closed then.

    Where nobody listens at a port of this machine, and the kernel chooses that port for the end here, TCP connects the
    two: something seems to answer there, and who is to listen there is kept out for as long as it lasts. Whoever tries
    again and again gets there within minutes: ports of Java's DLedger samples are among those that the kernel chooses.
    """
    try:
        if opened.getsockname() != opened.getpeername():
            return False
    except OSError:  # the other side, whoever that was, has gone already
        return False
    with contextlib.suppress(OSError):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return True


class Wire(Protocol):
    """One open connection. Every method may raise OSError (TimeoutError when the other side is silent)."""

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Hand over all of ``data``."""

    def read(self, into: memoryview, timeout: float) -> None:
        """Fill ``into``; ``timeout`` seconds may pass between two pieces. ConnectionError when the other side ends."""

    def close(self) -> None: ...


class Dial(Protocol):
    """Connections and clocks of a process that blocks."""

    def connect(
        self, host: str, port: int, timeout: float, tls: ssl.SSLContext | None = None, server_name: str | None = None
    ) -> Wire:
        """Open a connection within ``timeout`` seconds. Errors: OSError.

        :param server_name: whose certificate the other side must show, when that is not ``host``.
        """

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Monotonic clock, seconds."""

    def sleep(self, seconds: float) -> None: ...


class _Socket:
    __slots__ = ("_ahead", "_buffer", "_socket", "_timeout")

    def __init__(self, connected: socket.socket, timeout: float) -> None:
        self._socket = connected
        self._timeout = timeout
        self._buffer = memoryview(bytearray(_AHEAD))
        #: What of the buffer was read and not yet asked for.
        self._ahead = self._buffer[:0]

    def send(self, data: bytes | bytearray | memoryview) -> None:
        self._socket.sendall(data)

    def read(self, into: memoryview, timeout: float) -> None:
        while True:
            ahead = self._ahead
            size = min(len(into), len(ahead))
            into[:size] = ahead[:size]
            self._ahead = ahead[size:]
            into = into[size:]
            while len(into) >= _AHEAD:
                into = into[self._receive(into, timeout) :]
            if not len(into):
                return
            self._ahead = self._buffer[: self._receive(self._buffer, timeout)]

    def _receive(self, into: memoryview, timeout: float) -> int:
        if timeout != self._timeout:
            self._socket.settimeout(timeout)
            self._timeout = timeout
        got = self._socket.recv_into(into)
        if not got:
            raise ConnectionError("the other side closed the connection")
        return got

    def close(self) -> None:
        self._socket.close()


class RealDial:
    """TCP sockets and clocks of this machine."""

    __slots__ = ()

    def connect(
        self, host: str, port: int, timeout: float, tls: ssl.SSLContext | None = None, server_name: str | None = None
    ) -> Wire:
        opened = socket.create_connection((host.strip("[]"), port), timeout)
        try:
            if is_own_end(opened):
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            if tls is not None:
                opened = tls.wrap_socket(opened, server_hostname=server_name or host.strip("[]"))
        except BaseException:
            opened.close()
            raise
        return _Socket(opened, timeout)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
