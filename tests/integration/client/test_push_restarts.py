"""The push consumer in clustering mode: brokers and consumers that start again, whole cluster in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from rmq.aio import (
    MessageExt,
)
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")


@in_virtual_time
async def test_a_broker_that_comes_back_elsewhere_serves_on() -> None:
    async with scene() as s:
        got: set[str] = set()
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.add(message.msg_id)

        async with consumer:
            sent = set(await s.send(8))
            await eventually(lambda: got == sent)
            before = s.cluster.broker_addr
            await s.cluster.stop_broker(s.cluster.brokers[0])
            await asyncio.sleep(5)
            await s.cluster.start_broker(0)
            assert s.cluster.broker_addr != before
            await asyncio.sleep(31)
            sent |= set(await s.send(8))
            await eventually(lambda: got == sent, within=35)


@in_virtual_time
async def test_a_broker_that_restarts_learns_of_its_consumers_at_once() -> None:
    async with scene(listenPort="20911") as s:
        got: set[str] = set()
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.add(message.msg_id)

        async with consumer:
            sent = set(await s.send(8))
            await eventually(lambda: got == sent)
            await s.cluster.stop_broker(s.cluster.brokers[0])
            await s.cluster.start_broker(0)
            sent |= set(await s.send(8))
            assert await eventually(lambda: got == sent) < 10


@in_virtual_time
async def test_a_consumer_starts_again_after_its_shutdown() -> None:
    async with scene() as s:
        got: set[str] = set()
        consumer = s.consumer()

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            got.add(message.msg_id)

        sent: set[str] = set()
        for _ in range(3):
            sent.update(await s.send(4))
            async with consumer:
                await eventually(lambda: len(got) == len(sent))
            assert not consumer.assignment
        assert got == sent
