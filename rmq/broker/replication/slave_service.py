"""Follows a master: keeps one connection to it, and appends what comes over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from rmq.broker.replication.incoming import FilesDiffer, IncomingRecords, LogsDiffer
from rmq.broker.replication.master import CUT_BACK, EMPTY
from rmq.broker.replication.slave import HolesFound, SlaveStream
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.log.reader import Damage
from rmq.broker.store.store import Store
from rmq.broker.store.trouble import Trouble
from rmq.protocol import addresses
from rmq.protocol.errors import ConfigError, ReplicationError, RMQError
from rmq.runtime import patience
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["SlaveClient", "SlaveStatus"]

log = logging.getLogger(__name__)

#: Seconds between two tries, and how long one may take to connect.
_PAUSE = 5.0
_CONNECT_SECONDS = 10.0
#: Bytes of the newest record that the master is asked for again, at most, and where no queue knows that record.
_MOST_TAIL = 8 << 20
_LEAST_TAIL = 64 << 10
#: Bytes from the first hole in the log to its end that are compared with the master's and copied again, at most.
_MOST_AGAIN = 64 << 20
#: Damaged parts that a master is asked for, at most, until it is another one: it may have them no better.
_MOST_HOLES = 1000
#: What is done where files have not the same size: a log of another size is another one.
_SAME_FILES = f"stop this slave, set the master's number here, and: {EMPTY}"
#: Seconds between two looks whether there is an address, while there is none.
_LOOK_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """What a slave says of its link."""

    #: ``host:port`` of the master's HA listener; None while none is known.
    master: str | None
    connected: bool
    #: Where this log ends.
    end: int
    #: Bytes received since the start.
    received: int
    #: Connections that were opened, and that ended because the logs were not the same.
    connections: int
    refused: int
    #: Wall clock, ms, of the last byte received and the last report; 0 = never.
    last_read_ms: int
    last_write_ms: int
    #: Why the last connection ended, or could not be opened; None while there is one.
    trouble: str | None
    #: Bytes a second, since the connection was opened.
    speed: int


class SlaveClient:
    """Copies a master's commit log for as long as it runs (Java: HAClient).

    :param store: its gate says that this is a slave; it is loaded and started.
    :param address_source: the ``host:port`` of the master's HA listener as it is known now, asked again and again; None
        or "" while nobody knows. ``haMasterAddress`` goes before it.
    """

    def __init__(
        self, world: World, store: Store, address_source: Callable[[], str | None], settings: BrokerSettings
    ) -> None:
        self._world = world
        self._store = store
        self._address_source = address_source
        self._settings = settings
        self.tasks = TaskOwner("slave")
        self._incoming = IncomingRecords(store.log.file_size, crc=settings.ha_check_crc)
        self._tls = settings.peer_tls()
        self._link: _Link | None = None
        #: What the log had at its end before the link was made.
        self._tail = b""
        #: What is known to be damaged in the log, near its end: a master that has it sends it again.
        self._holes: list[Damage] = []
        #: Those that a master was asked for, and which one.
        self._tried: set[Damage] = set()
        self._tried_at = ""
        #: Two addresses of a master that do not fit, as they were told of last.
        self._told = ("", "")
        self._trouble = Trouble(
            world.clock, log, "following the master", "this slave's log does not grow; it is tried again"
        )
        self._why: str | None = None
        #: The master's log was compared with the one here, and is the same; not when the connection has failed since.
        self.fits = False
        self._received = self._connections = self._refused = 0
        self._read_ms = self._write_ms = 0

    def start(self) -> None:
        """Follow the master from now on."""
        if self._settings.ha_ack_after_flush:
            self._store.events.flushed.append(self._flushed)
        self.tasks.serve(self._follow(), "follow")

    async def stop(self) -> None:
        """End the connection; nothing is appended any more."""
        if self._link is not None:
            self._link.end(None)
        await self.tasks.close()
        if self._flushed in self._store.events.flushed:
            self._store.events.flushed.remove(self._flushed)

    def status(self) -> SlaveStatus:
        """How the link is."""
        link = self._link
        return SlaveStatus(
            self.address, link is not None, self._store.log.end,
            self._received + (link.stream.taken if link is not None else 0), self._connections, self._refused,
            self._read_ms if link is None else link.read_ms, self._write_ms if link is None else link.write_ms,
            self._why, 0 if link is None else int(link.stream.taken / max(self.now() - link.since, 1.0)),
        )  # fmt: skip

    @property
    def address(self) -> str | None:
        """Where the master listens for its slaves, as far as it is known."""
        return self._settings.ha_master_address or self._address_source() or None

    async def _follow(self) -> None:
        while True:
            address = self.address
            if address is None:
                await asyncio.sleep(_LOOK_PAUSE)
                continue
            began = self._world.clock.monotonic()
            try:
                await self._one_connection(address)
            except HolesFound as found:
                self._tried.update(self._holes)
                await self._cut_back(found.at)
                continue
            except TimeoutError:
                silent = f"it does not answer within {_CONNECT_SECONDS:.0f} s"
                if self._tls is not None:
                    silent += ": a master of Java's, and one whose tls.server.mode is another, speaks no TLS here"
                self._failed(address, OSError(silent))
            except (OSError, RMQError) as error:
                fault = self._tls.fault(error) if self._tls is not None else None
                self._failed(address, OSError(fault) if fault else error)
            # A link that was good is made again at once; one that is refused, not again and again.
            if self._world.clock.monotonic() - began < _PAUSE:
                await asyncio.sleep(_PAUSE)

    async def _cut_back(self, at: int) -> None:
        """The master has all that lies behind, and what is missing between it."""
        log.warning(
            "this slave's log has lost what was at %d; its master has that, and all that follows to %d: the log is cut "
            "back and copied from there again", at, self._store.log.end,
        )  # fmt: skip
        try:
            await self._store.truncate(at)
        except (OSError, RMQError) as error:
            self._trouble.failed(error)
            await asyncio.sleep(_PAUSE)

    def _failed(self, address: str, error: Exception) -> None:
        self._why = f"{address}: {error}"
        if isinstance(error, LogsDiffer):
            self._refused += 1
            what_to_do = _SAME_FILES if isinstance(error, FilesDiffer) else f"stop this slave, and: {CUT_BACK}"
            self._why += f"; {what_to_do}"
            error = LogsDiffer(f"{error}; {what_to_do}")
        self._trouble.failed(error, address)

    async def _one_connection(self, address: str) -> None:
        """Until it ends.

        :raises OSError: the master cannot be reached, the connection has ended, or the disk refused.
        :raises RMQError: the stream cannot go on.
        """
        try:
            host, port = addresses.parse(address)
        except ConfigError as error:
            raise ReplicationError(f"this is no HA address of a master: {error}") from None
        await self._all_flushed()
        self._tail = await self._read_tail(address)
        link = _Link(self, address)
        try:
            async with patience.timeout(_CONNECT_SECONDS):
                context = self._tls.context if self._tls is not None else None
                try:
                    await self._world.network.connect(lambda: link, host, port, ssl_context=context)
                except OSError as error:
                    fault = self._tls.fault(error, connecting=True) if self._tls is not None else None
                    raise OSError(fault) if fault else error from None
            self._link = link
            self.fits = link.stream.fits
            self._connections += 1
            if self._why is None:
                log.info("following the master at %s from offset %d on", address, self._store.log.end)
            self._compare_address(address, link.peer)
            why = await link.ended
        finally:
            if self._link is link:
                self._link = None
                self._received += link.stream.taken
                self._read_ms, self._write_ms = link.read_ms, link.write_ms
            link.end(None)
        if why is not None:
            self.fits = False
            raise why

    async def _all_flushed(self) -> None:
        """What the first report says must be as safe as any other."""
        store = self._store
        while self._settings.ha_ack_after_flush and store.durable_end() < store.log.end:
            store.flusher.request()
            await asyncio.sleep(0.01)

    def _compare_address(self, address: str, peer: str) -> None:
        """A log has no name in it: an empty slave that is sent to another set's master takes all that this has.

        :param peer: ``host:port`` to which the address has led.
        """
        known = self._address_source()
        if not known or known in (address, peer) or self._told == (address, known):
            return
        try:
            host, port = addresses.parse(known)
            if addresses.join(str(addresses.host(host)), port) == peer:
                return
        except (ConfigError, ValueError):
            return  # a name: where it leads the name servers do not say
        self._told = (address, known)
        log.warning(
            "haMasterAddress=%s leads to %s, and name servers say that the master of %s sends its log from %s: make "
            "sure that both are the same broker, or leave haMasterAddress out",
            address, peer, self._settings.broker_name, known,
        )  # fmt: skip

    def _new_holes(self) -> list[Damage]:
        """What is damaged near the end of the log, and no master was asked for."""
        log = self._store.log
        first = max(log.start, log.end - _MOST_AGAIN)
        return sorted(
            part
            for part in self._store.damaged.parts
            if first <= part.start and part.end <= log.end and part not in self._tried
        )

    async def _read_tail(self, address: str) -> bytes:
        """What the master is asked for again: the newest record, or all from the first hole in the log on.

        :raises OSError: it cannot be read.
        """
        store, log = self._store, self._store.log
        end = log.end
        if address != self._tried_at:
            self._tried.clear()
            self._tried_at = address
        self._holes = self._new_holes() if len(self._tried) < _MOST_HOLES else []
        if self._holes:
            try:
                return await self._read(max(log.start, self._holes[0].start - _LEAST_TAIL, 1))
            except OSError:  # what the disk does not give is not written again either
                self._tried.update(self._holes)
                self._holes = []
        at = max(log.start, end - _LEAST_TAIL, 1)
        newest = max(store.queues, key=lambda queue: queue.max_phys, default=None)
        if newest is not None and newest.max_phys > max(log.start, end - _MOST_TAIL):
            entry = await store.queues.entries_cold(newest, newest.next - 1, 1)
            # Without its first byte: a master whose log ends where this record begins sees at once that it has less.
            at = max(log.start, end - _MOST_TAIL, int.from_bytes(entry[:8], "big") + 1)
        return await self._read(at)

    async def _read(self, at: int) -> bytes:
        """The log from ``at`` to its end."""
        log = self._store.log
        pieces: list[bytes] = []
        while log.segments and at < log.end:
            data = await log.read_cold(at, min(log.end - at, log.file_size - at % log.file_size))
            if not data:
                raise OSError(f"the end of the commit log cannot be read at {at}")
            pieces.append(data)
            at += len(data)
        return b"".join(pieces)

    def _flushed(self, to: int) -> None:
        if self._link is not None:
            self._link.flushed(to)

    # -- for the connection ----------------------------------------------------------------------------------------

    def stream(self) -> SlaveStream:
        """A stream from where the log ends now."""
        store = self._store
        end = store.log.end if store.log.segments else 0
        if end:
            self._incoming.begin(end, at_record=store.dispatcher.position == end)
        return SlaveStream(end, self._incoming, self.now(), tail=self._tail, holes=self._holes)

    def set_times(self, stream: SlaveStream) -> None:
        """As they are configured now."""
        stream.heartbeat = self._settings.ha_send_heartbeat_interval / 1000
        stream.silence = self._settings.ha_housekeeping_interval / 1000

    def take(self, stream: SlaveStream, data: bytes) -> bytes:
        """Append what arrived; the reports that are due.

        :raises RMQError: the stream cannot go on, or the store takes nothing.
        :raises OSError: the disk refused.
        """
        store, now = self._store, self.now()
        after_flush = self._settings.ha_ack_after_flush
        reports: list[bytes] = []
        for offset, body in stream.received(data, now):
            if offset and not store.log.segments:
                log.info(
                    "this slave was empty, and its log begins at %d: what its master has before that is not here "
                    "(haCopyFromFirstFile=true there sends all)", offset,
                )  # fmt: skip
            store.append_raw(offset, body)
            if not after_flush:
                reports.append(stream.stored(store.log.end, now))
        if after_flush:
            store.flusher.request()
        reports.append(stream.stored(store.durable_end() if after_flush else store.log.end, self.now()))
        if stream.fits:
            self.fits = True
            self._why = None
            self._trouble.over()
        return b"".join(reports)

    def check_address(self, address: str) -> None:
        """:raises ReplicationError: the master is somewhere else now."""
        if self.address not in (address, None):
            raise ReplicationError(f"the master is at {self.address} now")

    def check_log(self) -> None:
        """:raises ReplicationError: a part of it was damaged on the way or since, which the master is asked for."""
        if len(self._tried) < _MOST_HOLES and (holes := self._new_holes()):
            raise ReplicationError(f"this slave's log is damaged at {holes[0].start}: its master is asked for it again")

    def now(self) -> float:
        """Monotonic seconds."""
        return self._world.clock.monotonic()

    def now_ms(self) -> int:
        """Wall clock."""
        return self._world.clock.now_ms()


class _Link(asyncio.Protocol):
    """The socket of one stream.

    :param address: of the master, as it was known.
    """

    stream: SlaveStream

    def __init__(self, client: SlaveClient, address: str) -> None:
        self._client = client
        self._address = address
        #: Done when the connection is over, with the reason.
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self.peer = address
        self._timer: asyncio.TimerHandle | None = None
        self.read_ms = self.write_ms = 0
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
            self._client.check_address(self._address)
            self._client.check_log()
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
