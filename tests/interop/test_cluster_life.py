"""What clients live through: topics made by the first message, two brokers, a broker that goes and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.interop import Clusters, Scene, assert_same, fresh, run_cell, until
from tests.support.peers import Client, Cluster, start_cluster
from tests.support.peers.cluster import FAST_RETRIES

# Not Node: its client never asks for the route of TBW102, and refuses an unknown topic (of a Java cluster, too).
SENDERS = ("java-4.5.2", "java-4.9.8", "java-5.3.3", "go", "python")


@pytest.mark.parametrize("client", SENDERS)
def test_first_message_makes_the_topic(client: str, scene: Callable[[str, str], Scene]) -> None:
    stage = scene(Clusters.tested(), client)
    topic = fresh(client, "unheard", "of")
    sent = stage.produce(topic, "sync")
    assert {row.queue for row in sent} == {0, 1, 2, 3}
    assert_same(sent, stage.read(topic, len(sent)))


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[Cluster]:
    with start_cluster(Clusters.tested(), brokers=2, properties=FAST_RETRIES) as cluster:
        yield cluster


@pytest.mark.parametrize("name", ["java-4.9.8", "go", "python"])
@pytest.mark.parametrize("way", ["async", "clustering", "broadcasting", "retry"])
def test_two_brokers(name: str, way: str, two_brokers: Cluster, clients: Callable[[str, str], Client]) -> None:
    run_cell(way, Scene(two_brokers, clients(name, "tested"), clients("java-4.9.8", "reader")))


@pytest.fixture
def own_clusters() -> Iterator[list[Cluster]]:
    with ExitStack() as stack:
        yield [stack.enter_context(start_cluster(Clusters.tested(), properties=FAST_RETRIES)) for _ in range(2)]


@pytest.mark.parametrize("name", ["java-4.9.8", "python"])
def test_broker_comes_back(name: str, own_clusters: list[Cluster], clients: Callable[[str, str], Client]) -> None:
    """Stopped or killed: clients connect again by themselves, and whatever was answered SEND_OK is there."""
    left = []
    for cluster, stopped in zip(own_clusters, (True, False), strict=True):
        stage = Scene(cluster, clients(name, "tested"), clients("java-4.9.8", "reader"))
        topic, group = stage.topic("back"), stage.group("back")
        member = stage.subscribe(topic, group)
        sent = stage.produce(topic, "async", prefix="before")
        broker = cluster.brokers[0].daemon
        if stopped:
            code = broker.stop()
            assert code == 0 or cluster.java  # a JVM that took its SIGTERM says 143
        else:
            broker.kill()
        broker.start()
        stage.reader.call("route", namesrv=cluster.namesrv, topic=topic)
        sent += stage.produce(topic, "async", prefix="after")
        assert_same(sent, stage.read(topic, len(sent)))
        left.append((member, {row.key for row in sent}))
    # What was consumed but not committed before the end may come twice; nothing may be missing. A Java consumer waits
    # 30 s for the answer of the pull that the broker held: both at the same time.
    for member, keys in left:
        seen = until(lambda member=member: {row.key for row in member.received(0)}, keys.issubset)
        assert seen == keys, f"{len(keys - seen)} messages never reached the consumer"
        member.stop()
