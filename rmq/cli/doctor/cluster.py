"""What is wrong with a cluster, judged by what its servers say; nothing here asks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rmq.cli.doctor.elected import of_elected
from rmq.cli.finding import Finding, judged
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.replica import HARuntimeInfo

__all__ = ["Broker", "Cluster", "of_cluster"]

#: Share of a disk from which files go before their time, and from which sends are refused, by default.
_DISK_LOOK, _DISK_WRONG = 0.75, 0.85
#: Milliseconds that a send waits at most before brokers refuse it, by default.
_SEND_WAIT = 200
_MUCH = 64 << 20
#: Seconds by which a slave may be older than its master: one that follows is never as late.
_LATE = 60
#: Settings that brokers which serve the same topics should agree on, and what comes of it when they do not.
_ALIKE = {
    "autoCreateTopicEnable": "a new topic is made on some brokers only",
    "defaultTopicQueueNums": "a new topic has more queues on some brokers",
    "maxMessageSize": "a message may be taken by one broker and refused by another",
    "messageDelayLevel": "a delay level means another time on each",
    "flushDiskType": "what an acknowledgement promises depends on the broker",
    "enablePropertyFilter": "SQL92 filters are refused by some brokers",
    "aclEnable": "accounts are asked for by some brokers only",
}

#: Further ones that the members of a group should agree on, any of which may lead next.
_ALIKE_IN_GROUP = _ALIKE | {
    "messageIndexEnable": "messages are found by their keys while some lead, and not while others do",
    "enableLmq": "light queues are there while some lead, and not while others do",
    "enableMultiDispatch": "light queues lack messages while some lead, and not while others do",
    "fileReservedTime": "some have deleted messages already that others still have",
    "timerWheelEnable": "messages with a time of their own are refused while some lead, and not while others do",
}
#: What a member of a group has for itself; paths are, too.
_MEMBERS_OWN = {
    "brokerId", "brokerRole", "listenPort", "haListenPort", "brokerIP1", "brokerIP2", "bindAddress", "namesrvAddr",
    "dLegerSelfId", "dLegerPeers", "preferredLeaderId", "rocketmqHome", "aclCredentialsFile", "metricsTokenFile",
    "metricsPromExporterHost", "metricsPromExporterPort", "clientCallbackExecutorThreads",
    "startAcceptSendRequestTimeStamp",
}  # fmt: skip
#: Settings that are named; more are counted.
_MOST_KEYS = 3


@dataclass(slots=True)
class Broker:
    """:param figures: its runtime information; None where it does not answer: ``error`` says why.

    :param settings: those that it tells.
    :param replicas: of a master of 5.x's or ours.
    """

    name: str
    id: int
    address: str
    figures: Mapping[str, str] | None = None
    error: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    replicas: HARuntimeInfo | None = None

    @property
    def where(self) -> str:
        return f"{self.name} ({'master' if self.id == 0 else f'slave {self.id}'}, {self.address})"


@dataclass(slots=True)
class Cluster:
    """:param name_servers: what each knows, or why it does not say.

    :param departed: brokers that have left without a word, and what is known of that. :param shut_down: with one.
    """

    name_servers: Mapping[str, ClusterInfo | str]
    brokers: list[Broker]
    departed: Mapping[str, str] = field(default_factory=dict)
    shut_down: Mapping[str, str] = field(default_factory=dict)


def of_cluster(cluster: Cluster) -> Iterator[Finding]:
    """Everything that can be seen from what the servers say, name servers first."""
    yield from _name_servers(cluster)
    if not cluster.brokers and any(isinstance(said, ClusterInfo) for said in cluster.name_servers.values()):
        yield judged(
            True, "cluster", "no broker is registered", "start one, with namesrvAddr set to these name servers"
        )
    for name, why in cluster.departed.items():
        what = f"it is not registered any more: {why}"
        do = "start it again: nobody gets what it has, and no list and no sum of this cluster has it"
        yield judged(True, name, what, do)
    for name, why in cluster.shut_down.items():
        yield judged(False, name, f"it is not registered any more: {why}", "nobody gets what it has until it is back")
    for broker in cluster.brokers:
        yield from _broker(broker)
    yield from _sets(cluster.brokers)
    yield from _agreement(cluster.brokers)


def _name_servers(cluster: Cluster) -> Iterator[Finding]:
    known: dict[str, set[str]] = {}
    for address, said in cluster.name_servers.items():
        if isinstance(said, str):
            do = "start it, or take it out of the list of name servers: clients wait for it each time"
            yield judged(True, f"name server {address}", said, do)
        else:
            table = said.broker_addr_table
            known[address] = {f"{name}/{id_}" for name, data in table.items() for id_ in data.broker_addrs}
    for broker in sorted(set().union(*known.values())):
        without = sorted(address for address, brokers in known.items() if broker not in brokers)
        if without:
            what = f"it does not know {broker}, which others know"
            do = "namesrvAddr of that broker names every name server? A broker registers every 30 s: look again"
            yield judged(True, f"name server {', '.join(without)}", what, do)


def _broker(broker: Broker) -> Iterator[Finding]:
    if broker.figures is None:
        host = broker.address.rpartition(":")[0]
        if "no answer in" in broker.error and "connect to" not in broker.error:
            what = f"it takes connections and does not answer ({broker.error}); producers and consumers wait for it"
            do = "its process stands still, or waits for a disk: look at its machine"
            yield judged(True, broker.where, what, do)
            return
        what = f"name servers send clients to {broker.address}, and it does not answer: {broker.error}"
        local = "127." in host[:4] or host == "localhost"
        why = "that address is this machine's own for everybody" if local else "clients may not reach it either"
        yield judged(True, broker.where, what, f"{why}: see that it runs, and that brokerIP1 is an address they reach")
        return
    number = _Numbers(broker.figures)
    ratio = number("commitLogDiskRatio")
    if ratio >= _DISK_LOOK:
        what = f"its disk is {ratio:.0%} full"
        do = "make room, or keep messages for less time (fileReservedTime): it refuses sends when it is full"
        yield judged(ratio >= _DISK_WRONG, broker.where, what, do)
    if (wait := number("sendThreadPoolQueueHeadWaitTimeMills")) > _SEND_WAIT:
        what = f"its oldest send has waited {wait:.0f} ms"
        yield judged(True, broker.where, what, "it takes less than producers send: spread the topic over more brokers")
    if (behind := number("dispatchBehindBytes")) > _MUCH:
        what = f"{behind / (1 << 20):.0f} MiB of its log are in no queue yet, so nobody can consume them"
        yield judged(False, broker.where, what, "it works this off after a start; if it grows, look at its disk")
    if (failed := number("putMessageFailedTimes")) > 0:
        yield judged(False, broker.where, f"{failed:.0f} messages were not stored since its start", "its log says why")
    if broker.settings.get("brokerPermission", "6") not in ("6", "7"):
        what = f"brokerPermission={broker.settings['brokerPermission']}: it is closed for sends or for reads"
        yield judged(False, broker.where, what, "6 opens it again: mqadmin updateBrokerConfig -k brokerPermission -v 6")


def _sets(brokers: list[Broker]) -> Iterator[Finding]:
    """Masters and their slaves."""
    by_name: dict[str, list[Broker]] = {}
    for broker in brokers:
        by_name.setdefault(broker.name, []).append(broker)
    for name, members in sorted(by_name.items()):
        if any(one.replicas is not None and one.replicas.group is not None for one in members):
            said = {one.id: (one.where, one.replicas.group) for one in members if one.replicas is not None}
            yield from of_elected(name, said)
            yield from _differences(name, _ALIKE_IN_GROUP, [(one.address, one.settings) for one in members], "members")
            yield from _members_alike(name, members)
            continue
        master = next((one for one in members if one.id == 0), None)
        if master is None:
            what = "its master is away: nothing is sent to this set, and consumers read from its slaves at best"
            yield judged(True, name, what, "start the master, or promote a slave (docs/replication.md)")
            continue
        replicas = master.replicas
        slaves = len(members) - 1
        if master.settings.get("brokerRole") == "SYNC_MASTER" and not slaves:
            what = "a SYNC_MASTER without a slave: each message is stored once, and SLAVE_NOT_AVAILABLE says so"
            yield judged(True, master.where, what, "start its slave, or set brokerRole=ASYNC_MASTER")
        if replicas is None:
            continue
        for one in replicas.ha_connection_info:
            late = one.behind_seconds or 0
            if one.diff > _MUCH or not one.in_sync or late >= _LATE:
                since = f" and {late} s" if late else ""
                what = f"its slave at {one.addr} is {one.diff / (1 << 20):.0f} MiB{since} behind"
                yield judged(not one.in_sync, master.where, what, "mqadmin haStatus shows whether it catches up")
        if slaves > len(replicas.ha_connection_info):
            what = f"{slaves} slaves are registered, and {len(replicas.ha_connection_info)} copy from it"
            yield judged(True, master.where, what, "the slave's log says why it does not (mqadmin haStatus)")


def _members_alike(name: str, members: list[Broker]) -> Iterator[Finding]:
    """Whether members of a group agree on the other settings, too: any of them may be the master next."""
    told = [one for one in members if one.settings]
    shared = set(told[0].settings).intersection(*(one.settings for one in told[1:])) if told else set()
    differ = []
    for key in sorted(shared - _MEMBERS_OWN - _ALIKE_IN_GROUP.keys()):
        values: dict[str, list[str]] = {}
        for one in told:
            values.setdefault(one.settings[key], []).append(one.address)
        if len(values) > 1 and "path" not in key.lower():
            by = ", ".join(f"{value or 'nothing'} at {' and '.join(at)}" for value, at in sorted(values.items()))
            differ.append(f"{key} is {by}")
    if differ:
        more = f"; and {len(differ) - _MOST_KEYS} more" if len(differ) > _MOST_KEYS else ""
        what = f"its members differ in settings: {'; '.join(differ[:_MOST_KEYS])}{more}"
        do = "any of them may be the master next: mqadmin updateBrokerConfig -c CLUSTER -a true changes all"
        yield judged(False, name, what, do)


def _agreement(brokers: list[Broker]) -> Iterator[Finding]:
    versions: dict[str, list[str]] = {}
    for broker in brokers:
        if broker.figures and (version := broker.figures.get("brokerVersionDesc")):
            versions.setdefault(version, []).append(broker.name)
    if len(versions) > 1:
        told = "; ".join(f"{version}: {', '.join(sorted(set(names)))}" for version, names in sorted(versions.items()))
        yield judged(False, "cluster", f"brokers are of several versions ({told})", "finish the upgrade")
    masters = [(broker.name, broker.settings) for broker in brokers if broker.id == 0]
    yield from _differences("cluster", _ALIKE, masters, "masters")


def _differences(
    what: str, keys: Mapping[str, str], said: list[tuple[str, Mapping[str, str]]], whose: str
) -> Iterator[Finding]:
    """Settings that should be alike, each with what comes of it when they are not."""
    for key, why in keys.items():
        values: dict[str, list[str]] = {}
        for name, settings in said:
            if key in settings:
                values.setdefault(settings[key], []).append(name)
        if len(values) > 1:
            told = "; ".join(f"{value!r} on {', '.join(sorted(names))}" for value, names in sorted(values.items()))
            yield judged(False, what, f"{key} differs ({told}): {why}", f"set it alike on all {whose}")


class _Numbers:
    """Figures as numbers; what is not there, or is none, is 0."""

    def __init__(self, figures: Mapping[str, str]) -> None:
        self._figures = figures

    def __call__(self, key: str) -> float:
        try:
            return float(self._figures.get(key, "0"))
        except ValueError:
            return 0.0
