"""The connection of a slave to its master: what comes is stored, and reports, heartbeats and silence are on time."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from rmq.broker.replication.slave import SlaveStream
from rmq.protocol import addresses
from rmq.protocol.errors import ReplicationError, RMQError

__all__ = ["MasterConnection"]

log = logging.getLogger(__name__)


class Client(Protocol):
    """Who follows the master."""

    def stream(self) -> SlaveStream:
        """A stream from where the log ends now."""

    def set_times(self, stream: SlaveStream) -> None:
        """As they are configured now."""

    def take(self, stream: SlaveStream, data: bytes) -> bytes:
        """Append what arrived; the reports that are due.

        :raises RMQError: the stream cannot go on, or the store takes nothing.
        :raises OSError: the disk refused.
        """

    def check(self, address: str) -> None:
        """:raises ReplicationError: this connection is of no use any more."""

    def now(self) -> float:
        """Monotonic seconds."""

    def now_ms(self) -> int:
        """Wall clock."""


class MasterConnection(asyncio.Protocol):
    """The socket of one stream.

    :param client: has the log.
    :param address: of the master, as it was known.
    """

    #: Made when the connection is there: until then the log may grow or be cut.
    stream: SlaveStream

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self._address = address
        #: Done when the connection is over, with the reason.
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        #: ``host:port`` to which the address has led.
        self.peer = address
        self._timer: asyncio.TimerHandle | None = None
        #: Wall clock, ms, of the last byte received and the last report; 0 = never.
        self.read_ms = self.write_ms = 0
        #: Monotonic seconds.
        self.since = client.now()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its classes
        if self.ended.done():
            transport.abort()
            return
        self._transport = transport
        if name := transport.get_extra_info("peername"):
            self.peer = addresses.join(str(addresses.host(name[0])), name[1])
        self.stream = self._client.stream()
        self._send(self.stream.first(self._client.now()))
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        self.read_ms = self._client.now_ms()
        try:
            self._send(self._client.take(self.stream, data))
        except (OSError, RMQError) as error:
            self.end(error)
        except Exception as error:
            log.exception("what the master sent could not be taken")
            self.end(ReplicationError(f"what the master sent could not be taken: {error!r}"))

    def flushed(self, to: int) -> None:
        """The log is on disk up to ``to``."""
        self._send(self.stream.stored(to, self._client.now()))

    def _send(self, data: bytes) -> None:
        if data and self._transport is not None:
            self.write_ms = self._client.now_ms()
            self._transport.write(data)

    def _arm(self) -> None:
        self._client.set_times(self.stream)
        # Never 0: a timer that comes a rounding too early finds nothing due.
        delay = max(0.001, self.stream.due - self._client.now())
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self._client.check(self._address)
            self._send(self.stream.on_tick(self._client.now()))
        except ReplicationError as error:
            self.end(error)
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if exc is None or isinstance(exc, ConnectionResetError):
            why = "the master has closed the connection, or is gone: its log says why"
            if not self.read_ms:
                why += ", or this is not the port where it listens for slaves, its listenPort + 1"
            exc = ConnectionResetError(why)
        self.end(exc)

    def end(self, error: Exception | None) -> None:
        """Close the socket; who waits for the end hears why."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.ended.done():
            self.ended.set_result(error)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
