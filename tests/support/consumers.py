"""Consumers that keep what they are given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rmq.aio import Message, PushConsumer

__all__ = ["bodies_of"]


@asynccontextmanager
async def bodies_of(topic: str, namesrv: str, group: str = "keeps_bodies", **options: Any) -> AsyncIterator[set[bytes]]:
    """The bodies that a group is given of a topic, as they come.

    :param options: of the consumer.
    """
    got: set[bytes] = set()
    consumer = PushConsumer(group, namesrv=namesrv, **options)

    @consumer.on(topic)
    async def take(message: Message) -> None:
        got.add(bytes(message.body))

    await consumer.start()
    try:
        yield got
    finally:
        await consumer.shutdown()
