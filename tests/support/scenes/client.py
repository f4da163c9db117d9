"""A cluster, a producer and an admin client in virtual time, for the tests of the SDK."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from rmq.aio import AdminClient, LitePullConsumer, Message, Producer, PullConsumer, PushConsumer
from rmq.runtime.lockstep import on_loop
from rmq.testing.cluster import Cluster
from tests.support.virtual import one_world

__all__ = ["Kinds", "Scene", "as_plain", "scene"]

FIRST = "CONSUME_FROM_FIRST_OFFSET"


def as_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine listener as a plain one: it waits on its thread for what the coroutine does."""
    if not inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    def plain(*arguments: Any) -> Any:
        return on_loop(function(*arguments))

    return plain


class PlainConsumer(PushConsumer):
    """Its listeners run on threads, however they are written."""

    def on(self, *arguments: Any, **how: Any) -> Any:
        register = super().on(*arguments, **how)

        def registering(function: Any) -> Any:
            register(as_plain(function))
            return function

        return registering

    def register_message_listener(self, listener: Any, **how: Any) -> None:
        super().register_message_listener(as_plain(listener), **how)


class Kinds:
    """Which consumers scenes make: the fixture ``listeners`` runs a test with both."""

    coroutine: type[PushConsumer] = PushConsumer
    plain: type[PushConsumer] = PlainConsumer
    now: type[PushConsumer] = PushConsumer


class Scene:
    def __init__(self, cluster: Cluster, producer: Producer, admin: AdminClient) -> None:
        self.cluster = cluster
        self.producer = producer
        self.admin = admin

    def consumer(self, group: str = "g", **options: Any) -> PushConsumer:
        options.setdefault("consume_from_where", FIRST)
        return Kinds.now(group, namesrv=self.cluster.namesrv_addr, world=self.cluster.world, **options)

    def puller(self, group: str = "g", **options: Any) -> PullConsumer:
        return PullConsumer(group, namesrv=self.cluster.namesrv_addr, world=self.cluster.world, **options)

    def lite(self, group: str = "g", **options: Any) -> LitePullConsumer:
        options.setdefault("consume_from_where", FIRST)
        return LitePullConsumer(group, namesrv=self.cluster.namesrv_addr, world=self.cluster.world, **options)

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
