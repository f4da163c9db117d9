"""What `rmq doctor` finds: each fault by itself, and nothing where nothing is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rmq.cli.doctor.cluster import Broker, Cluster, of_cluster
from rmq.cli.doctor.elected import of_elected
from rmq.cli.doctor.group import Group, of_group
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.replica import GroupInfo, GroupMember, HAConnectionRuntimeInfo, HARuntimeInfo
from rmq.protocol.bodies.route import BrokerData
from rmq.protocol.bodies.running import ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo
from rmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper
from rmq.protocol.queue import MessageQueue

NOW = 1_795_946_400_000
FIGURES = {"commitLogDiskRatio": "0.5", "brokerVersionDesc": "V4_9_7", "putMessageFailedTimes": "0"}


def view(*brokers: str) -> ClusterInfo:
    table: dict[str, BrokerData] = {}
    for one in brokers:
        name, _, number = one.partition("/")
        data = table.setdefault(name, BrokerData(broker_name=name, cluster="C", broker_addrs={}))
        data.broker_addrs[int(number)] = f"{name}:1{number}911"
    return ClusterInfo(broker_addr_table=table, cluster_addr_table={"C": sorted(table)})


def broker(name: str = "a", number: int = 0, **figures: str) -> Broker:
    return Broker(name, number, f"{name}:1{number}911", {**FIGURES, **figures}, settings={"brokerPermission": "6"})


def found(cluster: Cluster) -> list[tuple[bool, str]]:
    return [(one.wrong, f"{one.where}: {one.what}") for one in of_cluster(cluster)]


def test_a_sound_cluster_has_nothing() -> None:
    master, slave = broker(), broker("a", 1)
    slaves = [HAConnectionRuntimeInfo(addr="s", in_sync=True)]
    pair = [replace(master, replicas=HARuntimeInfo(master=True, ha_connection_info=slaves)), slave]
    assert found(Cluster({"n1": view("a/0", "a/1"), "n2": view("a/0", "a/1")}, pair)) == []


LOG = 100 << 20
LATE = HARuntimeInfo(ha_connection_info=[HAConnectionRuntimeInfo(addr="s", diff=1, in_sync=True, behind_seconds=60)])
BEHIND = HARuntimeInfo(ha_connection_info=[HAConnectionRuntimeInfo(addr="s", diff=LOG)])


@pytest.mark.parametrize(
    ("brokers", "wrong", "what"),
    [
        ([], True, "cluster: no broker is registered"),
        ([broker(commitLogDiskRatio="0.8")], False, "a (master, a:10911): its disk is 80% full"),
        ([broker(commitLogDiskRatio="0.91")], True, "a (master, a:10911): its disk is 91% full"),
        ([broker(sendThreadPoolQueueHeadWaitTimeMills="900")], True, "its oldest send has waited 900 ms"),
        ([broker(dispatchBehindBytes=str(LOG))], False, "100 MiB of its log are in no queue yet"),
        ([broker(putMessageFailedTimes="3")], False, "3 messages were not stored"),
        ([broker("a", 1)], True, "a: its master is away"),
        ([replace(broker(), settings={"brokerPermission": "4"})], False, "brokerPermission=4: it is closed for"),
        ([replace(broker(), settings={"brokerRole": "SYNC_MASTER"})], True, "a SYNC_MASTER without a slave"),
        ([replace(broker(), figures=None, error="refused")], True, "a:10911, and it does not answer: refused"),
        ([broker(), broker("b", brokerVersionDesc="V5_3_3")], False, "several versions (V4_9_7: a; V5_3_3: b)"),
        (
            [replace(broker(name), settings={"maxMessageSize": name}) for name in "ab"],
            False, "maxMessageSize differs ('a' on a; 'b' on b): a message may be taken by one broker",
        ),
        (
            [replace(broker(), replicas=LATE), broker("a", 1)],
            False, "its slave at s is 0 MiB and 60 s behind",
        ),
        (
            [replace(broker(), replicas=BEHIND), broker("a", 1)],
            True, "its slave at s is 100 MiB behind",
        ),
        ([replace(broker(), replicas=HARuntimeInfo()), broker("a", 1)], True, "1 slaves are registered, and 0 copy"),
    ],
)  # fmt: skip
def test_each_fault_of_a_cluster_is_told_alone(brokers: list[Broker], wrong: bool, what: str) -> None:
    names = [f"{one.name}/{one.id}" for one in brokers]
    ((is_wrong, said),) = found(Cluster({"n1": view(*names)}, brokers))
    assert (is_wrong, what in said) == (wrong, True), said


def test_name_servers_that_do_not_agree_are_told() -> None:
    (silent, differing) = found(
        Cluster({"n1": view("a/0"), "n2": view("a/0", "b/0"), "n3": "refused"}, [broker(), broker("b")])
    )
    assert silent == (True, "name server n3: refused")
    assert differing == (True, "name server n1: it does not know b/0, which others know")


# -- groups ------------------------------------------------------------------------------------------------------------


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "a", number)


def member(*queues: int, rates: ConsumeStatus | None = None, **state: int) -> ConsumerRunningInfo:
    table = {queue(number): ProcessQueueInfo(last_pull_timestamp=NOW, last_consume_timestamp=NOW) for number in queues}
    for one in table.values():
        for name, value in state.items():
            setattr(one, name, value)
    status = rates or ConsumeStatus(consume_ok_tps=5.0)
    return ConsumerRunningInfo(mq_table=table, status_table={"T": status})


def stats(lag: int = 0, queues: int = 2) -> ConsumeStats:
    return ConsumeStats(
        offset_table={
            queue(number): OffsetWrapper(broker_offset=10 + lag, consumer_offset=10) for number in range(queues)
        }
    )


def group(**given: Any) -> Group:
    online: Mapping[str, ConsumerRunningInfo | str] = {"one": member(0), "two": member(1)}
    return Group(
        **{"name": "g", "online": online, "state": "", "broadcasting": False, "stats": stats(), "now": NOW, **given}
    )


def test_a_sound_group_has_nothing() -> None:
    assert list(of_group(group(arriving={"T": 9.0}, least={queue(0): 10}))) == []
    # Slower than arrival for this minute, and nothing waits: that is what a burst looks like.
    assert list(of_group(group(arriving={"T": 1000.0}))) == []
    # What waits here is under way, and the rates were counted at two moments.
    assert list(of_group(group(arriving={"T": 10.3}, stats=stats(2)))) == []


@pytest.mark.parametrize(
    ("given", "wrong", "what"),
    [
        ({"online": {}, "state": "offline, no offsets"}, False, "no member is online"),
        ({"online": {}, "stats": stats(5)}, True, "nobody is online, and 10 messages wait"),
        ({"closed": ["a"]}, True, "a let nobody of it consume (consumeEnable=false)"),
        ({"differences": ["T: A by one; B by two"]}, True, "subscribe different things"),
        ({"online": {"one": member(0), "two": "silent"}}, False, "its member two does not say how it is: silent"),
        ({"online": {"one": member(0)}, "stats": stats(3)}, True, "nobody has a/1 of T, where messages wait"),
        ({"online": {"one": member(0, 1), "two": member(1)}}, True, "have the same queue, a/1 of T"),
        ({"online": {"one": member(0), "two": member(1), "3": member()}}, False, "3 members share the 2 queues"),
        ({"least": {queue(0): 17}}, True, "7 messages were deleted before it consumed them"),
        (
            {"online": {"one": member(0, cached_msg_count=3, last_consume_timestamp=NOW - 90_000), "two": member(1)}},
            True, "one has finished nothing of a/0 of T for 90 s",
        ),
        (
            {"online": {"one": member(0, last_pull_timestamp=NOW - 300_000), "two": member(1)}},
            True, "one has pulled nothing from a/0 of T for two minutes",
        ),
        (
            {"online": {"one": member(0, 1, rates=ConsumeStatus(consume_ok_tps=1.0, consume_failed_tps=2.0))}},
            True, "its listeners fail for 2.0 messages of T a second",
        ),
        ({"arriving": {"T": 30.0}, "stats": stats(80)}, False, "30.0 messages of T come a second, and its members"),
        ({"dead": 4}, False, "4 messages are in %DLQ%g"),
    ],
)  # fmt: skip
def test_each_fault_of_a_group_is_told_alone(given: dict[str, Any], wrong: bool, what: str) -> None:
    (one,) = of_group(group(**given))
    assert (one.wrong, what in one.what) == (wrong, True), one


def test_a_broadcasting_group_has_each_queue_often() -> None:
    assert list(of_group(group(broadcasting=True, online={"one": member(0, 1), "two": member(0, 1)}))) == []


def other(one: str, *, connected: bool = True, behind: int | None = None, trouble: str | None = None) -> GroupMember:
    end = None if behind is None else LOG - behind
    return GroupMember(
        id=one, addr=f"{one}:40911", connected=connected, end=end, behind=behind, in_sync=behind == 0, trouble=trouble
    )


def seen(
    me: str, role: str = "follower", *members: GroupMember, leader: str | None = "n0", **more: Any
) -> HARuntimeInfo:
    others = list(members) or [other(one) for one in ("n0", "n1", "n2") if one != me]
    group = GroupInfo(group="g", me=me, role=role, term=3, leader=leader, end=LOG, members=others, **more)
    return HARuntimeInfo(master=role == "leader", group=group)


def elected(*said: HARuntimeInfo | None) -> list[tuple[bool, str]]:
    brokers = [replace(broker("a", number), replicas=one) for number, one in enumerate(said)]
    return found(Cluster({"n1": view(*(f"a/{number}" for number in range(len(said))))}, brokers))


AWAY = other("n2", connected=False)
UP = (other("n1", behind=0), other("n2", behind=0))
FIVE = (*UP, other("n3", behind=0), other("n4", connected=False))
REST = (seen("n1"), seen("n2"))


@pytest.mark.parametrize(
    ("said", "wrong", "what"),
    [
        ([seen("n0", "leader", UP[0], AWAY), seen("n1")], True,
         "a (master, a:10911): the member n2 (n2:40911) is away: one more, and nobody leads"),
        ([seen("n0", "leader", *FIVE), seen("n1", "follower", other("n0"), *FIVE[1:])], False,
         "(n4:40911) is away: 2 more, and nobody leads"),
        ([seen("n0", "leader", UP[0], other("n2", behind=65 << 20)), *REST], False,
         "the member n2 is 65 MiB behind"),
        ([seen("n0", "leader", UP[0], other("n2")), *REST], True, "has not said yet how far its log goes"),
        ([seen("n0", "leader", UP[0], replace(UP[1], heard=20_900)), *REST], True,
         "the member n2 (n2:40911) takes connections and has said nothing for 20 s: one more, and nobody leads"),
        ([seen("n0", "leader", UP[0], replace(AWAY, trouble="no")), *REST], True,
         "the member n2 does not take it: no"),
        ([seen("n0", "leader", UP[0], replace(UP[1], counted=False)), *REST], True,
         "the member n2 has lost its disk, and is not counted before it has everything again"),
        ([seen("n0", "leader", *UP, preferred="n2"), seen("n2", preferred="n2")], False,
         "n0 leads, and n2 is the preferredLeaderId"),
        ([seen("n0", "leader", *UP, preferred="n0;n1"), *REST], False,
         "name different ones as preferredLeaderId: n0 says n0;n1, n1 says nobody, n2 says nobody"),
        ([seen("n0", leader=None, trouble="the group has no leader")], True,
         "a: no member of it leads, so nothing is sent to it: 1 of 3 members answer"),
        ([seen("n0", "leader", *UP), REST[0], seen("n2", "stopped", trouble="the logs have parted")], True,
         "a (slave 2, a:12911): the logs have parted"),
        ([seen("n0", "leader", *UP), REST[0], seen("n2", "candidate", leader=None)], False,
         "it does not hear the leader"),
        ([seen("n0"), seen("n1", "leader", other("n0", behind=0), UP[1], leader="n1")], True,
         "name servers send clients to a (master, a:10911), and n1 leads"),
        ([seen("n0", "leader", *UP), HARuntimeInfo(), seen("n2")], True, "it is registered beside members of a group"),
        ([seen("n0", "leader", *UP), seen("n5", "follower", other("n6"), other("n7"))], True,
         "more than one group is registered under this brokerName: clients are sent to either"),
        ([seen("n0", "leader", *UP), seen("n0", "leader", *UP)], True, "more than one group is registered"),
        ([seen("n0", "leader", *UP), seen("n1", "follower", replace(UP[1], addr="elsewhere:1"), other("n0"))], True,
         "a: its members do not name one address of n2 in dLegerPeers: elsewhere:1 (n1), n2:40911 (n0)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_group_that_elects_its_master(
    said: list[HARuntimeInfo | None], wrong: bool, what: str
) -> None:
    ((is_wrong, told),) = elected(*said)
    assert (is_wrong, what in told) == (wrong, True), told


def test_members_of_a_group_agree_on_what_is_not_their_own() -> None:
    """Any of them may be the master next; what a member has for itself is not compared."""
    settings = [
        {"slaveTimeout": "72", "listenPort": "1", "storePathRootDir": "/a", "brokerRole": "SYNC_MASTER", "x": "1"},
        {"slaveTimeout": "24", "listenPort": "2", "storePathRootDir": "/b", "brokerRole": "SLAVE"},
    ]
    said = (seen("n0", "leader", *UP), seen("n1"))
    brokers = [
        replace(broker("a", number), replicas=one, settings=own)
        for number, (one, own) in enumerate(zip(said, settings, strict=True))
    ]
    cluster = Cluster({"n1": view("a/0", "a/1")}, brokers)
    what = "its members differ in settings: slaveTimeout is 24 at a:11911, 72 at a:10911"
    assert found(cluster) == [(False, f"a: {what}")]
    brokers[1].settings = settings[1] | {"slaveTimeout": "72"}
    assert found(cluster) == []


def test_members_that_do_not_take_each_other_are_told_with_why() -> None:
    why = "n0 has brokerName=a, and n2 has b: it is the same in all"
    waits = f"the group begins once every member was met: n2 never was; {why}"
    refused = other("n2", connected=False, trouble=why)
    group = seen("n0", "follower", other("n1"), refused, leader=None, trouble=waits).group
    assert group is not None
    assert [(one.what, one.do) for one in of_elected("a", {0: ("a", group)})] == [
        ("no member of it leads, so nothing is sent to it: 1 of 3 members answer",
         "start n1; see why n2 and the others do not take each other"),
        (waits, "docs/failover.md says what to do"),
    ]  # fmt: skip


def test_members_that_have_other_settings_lead_differently() -> None:
    """What a broker that only follows would refuse, or leave out, shows when it leads."""
    said: list[tuple[HARuntimeInfo, str, str]] = [
        (seen("n0", "leader", *UP), "messageDelayLevel", "1s 5s"),
        (seen("n1"), "messageDelayLevel", "1s"),
        (seen("n2"), "enableLmq", "true"),
    ]
    members = [
        replace(broker("a", number), settings={key: value, "brokerId": str(number)}, replicas=replicas)
        for number, (replicas, key, value) in enumerate(said)
    ]
    ((wrong, told),) = found(Cluster({"n1": view("a/0", "a/1", "a/2")}, members))
    assert not wrong
    assert told.startswith("a: messageDelayLevel differs ('1s' on a:11911; '1s 5s' on a:10911): a delay level means")


def test_a_sound_group_that_elects_its_master_has_nothing() -> None:
    assert elected(seen("n0", "leader", *UP), seen("n1"), seen("n2")) == []
    assert elected(seen("n0", "leader", *UP, preferred="n0"), None, seen("n2", preferred="n0")) == []
