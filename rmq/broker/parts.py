"""The parts of a broker in groups of what goes together: what constructors take, and ``wiring`` makes."""

from __future__ import annotations

from dataclasses import dataclass

from rmq.broker.groups.clients import Consumers, Producers
from rmq.broker.groups.configs import GroupTable
from rmq.broker.groups.filters import ConsumerFilters
from rmq.broker.groups.locks import RebalanceLocks
from rmq.broker.groups.offsets import OffsetTable
from rmq.broker.kinds import MessageKinds
from rmq.broker.settings import BrokerSettings
from rmq.broker.stats import BrokerStats
from rmq.broker.store.store import Store
from rmq.broker.topics.table import TopicTable
from rmq.remoting.latency import CallLatency
from rmq.runtime.world import World

__all__ = ["Counted", "Ground", "Members", "Tables"]


@dataclass(frozen=True, slots=True)
class Ground:
    """What everything in a broker stands on."""

    world: World
    settings: BrokerSettings
    store: Store
    #: The address that records and message ids carry, packed.
    store_host: bytes

    @property
    def broker_addr(self) -> str:
        """``host:port`` that clients are told."""
        return f"{self.settings.broker_ip1}:{self.settings.listen_port}"

    @property
    def ha_addr(self) -> str:
        """``host:port`` that slaves are told."""
        return f"{self.settings.broker_ip2}:{self.settings.ha_listen_port}"


@dataclass(frozen=True, slots=True)
class Tables:
    """What a broker knows of topics and groups, and keeps in files."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    filters: ConsumerFilters


@dataclass(frozen=True, slots=True)
class Members:
    """Who is connected, and which queues they hold."""

    consumers: Consumers
    producers: Producers
    locks: RebalanceLocks

    def expire(self) -> None:
        """Let go of who has not been heard of for too long."""
        self.locks.forget_expired()
        for conn in (*self.consumers.expire(), *self.producers.expire()):
            # Its other groups go on: their heartbeats come.
            if not self.consumers.knows(conn) and not self.producers.knows(conn):
                conn.close("no heartbeat")


@dataclass(frozen=True, slots=True)
class Counted:
    """What is counted of all that goes through."""

    stats: BrokerStats
    kinds: MessageKinds
    #: None while nobody asks for metrics.
    latency: CallLatency | None
