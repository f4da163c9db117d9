"""Where a group begins in queues, topics and brokers that are older or younger than it: beside Java 4.9.4's client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import rmq
from tests.support.interop import Scene, fresh
from tests.support.interop.scene import Member, until
from tests.support.peers import Client, Cluster, start_cluster
from tests.support.peers.cluster import start_broker
from tests.support.peers.process import PATIENCE

POLICIES = ("LAST_OFFSET", "FIRST_OFFSET", "TIMESTAMP")
COUNT = 24


@pytest.fixture(
    scope="module", params=[("ours", "40"), ("ours", "0"), ("java-4.9.4", "40")], ids=lambda param: "-".join(param)
)
def at_hand(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The kind of cluster, and its brokers' accessMessageInMemoryMaxRatio: with 0 no queue with a message is young."""
    param: tuple[str, str] = request.param
    return param


@pytest.fixture(scope="module")
def cluster(at_hand: tuple[str, str]) -> Iterator[Cluster]:
    with start_cluster(at_hand[0], properties={"accessMessageInMemoryMaxRatio": at_hand[1]}) as made:
        yield made


class Pair:
    """Two groups that do the same, one of ours and one of Java's."""

    def __init__(self, scene: Scene, java: Client, policy: str, topic: str, model: str, *, orderly: bool) -> None:
        self._scene = scene
        self._clients = (scene.client, java)
        self._policy = policy
        self._groups = [fresh("g-begin") for _ in self._clients]
        self._model = model
        self._orderly = orderly
        self._members: list[Member] = []
        self._seen: list[set[str]] = [set(), set()]
        self.topic = topic

    def start(self) -> Pair:
        since = time.strftime("%Y%m%d%H%M%S", time.localtime(time.time() + 1))
        self._members = [
            self._scene.subscribe(
                self.topic,
                group,
                by=client,
                model=self._model,
                orderly=self._orderly,
                **{"from": self._policy, "since": since},
            )
            for client, group in zip(self._clients, self._groups, strict=True)
        ]
        return self

    def begun(self, queues: int) -> None:
        """Wait until both know where they begin in so many queues of the topic: what comes later is for them."""
        address = self._scene.cluster.broker_addr

        def placed(admin: rmq.AdminClient, group: str) -> int:
            try:
                (member,) = admin.consumer_connections(group, address).connection_set
                info = admin.consumer_running_info(group, member.client_id, address)
            except rmq.ResponseError:
                return 0  # the broker has not heard of it yet
            return sum(queue.topic == self.topic for queue in info.mq_table)

        with rmq.AdminClient(namesrv=self._scene.cluster.namesrv) as admin:
            for group in self._groups:
                assert until(lambda group=group: placed(admin, group), lambda found: found == queues) == queues

    def _look(self) -> list[set[str]]:
        for seen, member in zip(self._seen, self._members, strict=True):
            seen.update(row.key for row in member.received(0))
        return self._seen

    def get(self, keys: set[str]) -> list[set[str]]:
        """What each was given so far, once both have these."""
        seen = until(self._look, lambda seen: all(keys <= each for each in seen))
        assert all(keys <= each for each in seen), [sorted(keys - each) for each in seen]
        return seen

    def get_one_of(self, send: Callable[[], set[str]]) -> list[set[str]]:
        """What each was given so far, once both have all of one sending; `send` is called again until they have.

        A Java member in order looks once more for where it begins when it first pulls, which nothing tells.
        """
        sendings: list[set[str]] = []
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            sendings.append(send())
            for _ in range(20):
                seen = self._look()
                if all(any(keys <= each for keys in sendings) for each in seen):
                    return seen
                time.sleep(0.1)
        raise AssertionError([[len(keys - each) for keys in sendings] for each in seen])

    def stop(self) -> None:
        self._look()
        for member in self._members:
            member.stop()
        self._members = []


@pytest.fixture
def scene(cluster: Cluster, clients: Callable[[str, str], Client]) -> Scene:
    return Scene(cluster, clients("python", "tested"), clients("java-4.9.8", "reader"))


