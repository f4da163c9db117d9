"""Groups of two members of Java 4.9.4's client and two of ours, which share queues by each strategy that there is.

All set the same one by its name. The queues that they tell their brokers of are those that the strategy gives them,
each queue once, and so they are after a member of either kind has left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from rmq import AdminClient, MessageQueue
from rmq.client.allocate import AllocateMessageQueueStrategy, allocation_strategy
from tests.support.interop import Scene, assert_same, fresh, shares_of, until
from tests.support.interop.scene import Member
from tests.support.peers import Client, Cluster, start_cluster
from tests.support.peers.cluster import start_broker

STRATEGIES = ("AVG", "AVG_BY_CIRCLE", "CONFIG", "CONSISTENT_HASH", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY")
#: A room stands before the @ of a broker's name.
BROKERS = ("r1@a", "r2@b")
QUEUES = tuple((broker, number) for broker in BROKERS for number in range(5))
#: Of the members, Java's and ours by turns: the third room has no broker, and the first one has no member in the end.
ROOMS = ("r1", "r1", "r2", "r3")
COUNT = 60

Queue = tuple[str, int]


def room_of(client_id: str) -> str:
    return client_id.partition("@")[2].partition("-")[0]


@dataclass
class Group:
    """One group and its members by handle, Java's and ours by turns."""

    strategy: str
    scene: Scene
    name: str
    topic: str
    members: dict[str, Member]
    #: Of CONFIG.
    fixed: dict[str, list[Queue]]

    def join(self, client: Client, room: str, number: int) -> None:
        handle = f"{room}-{fresh(client.name)}"
        self.fixed[handle] = list(QUEUES[number :: len(ROOMS)])
        client.call(
            "subscribe", namesrv=self.scene.cluster.namesrv, handle=handle, group=self.name, topic=self.topic,
            expression="*", model="clustering", orderly=False, fail=False, strategy=self.strategy,
            queues=self.fixed[handle], rooms=["r1", "r2"],
        )  # fmt: skip
        self.members[handle] = Member(client, handle)

    def leave(self, at: int) -> None:
        self.members.pop(list(self.members)[at]).stop()

    def held(self, admin: AdminClient) -> tuple[dict[str, list[Queue]], dict[str, list[Queue]]]:
        """What each member says it has, its broker asking, and what the strategy gives it."""
        ids = sorted(one.client_id for one in admin.consumer_connections(self.name).connection_set)
        held, due = {}, {}
        for client_id in ids:
            handle = client_id.partition("@")[2]
            table = admin.consumer_running_info(self.name, client_id, self.scene.cluster.broker_addr).mq_table
            held[handle] = sorted((queue.broker_name, queue.queue_id) for queue in table if queue.topic == self.topic)
            mine = self._strategy(handle).allocate(self.name, client_id, self._queues(QUEUES), ids)
            due[handle] = sorted((queue.broker_name, queue.queue_id) for queue in mine)
        return held, due

    def _queues(self, queues: tuple[Queue, ...]) -> list[MessageQueue]:
        return [MessageQueue(self.topic, *queue) for queue in queues]

    def _strategy(self, handle: str) -> AllocateMessageQueueStrategy:
        """As tests/golden/client has recorded of Java's, and as this member is to set it."""
        return allocation_strategy(
            self.strategy, queues=self._queues(tuple(self.fixed[handle])), rooms=("r1", "r2"), client_room=room_of
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with start_cluster("ours", brokers=0) as made:
        for name in BROKERS:
            made.brokers.append(start_broker(made, name, {}))
        yield made


@pytest.fixture(scope="module")
def groups(cluster: Cluster, clients: Callable[[str, str], Client]) -> Iterator[dict[str, Group]]:
    """A group a strategy: they look for each other at the same time."""
    java, python = clients("java-4.9.4", "tested"), clients("python", "tested")
    scene = Scene(cluster, python, java)
    made = {}
    for strategy in STRATEGIES:
        made[strategy] = Group(strategy, scene, scene.group(strategy), scene.topic(strategy, 5), {}, {})
        for number, room in enumerate(ROOMS):
            made[strategy].join((java, python)[number % 2], room, number)
    yield made
    for group in made.values():
        while group.members:
            group.leave(0)


def look(group: Group, admin: AdminClient) -> dict[str, list[Queue]]:
    """What the members have, as soon as it is what they are to have."""
    held, due = until(
        lambda: group.held(admin), lambda found: found[0] == found[1] and found[0].keys() == group.members.keys(), 0.2
    )
    assert held == due, "the members have other queues than the strategy gives them"
    assert held.keys() == group.members.keys()
    return held


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_queue_has_one_member(groups: dict[str, Group], strategy: str) -> None:
    group = groups[strategy]
    with AdminClient(namesrv=group.scene.cluster.namesrv) as admin:
        held = look(group, admin)
        assert sorted(itertools.chain(*held.values())) == list(QUEUES)
        sent = group.scene.produce(group.topic, "async", count=COUNT)
        shares = dict(zip(group.members, shares_of(list(group.members.values()), COUNT), strict=True))
        assert_same(sent, list(itertools.chain(*shares.values())))
        for handle, share in shares.items():
            assert {row.queue for row in share} == {number for _, number in held[handle]}
        group.leave(0)
        group.leave(0)
        held = look(group, admin)
        left = [queue for queues in list(group.fixed.values())[2:] for queue in queues]
        # A fixed list stays what it is: nobody has the queues of those that have left.
        assert sorted(itertools.chain(*held.values())) == sorted(left if strategy == "CONFIG" else QUEUES)
