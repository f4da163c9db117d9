"""The connection of one slave: who it is, what it reports, heartbeats and silence."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol, cast

from rmq.broker.replication.filling import Filling, LogSource
from rmq.broker.replication.master import MasterStream, Refused, Why
from rmq.broker.replication.pump import Pump
from rmq.protocol import addresses
from rmq.remoting.tls import ServerTls, TlsPipe, TlsRefused

__all__ = ["SlaveConnection", "SlaveSeen"]

#: Bytes that wait to be sent to one slave before the log is read on for it.
_UNSENT = 256 << 10


@dataclass(frozen=True, slots=True)
class SlaveSeen:
    """A slave as its master sees it; offsets of the commit log."""

    #: ``host:port`` of its end of the connection.
    address: str
    #: It has everything up to here.
    acked: int
    #: Where its stream began, and what is sent next.
    begun_at: int
    next: int
    #: Bytes sent since it connected, and how many seconds ago that was.
    sent: int
    seconds: float
    #: It is near enough for a SYNC_MASTER to wait for it.
    in_sync: bool
    #: For how many seconds the log has gone further than it has; of what is older than this master, as long as that is
    #: one.
    behind: float


class Service(Protocol):
    """Who has all the connections."""

    tls: ServerTls

    def opened(self, slave: SlaveConnection) -> None: ...

    def reported(self, slave: SlaveConnection, first: bool, acked: int) -> None: ...

    def closed(self, slave: SlaveConnection) -> None: ...

    def refuse(self, slave: SlaveConnection, error: Refused) -> None: ...

    def behind_seconds(self, acked: int) -> float: ...


class SlaveConnection(asyncio.Protocol):
    """The socket of one slave.

    :param service: knows all of them.
    """

    def __init__(self, service: Service, source: LogSource, pump: Pump[SlaveConnection]) -> None:
        self._clock, self._settings, self._log = source.clock, source.settings, source.log
        self._service = service
        self.stream = MasterStream(self._clock.monotonic(), from_first_file=self._settings.ha_copy_from_first_file)
        self._since = self.stream.last_read
        self.peer = "?"
        self.host: addresses.Host | None = None
        self.replica = ""
        #: It has reported, and its address is a replica.
        self.counts = False
        self._transport: asyncio.Transport | TlsPipe | None = None
        #: Nothing has arrived yet: whether it speaks TLS is not known.
        self._new = True
        self._timer: asyncio.TimerHandle | None = None
        self._pump = pump
        self._filling = Filling(source, pump, self.stream, lambda error: service.refuse(self, error))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its classes
        name = transport.get_extra_info("peername")
        if not name:  # it was gone again before it was taken
            transport.abort()
            return
        self._transport = self._filling.wire = transport
        host, port = name[:2]
        self.host = addresses.host(host)
        self.replica = str(self.host)
        self.peer = f"{self.replica}:{port}"
        transport.set_write_buffer_limits(high=_UNSENT)
        try:
            self._service.opened(self)
        except Refused as error:
            self._service.refuse(self, error)
        else:
            self._arm()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        service, stream = self._service, self.stream
        first = stream.next < 0
        try:
            if self._new:
                self._new = False
                if self._secured(data):
                    return
            acked = stream.received(data, self._pump.extent(), self._clock.monotonic())
        except Refused as error:
            service.refuse(self, error)
            return
        if stream.next < 0:
            return
        service.reported(self, first, acked)
        if first:
            self._arm()
            self.fill()
        else:
            self._filling.heard()

    def _secured(self, data: bytes) -> bool:
        """Whether these first bytes begin a handshake, which they do now: no log is so long that a report would.

        :raises Refused: they ought to, or ought not to.
        """

        def failed(why: str) -> None:
            self._service.refuse(self, Refused(Why.TLS, why))

        try:
            pipe = self._service.tls.sense(
                data, cast(asyncio.Transport, self._transport), self, failed,
                advice="set tls.server.mode=enforcing at that slave, too; slaves of Java's cannot",
            )  # fmt: skip
        except TlsRefused as error:
            raise Refused(Why.TLS, str(error)) from None
        if pipe is None:
            return False
        self._transport = self._filling.wire = pipe
        pipe.data_received(data)
        return True

    def pause_writing(self) -> None:
        self._filling.paused = True

    def resume_writing(self) -> None:
        self._filling.paused = False
        self._pump.fill_soon()

    @property
    def next(self) -> int:
        """What is sent to it next; -1 before it has said where it is."""
        return self.stream.next

    def fill(self, most: int | None = None) -> None:
        """Send what there is, some ``most`` bytes of it; by default a turn's part."""
        self._filling.fill(most)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        settings = self._settings
        self.stream.heartbeat = settings.ha_send_heartbeat_interval / 1000
        self.stream.silence = settings.ha_housekeeping_interval / 1000
        # Never 0: a timer that comes a rounding too early finds nothing due.
        delay = max(0.001, self.stream.due - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._transport is None:
            return
        try:
            due = self.stream.on_tick(self._clock.monotonic())
        except Refused as error:
            self._service.refuse(self, error)
            return
        # A slave that does not read gets no heartbeats on top of what it has not read.
        if due and not self._filling.paused:
            self._transport.write(due)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._filling.wire = None
        self.close()

    def close(self) -> None:
        """Let go of it, at once: what is not sent yet is sent again on the next connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._filling.close()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._service.closed(self)

    def seen(self) -> SlaveSeen:
        """How it is."""
        stream = self.stream
        behind = self._log.end - stream.acked
        return SlaveSeen(
            address=self.peer,
            acked=stream.acked,
            begun_at=stream.begun_at,
            next=stream.next,
            sent=stream.sent,
            seconds=self._clock.monotonic() - self._since,
            in_sync=behind < self._settings.ha_slave_fallbehind_max,
            behind=self._service.behind_seconds(stream.acked),
        )