def sent(scene: Scene, topic: str, queues: int, prefix: str) -> set[str]:
    """COUNT messages in every queue, as Java's round robin places them."""
    rows = scene.produce(topic, "sync", by=scene.reader, prefix=fresh(prefix), count=COUNT)
    assert len({row.queue for row in rows}) == queues
    return {row.key for row in rows}


def grow(scene: Scene, topic: str, queues: int) -> None:
    scene.reader.call("topic", namesrv=scene.cluster.namesrv, topic=topic, queues=queues)


@pytest.mark.parametrize("policy", POLICIES)
def test_it_begins_where_java_does(
    policy: str, at_hand: tuple[str, str], scene: Scene, clients: Callable[[str, str], Client]
) -> None:
    java = clients("java-4.9.4", "beside")
    pairs: dict[str, Pair] = {}

    def pair(case: str, topic: str, model: str = "clustering", *, orderly: bool = False) -> Pair:
        pairs[case] = Pair(scene, java, policy, topic, model, orderly=orderly)
        return pairs[case]

    old = scene.topic("old", 2)
    sent(scene, old, 2, "before")
    # Where nothing is at hand a Java member that is up misses what comes before it sees the queue; ours does not.
    grown = {case: scene.topic(case, 2) for case in (("up", "down") if at_hand[1] != "0" else ("down",))}
    for case, topic in grown.items():
        pair(case, topic).start()
    for case, topic in grown.items():
        pairs[case].begun(2)
        pairs[case].get(sent(scene, topic, 2, "first"))
    pairs["down"].stop()
    later = fresh("later")
    if "up" in grown:
        pair("a topic to come", later).start()
    for topic in grown.values():
        grow(scene, topic, 4)
        sent(scene, topic, 4, "grown")
    grow(scene, later, 2)
    sent(scene, later, 2, "to come")
    pairs["down"].start()
    for case, model, orderly in (
        ("old", "clustering", False),
        ("old, in order", "clustering", True),
        ("old, broadcasting", "broadcasting", False),
    ):
        pair(case, old, model, orderly=orderly).start()
    lone = fresh("g-kept")
    told = [
        client.call("kept", namesrv=scene.cluster.namesrv, topic=old, group=f"{lone}-{number}")["offsets"]
        for number, client in enumerate((scene.client, java))
    ]
    assert told[0] == told[1]
    queues = {case: 4 if case in grown else 2 for case in pairs}
    for case, each in pairs.items():
        each.begun(queues[case])
    seen = {}
    for case, each in pairs.items():
        given = each.get_one_of(partial(sent, scene, each.topic, queues[case], "last"))
        seen[case] = [sorted(key for key in keys if not key.startswith("last-")) for keys in given]
    for each in pairs.values():
        each.stop()
    assert {case: ours for case, (ours, _) in seen.items()} == {case: javas for case, (_, javas) in seen.items()}


def test_a_broker_that_is_added_is_read_from_its_beginning(scene: Scene, clients: Callable[[str, str], Client]) -> None:
    """A young one, whatever the others are."""
    java = clients("java-4.9.4", "beside")
    topics = [scene.topic("up", 2), scene.topic("down", 2)]
    up, down = (Pair(scene, java, "LAST_OFFSET", topic, "clustering", orderly=False).start() for topic in topics)
    for each in (up, down):
        each.begun(2)
        each.get(sent(scene, each.topic, 2, "first"))
    down.stop()
    added = start_broker(scene.cluster, "broker-b", {"accessMessageInMemoryMaxRatio": "40"})
    scene.cluster.brokers.append(added)
    for each in (up, down):
        grow(scene, each.topic, 2)
        rows = scene.produce(each.topic, "sync", by=scene.reader, prefix=fresh("added"), count=COUNT)
        if each is down:
            each.start()
        ours, javas = each.get({row.key for row in rows})
        assert ours == javas
        each.stop()
