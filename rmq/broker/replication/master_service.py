"""Sends the commit log to slaves, and tells the store what they have."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from dataclasses import dataclass
from typing import cast

from rmq.broker.replication.master import Extent, MasterStream, Refused, Why
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.store import Store
from rmq.protocol import addresses
from rmq.protocol.errors import ConfigError
from rmq.remoting.limits import Rationed
from rmq.remoting.tls import HANDSHAKE, TlsMode, TlsPipe
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Listener, World

__all__ = ["MasterReplication", "SlaveSeen"]

log = logging.getLogger(__name__)

#: Connections at a time: slaves, and who has not said that he is one.
_MOST = 64
#: Bytes for one slave in one turn of the loop, and of one read from the disk.
_TURN = 64 << 10
_COLD = 1 << 20
#: Reads from the disk for slaves at a time: consumers' have the same threads, flushes have one of their own.
_COLD_READS = 2
#: While producers send, a slave that catches up gets so many bytes, turn by turn, and rests for so many seconds: some
#: 300 MiB a second. Without a rest, sender and slave keep two cores busy that producers wait for.
_BURST = 384 << 10
_REST = 0.001
#: Producers send when the log has grown within so many seconds.
_SENDING = 0.02
#: Bytes that wait to be sent to one slave before the log is read on for it.
_UNSENT = 256 << 10
#: A slave that is no further behind is waited for, and gets all of it at once.
_NEAR = 512 << 10
#: Seconds of which the ends of the log are kept.
_SAMPLES = 3600
#: Seconds for which it is shown that a slave was refused.
_SHOWN = 300.0
#: Seconds until the log says again why a slave is refused.
_TELL_AGAIN = 60.0


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


class MasterReplication:
    """The HA listener of a master (Java: HAService), made anew for each time that a broker is one.

    The stream has no ids: a replica is an address. Two slaves on one machine, or two connections of one, count once.

    :param store: is loaded.
    """

    def __init__(self, world: World, settings: BrokerSettings, store: Store) -> None:
        self.world = world
        self.settings = settings
        self.store = store
        self.tasks = TaskOwner("replication")
        #: Connections that were closed, by reason.
        self.refused: Counter[Why] = Counter()
        self.cold_reads = asyncio.Semaphore(_COLD_READS)
        self.tls = settings.server_tls()
        self._allowed = addresses.parse_networks(settings.ha_allowed_addresses)
        self._listener: Listener | None = None
        self._connections: dict[_Slave, None] = {}
        #: Replica -> its connections that have reported.
        self._replicas: Counter[str] = Counter()
        self._given = 0
        self._woken = False
        #: When the log has grown last, monotonic seconds.
        self._grown_at = -_SENDING
        self._available = False
        #: When a reason was last told of an address: a slave that is refused comes back every few seconds.
        self._told: dict[tuple[str, Why], float] = {}
        #: What each of them was told last, and when; in that order.
        self._refusals: dict[tuple[str, Why], tuple[float, str]] = {}
        #: Where the log ended, a second apart, and when: it tells how old what a slave lacks is.
        self._ends: deque[tuple[int, float]] = deque(maxlen=_SAMPLES)
        self._complaints = Rationed(world.clock)
        self._notes = Rationed(world.clock)

    async def listen(self) -> None:
        """Take slaves' connections from now on.

        :raises ConfigError: the port is taken.
        """
        store, settings = self.store, self.settings
        self._given = store.log.end
        port = settings.ha_listen_port
        try:
            self._listener = await self.world.network.listen(lambda: _Slave(self), settings.bind_address, port)
        except OSError as error:
            raise ConfigError(
                f"the broker cannot listen for its slaves on {settings.bind_address or '*'}:{port}, which is "
                f"listenPort + 1: {error.strerror or error}: stop what listens there, or set another listenPort"
            ) from error
        store.acks.has_replica = self._has_replica
        self._sample()
        self.tasks.every(1.0, self._sample, "ends")

    def _sample(self) -> None:
        if not self._ends or self._ends[-1][0] != self.store.log.end:
            self._ends.append((self.store.log.end, self.world.clock.monotonic()))

    async def stop(self) -> None:
        """Close the listener and every connection; who waits for a slave is answered."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        for slave in list(self._connections):
            slave.close()
        self._be_woken(False)
        self.let_go()
        await self.tasks.close()

    def let_go(self) -> None:
        """Nobody waits for a slave any more: who did is answered."""
        self.store.acks.has_replica = _nobody
        self.store.acks.no_replica()

    def slaves(self) -> list[SlaveSeen]:
        """Every connection that has reported, in the order they were opened."""
        return [slave.seen() for slave in self._connections if slave.counts]

    def refusals(self) -> list[str]:
        """Who was refused within the last minutes, and why."""
        now = self.world.clock.monotonic()
        return [f"{replica}: {text}" for (replica, _), (at, text) in self._refusals.items() if now - at < _SHOWN]

    def behind_seconds(self, acked: int) -> float:
        """For how long the log has gone further than ``acked``, to the second."""
        if acked >= self.store.log.end:
            return 0.0
        now = self.world.clock.monotonic()
        return now - next((at for end, at in self._ends if end > acked), now)

    @property
    def available(self) -> bool:
        """Whether a send can wait for slaves: enough of them are connected, and near enough."""
        store, settings = self.store, self.settings
        return (
            len(self._replicas) >= settings.ha_ack_slaves
            and store.log.end - store.durability.replicated < settings.ha_slave_fallbehind_max
        )

    def _has_replica(self) -> bool:
        available = self.available
        if available is not self._available:
            self._tell(available)
        return available

    def _tell(self, available: bool) -> None:
        self._available = available
        if not self.store.settings.sync_master:
            return
        if available:
            self._notes.say(log.info, "sends wait for a slave from now on")
        else:
            self._complaints.say(
                log.warning,
                "fewer slaves than %d are connected and near enough: sends that wait for them are answered with "
                "SLAVE_NOT_AVAILABLE (11)",
                self.settings.ha_ack_slaves,
            )  # fmt: skip

    # -- the pump --------------------------------------------------------------------------------------------------

    def _be_woken(self, wanted: bool) -> None:
        told = self.store.events.appended
        if wanted and self.wake not in told:
            told.append(self.wake)
        elif not wanted and self.wake in told:
            told.remove(self.wake)

    def wake(self) -> None:
        """The log has grown. A slave that producers wait for has it at once, any other when they have their answers."""
        self._grown_at = self.world.clock.monotonic()
        waited_for: list[_Slave] = []
        if self.store.settings.sync_master:
            end = self.store.log.end
            waited_for += [slave for slave in self._connections if end - slave.stream.next <= _NEAR]
            self._fill(waited_for, _NEAR)
        if len(waited_for) < len(self._connections):
            self.fill_soon()

    def producers_send(self, now: float) -> bool:
        """Whether the log grows at present."""
        return now - self._grown_at < _SENDING

    def fill_soon(self) -> None:
        """There is something to send: once the loop is through with this turn, all of it together."""
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._woken = False
        self._fill(list(self._connections), _TURN)

    def _fill(self, slaves: list[_Slave], most: int) -> None:
        for slave in slaves:
            try:
                slave.fill(most)
            except Exception as error:  # of one slave: the others get their part
                log.exception("the commit log could not be sent to the slave at %s", slave.peer)
                self.refuse(slave, Refused(Why.UNREADABLE, repr(error)))

    def extent(self) -> Extent:
        """What there is of the log."""
        commit_log = self.store.log
        # The log may have been cut back since.
        return Extent(commit_log.start, commit_log.end, min(self._given, commit_log.end), commit_log.file_size)

    def gave(self, end: int) -> None:
        """The log was sent up to ``end``."""
        if end > self._given:
            self._given = end

    # -- connections -----------------------------------------------------------------------------------------------

    def opened(self, slave: _Slave) -> None:
        """A connection.

        :raises Refused: it is one too many, or its address does not get the log.
        """
        if self._listener is None:
            raise Refused(Why.TOO_MANY, "the broker stops")
        if self._allowed and not any(slave.host in network for network in self._allowed):
            raise Refused(Why.NOT_ALLOWED, "haAllowedAddresses does not name its address")
        if len(self._connections) >= _MOST:
            self._make_room(slave)
        self._connections[slave] = None

    def _make_room(self, slave: _Slave) -> None:
        """Close one connection for another: one that has not reported, else one of who has most of them.

        :raises Refused: the newcomer's address has as many as any other.
        """
        stranger = next((one for one in self._connections if one.stream.next < 0), None)
        if stranger is not None:
            self.refuse(stranger, Refused(Why.TOO_MANY, "others connect, and it has not reported yet"))
            return
        open_of = Counter(one.replica for one in self._connections)
        ((greedy, count),) = open_of.most_common(1)
        if count <= open_of[slave.replica] + 1:
            raise Refused(Why.TOO_MANY, f"{_MOST} connections are open already")
        newest = next(one for one in reversed(self._connections) if one.replica == greedy)
        self.refuse(newest, Refused(Why.TOO_MANY, f"others connect, and it has {count} connections"))

    def reported(self, slave: _Slave, first: bool, acked: int) -> None:
        """A slave has everything up to ``acked``."""
        if first:
            self._notes.say(
                log.info, "a slave at %s follows from offset %d on; it has the log up to %d",
                slave.peer, slave.stream.next, acked,
            )  # fmt: skip
            slave.counts = True
            self._replicas[slave.replica] += 1
            # What it had before may be another log's: it answers nobody, what it says of what it was sent does.
            oldest = self.store.durability.oldest
            if oldest is not None:
                acked = min(acked, oldest.end - 1)
            self._be_woken(True)
        self.store.acks.replicated(slave.replica, acked)
        if first:
            self._has_replica()

    def closed(self, slave: _Slave) -> None:
        """A connection is gone."""
        if slave not in self._connections:
            return
        del self._connections[slave]
        if not slave.counts:  # its first bytes were refused
            return
        self._notes.say(
            log.info, "the slave at %s is gone; it had the log up to %d", slave.peer, slave.stream.acked
        )  # fmt: skip
        self._replicas[slave.replica] -= 1
        if not self._replicas[slave.replica]:
            del self._replicas[slave.replica]
            if not self._replicas:
                self._be_woken(False)
            self.store.acks.replica_gone(slave.replica)

    def refuse(self, slave: _Slave, error: Refused) -> None:
        """Close a connection, and say why."""
        self.refused[error.why] += 1
        now, key = self.world.clock.monotonic(), (slave.replica, error.why)
        self._refusals.pop(key, None)
        self._refusals[key] = (now, str(error))
        if len(self._refusals) > _MOST:
            del self._refusals[next(iter(self._refusals))]
        if now - self._told.get(key, -_TELL_AGAIN) >= _TELL_AGAIN:
            if len(self._told) >= _MOST:
                self._told.clear()
            self._told[key] = now
            self._complaints.say(log.warning, "the connection of a slave from %s is closed: %s", slave.peer, error)
        slave.close()


