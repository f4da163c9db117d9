"""Follows a master: keeps one connection to it, and appends what comes over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from rmq.broker.replication.incoming import FilesDiffer, IncomingRecords, LogsDiffer
from rmq.broker.replication.master import CUT_BACK, EMPTY
from rmq.broker.replication.master_connection import MasterConnection
from rmq.broker.replication.slave import HolesFound, SlaveStream
from rmq.broker.replication.tail import Tail
from rmq.broker.settings import BrokerSettings
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
#: What is done where files have not the same size: a log of another size is another one.
_SAME_FILES = f"stop this slave, set the master's number here, and: {EMPTY}"
#: Seconds between two looks whether there is an address, while there is none.
_LOOK_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """What a slave says of its link."""

    #: Where this log ends.
    end: int
    #: ``host:port`` of the master's HA listener; None while none is known.
    master: str | None
    connected: bool
    #: Why the last connection ended, or could not be opened; None while there is one.
    trouble: str | None
    #: Bytes received since the start.
    received: int = 0
    #: Connections that were opened, and that ended because the logs were not the same.
    connections: int = 0
    refused: int = 0
    #: Wall clock, ms, of the last byte received and the last report; 0 = never.
    last_read_ms: int = 0
    last_write_ms: int = 0
    #: Bytes a second, since the connection was opened.
    speed: int = 0


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
        self._link: MasterConnection | None = None
        self._tail = Tail(store)
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
        taken = 0 if link is None else link.stream.taken
        return SlaveStatus(
            end=self._store.log.end,
            master=self.address,
            connected=link is not None,
            trouble=self._why,
            received=self._received + taken,
            connections=self._connections,
            refused=self._refused,
            last_read_ms=self._read_ms if link is None else link.read_ms,
            last_write_ms=self._write_ms if link is None else link.write_ms,
            speed=0 if link is None else int(taken / max(self.now() - link.since, 1.0)),
        )

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
                self._tail.asked()
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
        await self._tail.read(address)
        link = MasterConnection(self, address)
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

    def _flushed(self, to: int) -> None:
        if self._link is not None:
            self._link.flushed(to)

    # -- for the connection

    def stream(self) -> SlaveStream:
        """A stream from where the log ends now."""
        store = self._store
        end = store.log.end if store.log.segments else 0
        if end:
            self._incoming.begin(end, at_record=store.dispatcher.position == end)
        return SlaveStream(end, self._incoming, self.now(), tail=self._tail.data, holes=self._tail.holes)

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

    def check(self, address: str) -> None:
        """:raises ReplicationError: the master is elsewhere now, or is to be asked again for what is damaged here."""
        if self.address not in (address, None):
            raise ReplicationError(f"the master is at {self.address} now")
        if holes := self._tail.new_holes():
            raise ReplicationError(f"this slave's log is damaged at {holes[0].start}: its master is asked for it again")

    def now(self) -> float:
        """Monotonic seconds."""
        return self._world.clock.monotonic()

    def now_ms(self) -> int:
        """Wall clock."""
        return self._world.clock.now_ms()
