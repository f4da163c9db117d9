"""A slave of ours under a Java master, and Java's under ours: groups go on there when the master has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.runtime.world import World
from tests.support.interop import Scene, assert_same, until
from tests.support.interop.scene import Member
from tests.support.peers import Client, Cluster, ToolMissing, skip_or_fail, start_cluster
from tests.support.peers.cluster import Broker, start_broker

JAVA = "java-4.9.4"
COUNT = 200

#: Master, slave, and who reads from the slave.
PAIRS = {"ours under Java's": (JAVA, "ours", "java-4.9.8"), "Java's under ours": ("ours", JAVA, "python")}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Broker, str]]:
    """A name server of ours with a master, its slave, and the name of a client."""
    master, slave, client = PAIRS[request.param]
    slave_settings = {"brokerName": "broker-a", "brokerId": "1", "brokerRole": "SLAVE", "slaveReadEnable": "true"}
    try:
        cluster = start_cluster(master, our_namesrv=True)
    except ToolMissing as missing:
        skip_or_fail(missing)
    with cluster:
        held = start_broker(cluster, "broker-a-s", slave_settings, kind=slave)
        try:
            yield cluster, held, client
        finally:
            held.daemon.kill()


def asked(addr: str, code: RequestCode, **ext: str) -> Command:
    """One answer of a broker."""

    async def ask() -> Command:
        async with RemotingClient(World.real()) as client:
            return await client.request(addr, Command(code, ext=dict(ext)), 5)

    return asyncio.run(ask())


def ends(addr: str, topic: str) -> int:
    """How many messages a broker has in the four queues of a topic."""
    found = (asked(addr, RequestCode.GET_MAX_OFFSET, topic=topic, queueId=str(queue)) for queue in range(4))
    return sum(int((answer.ext or {}).get("offset") or 0) for answer in found)


def consumed(addr: str, topic: str, group: str) -> int:
    """How far a group is in them."""
    return sum(
        int((answer.ext or {}).get("offset") or 0)
        for queue in range(4)
        if (
            answer := asked(
                addr, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=str(queue)
            )
        ).code
        == 0
    )


def committed(member: Member, addr: str, topic: str, group: str, count: int) -> None:
    """Wait until a broker knows that a group has consumed so much."""

    def told() -> int:
        if member.client.name.startswith("java"):
            member.client.call("persist", handle=member.handle)  # else every 5 s, as ours does
        return consumed(addr, topic, group)

    assert until(told, lambda found: found == count, pause=0.5) == count


def test_a_group_goes_on_at_the_slave(pair: tuple[Cluster, Broker, str], clients: Callable[[str, str], Client]) -> None:
    cluster, slave, name = pair
    scene = Scene(cluster, clients(name, "tested"), clients("java-4.9.8", "reader"))
    topic, group = scene.topic("slave"), scene.group("slave", retries=1)
    scene.retry_topic(group)
    producer = clients("java-4.9.8", "reader")
    scene.produce(topic, "sync", by=producer, prefix="before", count=COUNT)
    member = scene.subscribe(topic, group)
    assert len(member.received(COUNT)) == COUNT
    committed(member, cluster.broker_addr, topic, group, COUNT)
    member.stop()
    sent = scene.produce(topic, "sync", by=producer, prefix="after", count=COUNT)
    assert until(lambda: ends(slave.addr, topic), lambda count: count == 2 * COUNT) == 2 * COUNT
    assert until(lambda: consumed(slave.addr, topic, group), lambda count: count == COUNT) == COUNT
    cluster.brokers[0].daemon.kill()
    member = scene.subscribe(topic, group)
    assert_same(sent, member.received(COUNT))
    committed(member, slave.addr, topic, group, 2 * COUNT)
    member.stop()
    if cluster.java is None:  # Java's master serves what it knew before; ours asks its slave first
        cluster.brokers[0].daemon.start()
        assert consumed(cluster.broker_addr, topic, group) == 2 * COUNT