class _Slave(asyncio.Protocol):
    """The socket of one slave."""

    def __init__(self, service: MasterReplication) -> None:
        settings = service.settings
        self._service = service
        self.stream = MasterStream(service.world.clock.monotonic(), from_first_file=settings.ha_copy_from_first_file)
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
        self._paused = False
        #: Bytes since it rested last, and until when it does, while producers send.
        self._burst = 0
        self._rest: asyncio.TimerHandle | None = None
        #: A read from the disk is under way; what the last one gave, and where that begins.
        self._reading = False
        self._page_at = 0
        self._page = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its classes
        name = transport.get_extra_info("peername")
        if not name:  # it was gone again before it was taken
            transport.abort()
            return
        self._transport = transport
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
            acked = stream.received(data, service.extent(), service.world.clock.monotonic())
        except Refused as error:
            service.refuse(self, error)
            return
        if stream.next < 0:
            return
        service.reported(self, first, acked)
        if first:
            self._arm()
            self.fill(_TURN)

    def _secured(self, data: bytes) -> bool:
        """Whether these first bytes begin a handshake, which they do now: no log is so long that a report would.

        :raises Refused: they ought to, or ought not to.
        """
        tls, transport = self._service.tls, cast(asyncio.Transport, self._transport)
        if data[0] != HANDSHAKE:
            if tls.mode is TlsMode.ENFORCING:
                raise Refused(
                    Why.TLS,
                    "it does not speak TLS, which is enforced here: set tls.server.mode=enforcing at that slave, too; "
                    "slaves of Java's cannot",
                )
            return False
        if tls.mode is TlsMode.DISABLED or tls.context is None:
            raise Refused(Why.TLS, "it speaks TLS, which is off here")

        def failed(why: str) -> None:
            self._service.refuse(self, Refused(Why.TLS, why))

        self._transport = pipe = TlsPipe(transport, self, tls.context, failed)
        transport.set_protocol(pipe)
        pipe.data_received(data)
        return True

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._service.fill_soon()

    def fill(self, most: int) -> None:
        """Send what there is, some ``most`` bytes of it."""
        transport, stream = self._transport, self.stream
        service = self._service
        if transport is None or self._paused or self._reading or self._rest is not None:
            return
        if stream.next in (-1, service.store.log.end):
            return
        now = service.world.clock.monotonic()
        extent = service.extent()
        limit = service.settings.ha_transfer_batch_size
        pieces: list[bytes] = []
        left = most
        try:
            while left > 0 and (size := stream.wanted(extent, limit)):
                if not pieces:
                    pieces.append(stream.on_tick(now))
                data = self._read(stream.next, size)
                if data is None:
                    self._reading = True
                    service.tasks.spawn(self._read_cold(), "read")
                    break
                pieces += (stream.unit(size, now), data)
                left -= size
        except Refused as error:
            service.refuse(self, error)
            return
        if pieces:
            service.gave(stream.next)
            transport.write(b"".join(pieces))
            if left <= 0:
                self._go_on(most - left, now)
            else:
                self._burst = 0

    def _go_on(self, sent: int, now: float) -> None:
        """There is more of the backlog: in the next turn, or after a rest."""
        self._burst += sent
        if self._burst < _BURST or not self._service.producers_send(now):
            self._service.fill_soon()
        else:
            self._burst = 0
            self._rest = asyncio.get_running_loop().call_later(_REST, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self._service.fill_soon()

    def _read(self, offset: int, size: int) -> bytes | None:
        """Bytes of the log, when they are in memory.

        :raises Refused: the log does not give them.
        """
        at = offset - self._page_at
        if at >= 0 and at + size <= len(self._page):
            return self._page[at : at + size]
        self._page = b""
        data = self._service.store.log.read(offset, size)
        if data is not None and len(data) != size:
            raise Refused(Why.UNREADABLE, f"the log has no {size} bytes at {offset}")
        return data

    async def _read_cold(self) -> None:
        """Read on from the disk; a consumer's read or a flush waits for no slave's."""
        service, stream = self._service, self.stream
        at = stream.next
        try:
            async with service.cold_reads:
                data = await service.store.log.read_cold(at, stream.wanted(service.extent(), _COLD))
            if not data:
                raise Refused(Why.UNREADABLE, f"the log could not be read at {at}")
        except OSError as error:
            service.refuse(self, Refused(Why.UNREADABLE, f"the log could not be read at {at}: {error}"))
        except Refused as error:
            service.refuse(self, error)
        else:
            self._page_at, self._page = at, data
        finally:
            self._reading = False
        self.fill(_TURN)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        settings = self._service.settings
        self.stream.heartbeat = settings.ha_send_heartbeat_interval / 1000
        self.stream.silence = settings.ha_housekeeping_interval / 1000
        # Never 0: a timer that comes a rounding too early finds nothing due.
        delay = max(0.001, self.stream.due - self._service.world.clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._transport is None:
            return
        try:
            due = self.stream.on_tick(self._service.world.clock.monotonic())
        except Refused as error:
            self._service.refuse(self, error)
            return
        # A slave that does not read gets no heartbeats on top of what it has not read.
        if due and not self._paused:
            self._transport.write(due)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.close()

    def close(self) -> None:
        """Let go of it, at once: what is not sent yet is sent again on the next connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._page = b""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._service.closed(self)

    def seen(self) -> SlaveSeen:
        """How it is."""
        service, stream = self._service, self.stream
        behind = service.store.log.end - stream.acked
        return SlaveSeen(
            self.peer, stream.acked, stream.begun_at, stream.next, stream.sent,
            service.world.clock.monotonic() - self._since, behind < service.settings.ha_slave_fallbehind_max,
            service.behind_seconds(stream.acked),
        )  # fmt: skip


def _nobody() -> bool:
    return False
