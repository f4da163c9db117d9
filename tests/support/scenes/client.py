"""A cluster, a producer and an admin client in virtual time, for the tests of the SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rmq.aio import AdminClient, Message, Producer, PullConsumer, PushConsumer
from rmq.testing.cluster import Cluster
from tests.support.virtual import one_world

__all__ = ["Scene", "scene"]

FIRST = "CONSUME_FROM_FIRST_OFFSET"


class Scene:
    def __init__(self, cluster: Cluster, producer: Producer, admin: AdminClient) -> None:
        self.cluster = cluster
        self.producer = producer
        self.admin = admin

    def consumer(self, group: str = "g", **options: Any) -> PushConsumer:
        options.setdefault("consume_from_where", FIRST)
        return PushConsumer(group, namesrv=self.cluster.namesrv_addr, world=self.cluster.world, **options)

    def puller(self, group: str = "g", **options: Any) -> PullConsumer:
        return PullConsumer(group, namesrv=self.cluster.namesrv_addr, world=self.cluster.world, **options)

    async def topic(self, topic: str = "T", queues: int = 4) -> None:
        await self.admin.create_and_update_topic(
            self.cluster.broker_addr, topic, read_queue_nums=queues, write_queue_nums=queues
        )

    async def send(self, count: int, topic: str = "T", **how: Any) -> list[str]:
        return [(await self.producer.send(Message(topic, b"%d" % i, keys=f"k{i}", **how))).msg_id for i in range(count)]

    async def diff(self, group: str = "g") -> dict[tuple[str, int], int]:
        """How far the group is behind, by queue."""
        stats = await self.admin.consume_stats(group)
        return {
            (queue.topic, queue.queue_id): one.broker_offset - one.consumer_offset
            for queue, one in stats.offset_table.items()
        }


@asynccontextmanager
async def scene(**settings: str) -> AsyncIterator[Scene]:
    world = one_world()
    async with (
        Cluster("/cluster", world=world, settings=settings) as cluster,
        Producer("pg", namesrv=cluster.namesrv_addr, world=world) as producer,
        AdminClient(namesrv=cluster.namesrv_addr, world=world) as admin,
    ):
        made = Scene(cluster, producer, admin)
        await made.topic()
        yield made
