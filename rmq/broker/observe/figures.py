"""Where the broker's metrics come from: lags by topic and group, with what is not known left out (field case B127).

A group that was deleted has no series any more, a broadcasting group has no lag, an offset that is not known makes no
zero, and every figure stands for one group on one topic: nothing is added up over groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rmq.auth.control import AccessControl
from rmq.broker.delivery.pull import Delivery
from rmq.broker.lane.pressure import Pressure
from rmq.broker.parts import Counted, Ground, Members, Tables
from rmq.broker.raft.group import Group
from rmq.broker.roles.master import MasterServices
from rmq.broker.roles.slave import SlaveServices
from rmq.broker.schedule.timing import TimerSends
from rmq.remoting.server import Server
from rmq.remoting.unread import Unread

__all__ = ["Figures", "Lag"]

_BROADCASTING = "BROADCASTING"


class Lag(NamedTuple):
    """How far one group is behind on one topic, in messages."""

    topic: str
    group: str
    #: By queue id; queues whose offset is not known are missing.
    queues: dict[int, int]
    #: Sum of the committed offsets.
    offset: int
    #: None when the offset of a queue with messages is not known.
    total: int | None


class Serving(NamedTuple):
    """What serves clients."""

    pressure: Pressure
    delivery: Delivery
    timer_sends: TimerSends
    server: Server
    access: AccessControl | None


class Figures:
    """The parts of a broker that metrics are made from.

    :param master: the services of a master; None while the broker is none.
    :param slave: those of a slave; None while the broker is none.
    :param group: its place in a group that elects its master; None where there is none.
    """

    def __init__(
        self,
        ground: Ground,
        tables: Tables,
        members: Members,
        counted: Counted,
        serving: Serving,
        master: Callable[[], MasterServices | None],
        slave: Callable[[], SlaveServices | None],
        group: Callable[[], Group | None] = lambda: None,
    ) -> None:
        self.clock = ground.world.clock
        self.settings = ground.settings
        self.store = ground.store
        self.topics = tables.topics
        self.groups = tables.groups
        self.offsets = tables.offsets
        self.consumers = members.consumers
        self.producers = members.producers
        self.stats = counted.stats
        self.kinds = counted.kinds
        self.latency = counted.latency
        self.pressure, self._delivery, self.timer_sends, self._server, self.access = serving
        self.master = master
        self.slave = slave
        self.group = group

    def connections(self) -> int:
        """Open connections."""
        return len(self._server.connections)

    def cut_off(self) -> Mapping[str, int]:
        """Connections that were closed for what they did, by the kind of reason."""
        return self._server.cut_off

    def unread(self) -> Unread:
        """What peers have not read."""
        return self._server.unread

    def holds(self) -> int:
        """Pulls that are held."""
        return self._delivery.holds.count

    def lags(self) -> Iterator[Lag]:
        """Of every existing topic and group that commits offsets here."""
        for topic, group in self.offsets.pairs():
            lag = self.lag(topic, group)
            if lag is not None:
                yield lag

    def lag(self, topic: str, group: str) -> Lag | None:
        """None for what does not exist (any more), and for groups whose members keep their offsets themselves."""
        config = self.topics.get(topic)
        if config is None or self.groups.get(group) is None:
            return None
        online = self.consumers.group(group)
        if online is not None and online.message_model == _BROADCASTING:
            return None
        committed = self.offsets.of(group, topic)
        queues: dict[int, int] = {}
        whole = True
        sum_of_offsets = 0
        for queue_id in range(config.read_queue_nums):
            queue = self.store.queues.get(topic, queue_id)
            end = queue.visible if queue is not None else 0
            offset = committed.get(queue_id, -1)
            if offset >= 0:
                queues[queue_id] = max(0, end - offset)
                sum_of_offsets += offset
            elif end > 0:
                whole = False
        return Lag(topic, group, queues, sum_of_offsets, sum(queues.values()) if whole else None)

    def by_topic(self, statistic: str) -> Iterator[tuple[str, int]]:
        """The counters of a statistic kept by topic; deleted topics are left out."""
        for topic, value in self.stats.counters(statistic):
            if topic in self.topics:
                yield topic, value

    def by_group(self, statistic: str) -> Iterator[tuple[str, str, int]]:
        """The counters of a statistic kept by ``topic@group``; deleted topics and groups are left out."""
        for key, value in self.stats.counters(statistic):
            topic, _, group = key.rpartition("@")
            if topic in self.topics and self.groups.get(group) is not None:
                yield topic, group, value
