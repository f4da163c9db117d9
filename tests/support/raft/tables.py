"""A group of brokers in virtual time whose topics, subscription groups and modes are changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq.aio import AdminClient, Message, MessageQueue, Producer
from rmq.broker.app import BrokerApp
from rmq.broker.replication import metadata
from rmq.protocol.bodies.group import SubscriptionGroupConfig
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError
from rmq.remoting.client import RemotingClient
from tests.support.consumers import bodies_of
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually

GROUP = SubscriptionGroupConfig(group_name="readers", retry_max_times=3, consume_broadcast_enable=False)


class Place:
    """A group with a leader, and who administrates it."""

    def __init__(self, cluster: GroupCluster, admin: AdminClient) -> None:
        self.cluster = cluster
        self.admin = admin
        self.leader = ""
        self.at = ""

    async def led(self) -> BrokerApp:
        self.leader = await self.cluster.led_by()
        self.at = f"{self.cluster.addresses[self.leader]}:10911"
        return self.cluster.members[self.leader]

    async def topic(self, name: str, queues: int = 3, perm: int = 6) -> None:
        await self.admin.create_and_update_topic(
            self.at, name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    async def delete(self, topic: str) -> None:
        answers = await self.admin.delete_topic_in_broker([self.at], topic)
        assert not answers.missing

    async def asked(self, code: int, **ext: str) -> None:
        client = RemotingClient(self.cluster.members[self.leader].world)
        answer = await client.request(self.at, Command(code, ext=dict(ext)), 5)
        assert answer.code == 0, answer.remark
        await client.close()

    async def lead_lost(self) -> BrokerApp:
        """The leader dies; the next one."""
        await self.cluster.kill(self.leader)
        return await self.led()

    async def send(self, topic: str, body: bytes, queue: int) -> None:
        """To whoever leads, as soon as the name server tells."""
        async with Producer("sender", namesrv=self.cluster.namesrv_addr) as producer:
            for _ in range(60):
                try:
                    await producer.send(Message(topic, body), queue=MessageQueue(topic, "group", queue))
                except RMQError:
                    await asyncio.sleep(0.5)
                else:
                    return
        raise AssertionError(f"{topic} took no message")

    async def consumed(self, topic: str, within: float = 120, least: int = 1) -> set[bytes]:
        """What a new group is given of a topic: so many messages, or more, within so many seconds."""
        options = {"namesrv": self.cluster.namesrv_addr, "consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
        async with bodies_of(topic, group=f"of-{topic}", **options) as got:
            await eventually(lambda: len(got) >= least, within)
        return got

    def topics_file(self, name: str) -> dict[str, object]:
        found = json.loads(self.cluster.simulation.nodes[name].files.read("/store/config/topics.json"))
        assert isinstance(found, dict)
        return found


@asynccontextmanager
async def place(seed: int = 3, **settings: str) -> AsyncIterator[Place]:
    """A group with a leader. Nobody copies tables from it: what a member has, it has from the log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "_GROUP_FIRST", 1e9)
        async with (
            GroupCluster(seed=seed, settings=settings) as cluster,
            AdminClient(namesrv=cluster.namesrv_addr) as admin,
        ):
            made = Place(cluster, admin)
            await made.led()
            yield made
