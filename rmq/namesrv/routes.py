"""Who is where: what brokers told this name server (Java: RouteInfoManager).

A state machine without I/O: registrations, closed connections and the time go in, answers and connections to close come
out. Rules: store-and-broker.md 9.2 and 9.3; where it is stricter than Java on purpose, docs/differences.md says so.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rmq.namesrv.departed import ENDED, SILENT, UNREGISTERED, Departed
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.bodies.topic import MOST_TOPICS, DataVersion, TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.names import MASTER_ID, SELF_TEST_TOPIC

__all__ = ["BROKER_EXPIRY", "PERM_WRITE", "Registered", "Registration", "RouteTable"]

#: Seconds without a registration or a version query after which a broker is dropped.
BROKER_EXPIRY = 120.0
PERM_WRITE = 2
#: No broker has this version of its topics.
_ANY_OTHER = DataVersion(counter=-1, timestamp=-1)

#: Flag bits of a topic (protocol.md 5.7).
FLAG_UNIT = 1
FLAG_UNIT_SUB = 2


@dataclass(frozen=True, slots=True)
class Registration:
    """One REGISTER_BROKER request, decoded.

    ``topics`` is None when the request had no body: the broker is alive and says nothing about topics.
    ``filter_servers`` None leaves the list as it is; an empty one removes it.
    ``increment_of`` is the version that ``topics`` are the changes since; None is a broker that does not say what they
    are: all of its topics or, of a Java broker, perhaps the one that changed.
    """

    cluster: str
    broker_name: str
    broker_id: int
    addr: str
    ha_addr: str
    version: DataVersion
    topics: Iterable[TopicConfig] | None = None
    filter_servers: list[str] | None = None
    increment_of: DataVersion | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """What a broker is told: its master (slaves only), and what is worth a line in the log."""

    master_addr: str | None
    ha_addr: str | None
    notices: tuple[str, ...]
    #: Another living broker has the same name and id: told to both, each time one takes the place of the other.
    rival: str | None = None
    #: All topics of that version are known here.
    complete: bool = False


@dataclass(slots=True)
class _Broker:
    name: str
    cluster: str
    addrs: dict[int, str] = field(default_factory=dict)

    def data(self) -> BrokerData:
        return BrokerData(cluster=self.cluster, broker_name=self.name, broker_addrs=dict(sorted(self.addrs.items())))


class _Queues(NamedTuple):
    """A topic on one broker name, as that broker registered it."""

    read: int
    write: int
    perm: int
    sys_flag: int


@dataclass(slots=True)
class _Live:
    broker_name: str
    updated: float
    version: DataVersion
    channel: Hashable
    ha_addr: str
    #: Whether all topics of that version were told: None is not known, False is that a change was missed.
    complete: bool | None = None
    #: An operator had topics of it forgotten here: with its next change it says again which there are.
    forgotten: bool = False


class RouteTable:
    """Brokers, clusters and topics known here, and how long each broker has been silent.

    A channel is whatever stands for a connection: any hashable object. Times are seconds of the monotonic clock.
    Mappings keep the order of arrival, so that answers do not depend on hashes.
    """

    def __init__(self) -> None:
        self._brokers: dict[str, _Broker] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._topics: dict[str, dict[str, _Queues]] = {}
        self._live: dict[str, _Live] = {}
        self._channels: dict[Hashable, dict[str, None]] = {}
        self._filters: dict[str, list[str]] = {}
        self._wiped: set[str] = set()
        #: Broker name and id -> the address that another one has taken the place of, and what was known of it.
        self._displaced: dict[tuple[str, int], tuple[str, _Live]] = {}
        self._returned: list[tuple[str, str]] = []
        #: Those that are in no answer of this table any more.
        self.departed = Departed()

    # -- brokers ---------------------------------------------------------------------------------------------

    def check_room(self, what: Registration, brokers: int, clusters: int, topics: int) -> None:
        """Whether one more registration may be taken over: strangers may send any number of them.

        :param brokers: as many may be here, :param clusters: and :param topics: as many of these.
        :raises ResponseError: SYSTEM_ERROR: there would be more.
        """
        if what.addr not in self._live and len(self._live) >= brokers:
            raise _full(f"{len(self._live)} brokers are registered", "maxBrokers")
        if what.cluster not in self._clusters and len(self._clusters) >= clusters:
            raise _full(f"{len(self._clusters)} clusters are known", "maxClusters")
        told = list(what.topics or ())
        if len(self._topics) + len(told) > topics:
            new = sum(config.topic_name not in self._topics for config in told)
            if new and len(self._topics) + new > topics:
                raise _full(f"{len(self._topics)} topics are known, and {new} would be new", "maxTopics")

    def register(self, what: Registration, channel: Hashable, now: float) -> Registered:
        """Take over one registration.

        :param channel: the connection it came on; when it closes, the broker is gone.
        :param now: monotonic seconds.
        :raises ResponseError: another living broker of that name belongs to another cluster (field case B092), or
            these are changes of a version that is not the one held: nothing has changed here, and the broker is to
            register everything.
        """
        if what.increment_of is not None:
            self._check_increment(what, what.increment_of)
        notices: list[str] = []
        rival = None
        broker = self._brokers.get(what.broker_name)
        if broker is not None and broker.cluster != what.cluster:
            self._leave_cluster_or_refuse(broker, what)
        self._forget_older_names(what, notices)
        broker = self._brokers.get(what.broker_name)
        first = broker is None
        if broker is None:
            broker = self._brokers[what.broker_name] = _Broker(what.broker_name, what.cluster)
        self.departed.forget(what.broker_name)
        self._clusters.setdefault(what.cluster, {})[what.broker_name] = None

        for other in [i for i, addr in broker.addrs.items() if addr == what.addr and i != what.broker_id]:
            # A leader that stood still says once more that it is, and hears of the next one then.
            self._give_back(broker, other)
            notices.append(f"{what.broker_name} at {what.addr} changed from id {other} to {what.broker_id}")
        before = broker.addrs.get(what.broker_id)
        if before is None:
            first = True
        elif before != what.addr:
            rival = self._displace(what, before, channel, notices)
        broker.addrs[what.broker_id] = what.addr
        # It has this place now, and claims no other: a member of a group that led has an id of those that follow.
        self._forget_displaced(what.addr)

        known = self._live.get(what.addr)
        if known is None:
            notices.append(f"{what.broker_name} id {what.broker_id} at {what.addr} of {what.cluster} registered")
        complete, forgotten = self._take_topics(what, None if first else known, notices)
        self._forget_channel(what.addr)
        self._live[what.addr] = _Live(what.broker_name, now, what.version, channel, what.ha_addr, complete, forgotten)
        self._channels.setdefault(channel, {})[what.addr] = None
        if what.filter_servers is not None:
            if what.filter_servers:
                self._filters[what.addr] = list(what.filter_servers)
            else:
                self._filters.pop(what.addr, None)

        master = ha = None
        if what.broker_id != MASTER_ID:
            master = broker.addrs.get(MASTER_ID)
            live = None if master is None else self._live.get(master)
            master, ha = (None, None) if live is None else (master, live.ha_addr or None)
        return Registered(master, ha, tuple(notices), rival, complete is True)

    def _displace(self, what: Registration, before: str, channel: Hashable, notices: list[str]) -> str | None:
        """A broker registers in another's place: it has moved, or there are two of them."""
        live = self._live.get(before)
        self._forget_live(before)
        if live is None or live.channel == channel:
            notices.append(f"{what.broker_name} id {what.broker_id} moved from {before} to {what.addr}")
            return None
        self._displaced[what.broker_name, what.broker_id] = before, live
        another = "brokerId (a member of a group that elects its master: another dLegerSelfId)"
        if what.broker_id == MASTER_ID:
            another = "brokerName, or make it the other's slave"
        return (
            f"{what.broker_name} id {what.broker_id} at {what.addr} takes the place of the one at {before}, "
            f"which has not gone: if both run, give one of them another {another}"
        )

    def unregister(self, broker_name: str, broker_id: int, addr: str) -> bool:
        """Drop one broker; False when there is no such broker at that address."""
        self._forget_live(addr)
        self._forget_displaced(addr)
        broker = self._brokers.get(broker_name)
        if broker is None or broker.addrs.get(broker_id) != addr:
            return False
        self._vacate(broker, broker_id, UNREGISTERED)
        return True

    def returned(self) -> list[tuple[str, str]]:
        """Names and addresses of brokers that got the place back that another one had taken, since the last call."""
        returned, self._returned = self._returned, []
        return returned

    def version_of(self, addr: str) -> DataVersion | None:
        """The data version held for a broker address, or None."""
        live = self._live.get(addr)
        return None if live is None else live.version

    def misses(self, addr: str) -> bool:
        """Whether a change of the broker's topics never came here: what it says next is news, whatever its version."""
        live = self._live.get(addr)
        return live is not None and live.complete is False

    def refresh(self, addr: str, now: float) -> None:
        """The broker at ``addr`` is alive."""
        live = self._live.get(addr)
        if live is not None:
            live.updated = now

    def expire(self, now: float) -> tuple[list[str], list[Hashable]]:
        """Drop the brokers that were silent for more than 120 s.

        :returns: their addresses, and the connections that no other living broker uses: they are to be closed.
        """
        for addr, live in list(self._displaced.values()):
            if now - live.updated > BROKER_EXPIRY:
                self._forget_displaced(addr)
        silent = [addr for addr, live in self._live.items() if now - live.updated > BROKER_EXPIRY]
        idle: list[Hashable] = []
        for addr in silent:
            channel = self._live[addr].channel
            self._drop_addr(addr, SILENT)
            if channel not in self._channels:
                idle.append(channel)
        return silent, idle

    def close(self, channel: Hashable) -> list[str]:
        """A connection closed: drop the brokers that registered over it and not over a newer one.

        :returns: their addresses.
        """
        for addr, live in list(self._displaced.values()):
            if live.channel == channel:
                self._forget_displaced(addr)
        gone = list(self._channels.get(channel, ()))
        for addr in gone:
            self._drop_addr(addr, ENDED)
        return gone

    # -- permissions and topics ------------------------------------------------------------------------------

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take the write permission of all topics of a broker, those it registers later included (field case B121).

        :returns: the number of its topics.
        """
        if broker_name in self._brokers:
            self._wiped.add(broker_name)
        return self._count_topics(broker_name)

    def add_write_perm(self, broker_name: str) -> int:
        """Undo :meth:`wipe_write_perm`: topics have again the permission that the broker registered."""
        self._wiped.discard(broker_name)
        return self._count_topics(broker_name)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, of one cluster's brokers or, without a cluster's name, altogether; unknown ones are fine."""
        queues = self._topics.get(topic)
        if queues is None:
            return
        for broker_name in list(self._clusters.get(cluster, ()) if cluster else queues):
            if queues.pop(broker_name, None) is None or broker_name not in self._brokers:
                continue
            live = self._live.get(self._brokers[broker_name].addrs.get(MASTER_ID, ""))
            if live is not None:
                live.forgotten = True
        if not queues:
            del self._topics[topic]

    # -- answers ---------------------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRouteData | None:
        """Brokers and queues of a topic, or None when it is unknown or none of its brokers is alive."""
        queues = self._topics.get(topic, {})
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        addrs = [addr for broker in brokers for addr in broker.addrs.values()]
        return TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=name,
                    read_queue_nums=q.read,
                    write_queue_nums=q.write,
                    perm=q.perm & ~PERM_WRITE if name in self._wiped else q.perm,
                    topic_sys_flag=q.sys_flag,
                )
                for name, q in queues.items()
            ],
            broker_datas=[broker.data() for broker in brokers],
            filter_server_table={addr: self._filters[addr] for addr in addrs if addr in self._filters},
        )

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={name: broker.data() for name, broker in self._brokers.items()},
            cluster_addr_table={name: list(brokers) for name, brokers in self._clusters.items()},
        )

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        brokers = self._clusters.get(cluster, {})
        return [topic for topic, queues in self._topics.items() if not brokers.keys().isdisjoint(queues)]

    def topics_with_flags(self, *, unit: bool | None = None, unit_sub: bool | None = None) -> list[str]:
        """Topics whose flag bits are as asked; None is "either". The first broker of a topic decides, as in Java."""
        chosen = []
        for topic, queues in self._topics.items():
            flags = next(iter(queues.values())).sys_flag
            if unit in (None, bool(flags & FLAG_UNIT)) and unit_sub in (None, bool(flags & FLAG_UNIT_SUB)):
                chosen.append(topic)
        return chosen

    def system_topics(self) -> tuple[list[str], str | None]:
        """The names of clusters and brokers, which are topics, and one broker address to ask for the rest."""
        names: dict[str, None] = {}
        for cluster, brokers in self._clusters.items():
            names[cluster] = None
            names.update(brokers)
        addr = next((addr for broker in self._brokers.values() for addr in broker.addrs.values()), None)
        return list(names), addr

    # -- inside ----------------------------------------------------------------------------------------------

    def _check_increment(self, what: Registration, since: DataVersion) -> None:
        live = self._live.get(what.addr)
        broker = self._brokers.get(what.broker_name)
        if (
            live is None
            or broker is None
            or not live.complete
            or live.version != since
            or (live.forgotten and what.version != since)
            or (live.broker_name, broker.cluster) != (what.broker_name, what.cluster)
            or what.broker_id != MASTER_ID
            or broker.addrs.get(MASTER_ID) != what.addr
        ):
            held = "nothing" if live is None else f"version {live.version.counter}"
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"changes since version {since.counter} of {what.broker_name} at {what.addr}, of which {held} is held "
                f"here: register all topics",
            )

    def _check_room(self, broker_name: str) -> None:
        """Which topics a broker has no longer, when there are too many, is seen in a registration of all of them."""
        if len(self._topics) >= MOST_TOPICS and self._count_topics(broker_name) >= MOST_TOPICS:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"{broker_name} has {MOST_TOPICS} topics here: register all topics"
            )

    def _take_topics(self, what: Registration, known: _Live | None, notices: list[str]) -> tuple[bool | None, bool]:
        """Take over the topics of a registration that has news; its version's ``complete`` and ``forgotten``."""
        same = known if known is not None and known.version == what.version else None
        complete, forgotten = (None, False) if same is None else (same.complete, same.forgotten)
        if what.topics is None or what.broker_id != MASTER_ID:
            return complete, forgotten
        topics = {topic.topic_name: topic for topic in what.topics}
        everything = _is_everything(topics)
        if what.increment_of is not None:
            complete = True
        elif same is None or complete is False or (complete is None and everything):
            complete, forgotten = _completeness(known, what.version, everything), False
        else:
            return complete, forgotten
        # One that may be of all topics takes the place of those before it when there are too many.
        whole = what.increment_of is None and (everything or complete is None)
        if topics and not whole:
            self._check_room(what.broker_name)
        for name, topic in topics.items():
            self._topics.setdefault(name, {})[what.broker_name] = _Queues(
                topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag
            )
        if whole:
            self._bound(what.broker_name, topics, notices)
        return complete, forgotten

    def _leave_cluster_or_refuse(self, broker: _Broker, what: Registration) -> None:
        others = [addr for addr in broker.addrs.values() if addr != what.addr and addr in self._live]
        if others:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"the broker name {broker.name} belongs to cluster {broker.cluster} ({', '.join(others)}): "
                f"give the broker of {what.cluster} at {what.addr} another brokerName",
            )
        self._remove(broker)

    def _forget_older_names(self, what: Registration, notices: list[str]) -> None:
        """An address that registers under another name was renamed (field case B092)."""
        live = self._live.get(what.addr)
        if live is None or live.broker_name == what.broker_name:
            return
        notices.append(f"the broker at {what.addr} changed its name from {live.broker_name} to {what.broker_name}")
        self._drop_addr(what.addr)

    def _drop_addr(self, addr: str, how: str | None = None) -> None:
        """:param how: the broker left; None: it is another one now."""
        live = self._live[addr]
        self._forget_live(addr)
        broker = self._brokers.get(live.broker_name)
        if broker is None:
            return
        for broker_id in [i for i, a in broker.addrs.items() if a == addr]:
            self._vacate(broker, broker_id, how)

    def _vacate(self, broker: _Broker, broker_id: int, how: str | None) -> None:
        """The broker with this id has gone: who had the place before has it again, or the name goes with the last."""
        left = self._give_back(broker, broker_id)
        if not broker.addrs:
            self._remove(broker)
            if how is not None:
                self.departed.left(broker.name, broker.cluster, left, how)

    def _give_back(self, broker: _Broker, broker_id: int) -> str:
        """Who had this id before has it again; the address that has it no longer."""
        left = broker.addrs.pop(broker_id)
        addr, live = self._displaced.pop((broker.name, broker_id), ("", None))
        if live is not None:
            broker.addrs[broker_id] = addr
            # What the other one said of the topics stands until its next registration, whatever its version is.
            self._live[addr] = replace(live, version=_ANY_OTHER, complete=None)
            self._channels.setdefault(live.channel, {})[addr] = None
            self._returned.append((broker.name, addr))
        return left

    def _forget_displaced(self, addr: str) -> None:
        for place in [place for place, (displaced, _) in self._displaced.items() if displaced == addr]:
            del self._displaced[place]

    def _forget_live(self, addr: str) -> None:
        self._forget_channel(addr)
        self._live.pop(addr, None)
        self._filters.pop(addr, None)

    def _forget_channel(self, addr: str) -> None:
        live = self._live.get(addr)
        if live is None:
            return
        addrs = self._channels[live.channel]
        del addrs[addr]
        if not addrs:
            del self._channels[live.channel]

    def _remove(self, broker: _Broker) -> None:
        """The last address of a broker name went: its cluster entry and its topics go with it."""
        del self._brokers[broker.name]
        self._wiped.discard(broker.name)
        members = self._clusters[broker.cluster]
        del members[broker.name]
        if not members:
            del self._clusters[broker.cluster]
        for topic in [t for t, queues in self._topics.items() if broker.name in queues]:
            queues = self._topics[topic]
            del queues[broker.name]
            if not queues:
                del self._topics[topic]

    def _bound(self, broker_name: str, named: Container[str], notices: list[str]) -> None:
        """A registration removes no topic, unless a broker would have more than may be: then those it has no longer."""
        if len(self._topics) <= MOST_TOPICS or self._count_topics(broker_name) <= MOST_TOPICS:
            return
        gone = [topic for topic, queues in self._topics.items() if broker_name in queues and topic not in named]
        for topic in gone:
            queues = self._topics[topic]
            del queues[broker_name]
            if not queues:
                del self._topics[topic]
        notices.append(f"{broker_name} has no longer {len(gone)} topics that it registered before: forgotten")

    def _count_topics(self, broker_name: str) -> int:
        return sum(broker_name in queues for queues in self._topics.values())


def _is_everything(topics: Container[str]) -> bool:
    """Every broker has this topic from its start, nobody may change it: a Java broker's increment never names it."""
    return SELF_TEST_TOPIC in topics


def _completeness(known: _Live | None, version: DataVersion, everything: bool) -> bool | None:
    """What is known of a version once a registration of it is taken over.

    A Java broker's increment says no version that it follows: its counter shows whether one before it is missing. The
    version alone then does not tell that there is nothing new (Java: the topic stays unknown for good).
    """
    if everything:
        return True
    if known is None:
        return None
    return known.complete if version.counter == known.version.counter + 1 else False


def _full(what: str, setting: str) -> ResponseError:
    return ResponseError(ResponseCode.SYSTEM_ERROR, f"{what}: no more are taken ({setting})")
