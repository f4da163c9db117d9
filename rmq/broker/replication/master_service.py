"""Sends the commit log to slaves, and tells the store what they have."""

from __future__ import annotations

import logging
from collections import Counter, deque

from rmq.broker.replication.filling import LogSource
from rmq.broker.replication.master import Refused, Why
from rmq.broker.replication.pump import Pump
from rmq.broker.replication.slave_connection import SlaveConnection, SlaveSeen
from rmq.broker.settings import BrokerSettings
from rmq.broker.store.store import Store
from rmq.protocol.errors import ConfigError
from rmq.remoting.limits import Rationed
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Listener, World

__all__ = ["MasterReplication", "SlaveSeen"]

log = logging.getLogger(__name__)

#: Connections at a time: slaves, and who has not said that he is one.
_MOST = 64
#: Seconds of which the ends of the log are kept.
_SAMPLES = 3600
#: Seconds for which it is shown that a slave was refused.
_SHOWN = 300.0
#: Seconds until the log says again why a slave is refused.
_TELL_AGAIN = 60.0


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
        self.tls = settings.server_tls()
        self._allowed = settings.ha_networks()
        self._listener: Listener | None = None
        self._connections: dict[SlaveConnection, None] = {}
        #: Replica -> its connections that have reported.
        self._replicas: Counter[str] = Counter()
        self._source = LogSource(world.clock, settings, store.log, self.tasks)
        self._pump = Pump(world.clock, store, self._connections, self.refuse)
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
        self._pump.begin()
        port = settings.ha_listen_port
        try:
            self._listener = await self.world.network.listen(
                lambda: SlaveConnection(self, self._source, self._pump), settings.bind_address, port
            )
        except OSError as error:
            raise ConfigError(
                f"the broker cannot listen for its slaves on {settings.bind_address or '*'}:{port}, which is "
                f"listenPort + 1: {error.strerror or error}: stop what has it, or set another listenPort"
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
        self._pump.be_woken(False)
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

    # -- connections

    def opened(self, slave: SlaveConnection) -> None:
        """A connection.

        :raises Refused: it is one too many, or its address does not get the log.
        """
        if self._listener is None:
            raise Refused(Why.TOO_MANY, "the broker stops")
        if self._allowed and not any(slave.host in network for network in self._allowed):
            why = "haAllowedAddresses does not name its address"
            if not self.settings.ha_allowed_addresses:
                why = "with aclEnable this machine alone gets the log: name the slaves' addresses in haAllowedAddresses"
            raise Refused(Why.NOT_ALLOWED, why)
        if len(self._connections) >= _MOST:
            self._make_room(slave)
        self._connections[slave] = None

    def _make_room(self, slave: SlaveConnection) -> None:
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

    def reported(self, slave: SlaveConnection, first: bool, acked: int) -> None:
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
            self._pump.be_woken(True)
        self.store.acks.replicated(slave.replica, acked)
        if first:
            self._has_replica()

    def closed(self, slave: SlaveConnection) -> None:
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
                self._pump.be_woken(False)
            self.store.acks.replica_gone(slave.replica)

    def refuse(self, slave: SlaveConnection, error: Refused) -> None:
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


def _nobody() -> bool:
    return False
