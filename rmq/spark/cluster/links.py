"""One blocking connection to a server: requests out, several at once if need be, and their answers in."""

from __future__ import annotations

import ssl
from collections.abc import Container, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from rmq.protocol import frame, signature
from rmq.protocol.addresses import parse
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ConnectFailed, ConnectionLost, ConnectTimeout, FrameError, RequestTimeout
from rmq.runtime.dial import Dial, Wire
from rmq.spark.options.checked import Endpoint

if TYPE_CHECKING:
    from rmq.remoting.peer_tls import PeerTls

__all__ = ["Link", "open_link"]

_PREFIX = Struct(">iI")
_LAST_OPAQUE = 0x7FFFFFFF


def open_link(dial: Dial, address: str, endpoint: Endpoint, timeout: float, tls: PeerTls | None = None) -> Link:
    """Connect to ``address``.

    :param timeout: seconds. :raises ConnectFailed: nobody answers there.
    :raises ConfigError: TLS with who answers fails, and would fail again.
    """
    host, port = parse(address)
    try:
        if tls is None:
            wire = dial.connect(host, port, timeout)
        else:
            wire = dial.connect(host, port, timeout, tls.context, tls.server_name)
    except TimeoutError:
        raise ConnectTimeout(f"connect to {address} failed: no answer in {timeout:g} s") from None
    except OSError as error:
        fault = tls.fault(error, connecting=True) if tls is not None else None
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            raise ConfigError(f"{address}: {fault}") from None
        raise ConnectFailed(f"connect to {address} failed: {fault or error.strerror or error}") from None
    return Link(wire, address, endpoint, tls)


class Link:
    """Requests and answers over one connection.

    After any error the connection is closed: what still was to come on it would be taken for something else.
    """

    def __init__(self, wire: Wire, address: str, endpoint: Endpoint, tls: PeerTls | None = None) -> None:
        self.address = address
        self.closed = False
        self._wire = wire
        self._endpoint = endpoint
        self._tls = tls
        self._opaque = 0
        self._prefix = memoryview(bytearray(8))

    def post(self, command: Command) -> int:
        """Send a request without waiting; the number its answer will carry. :raises ConnectionLost: it is broken."""
        self._opaque = opaque = self._opaque % _LAST_OPAQUE + 1
        command.opaque = opaque
        endpoint = self._endpoint
        if endpoint.access_key is not None and endpoint.secret_key is not None:
            command.ext = signature.signed_fields(
                command.ext, command.body, endpoint.access_key, endpoint.secret_key, endpoint.security_token
            )
        data = frame.encode(command)
        try:
            self._wire.send(data)
        except OSError as error:
            raise self._lost(error) from None
        return opaque

    def head(self, awaited: Container[int], timeout: float) -> tuple[Command, int]:
        """The next answer to one of the requests without its body, and how many bytes :meth:`body` is to read.

        What else the server says meanwhile is dropped: a link serves one caller, who asked for this.

        :param timeout: seconds the server may be silent.
        :raises RequestTimeout: it was. :raises ConnectionLost: the connection ended. :raises FrameError: no frame.
        """
        prefix = self._prefix
        if self.closed:
            raise ConnectionLost(f"the connection to {self.address} was lost")
        while True:
            try:
                self._wire.read(prefix, timeout)
                length, mark = _PREFIX.unpack(prefix)
                size = mark & 0xFFFFFF
                rest = length - 4 - size
                if rest < 0 or length > frame.MAX_FRAME:
                    raise FrameError(f"{self.address} sent a frame of {length} bytes with a header of {size}")
                header = bytearray(4 + size)
                header[:4] = prefix[4:]
                self._wire.read(memoryview(header)[4:], timeout)
                answer = frame.decode(header)
            except OSError as error:
                raise self._lost(error) from None
            except Exception:  # what follows on the connection would be taken for something else
                self.close()
                raise
            if answer.is_response and answer.opaque in awaited:
                return answer, rest
            self.body(memoryview(bytearray(rest)), timeout)

    def body(self, into: memoryview, timeout: float) -> None:
        """Read the body that :meth:`head` announced. :raises ConnectionLost: the connection ended."""
        try:
            self._wire.read(into, timeout)
        except OSError as error:
            raise self._lost(error) from None

    def answer(self, awaited: Container[int], timeout: float) -> Command:
        """The next whole answer to one of the requests; errors as :meth:`head`."""
        command, size = self.head(awaited, timeout)
        if size:
            body = bytearray(size)
            self.body(memoryview(body), timeout)
            command.body = bytes(body)
        return command

    def ask(self, command: Command, timeout: float) -> Command:
        """Send a request and wait for its answer, whatever its code."""
        return self.answer((self.post(command),), timeout)

    def ask_all(self, commands: Sequence[Command], timeout: float) -> list[Command]:
        """Send requests one behind the other, then collect the answers, in whatever order they come."""
        awaited = [self.post(command) for command in commands]
        found: dict[int, Command] = {}
        while len(found) < len(awaited):
            answer = self.answer(awaited, timeout)
            found[answer.opaque] = answer
        return [found[opaque] for opaque in awaited]

    def close(self) -> None:
        self.closed = True
        self._wire.close()

    def _lost(self, error: OSError) -> RequestTimeout | ConnectionLost | ConfigError:
        self.close()
        if self._tls is not None and isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return ConfigError(f"{self.address}: {self._tls.fault(error)}")
        if isinstance(error, TimeoutError):
            return RequestTimeout(f"{self.address} did not answer in time")
        return ConnectionLost(f"the connection to {self.address} was lost: {error.strerror or error}")
