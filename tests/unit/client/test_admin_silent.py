"""A broker that does not answer is waited for once, not with every question."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmq.aio import AdminClient
from rmq.protocol.bodies.stats import TopicOffset, TopicStatsTable
from rmq.protocol.command import Command
from rmq.protocol.errors import RequestTimeout
from rmq.protocol.queue import MessageQueue
from tests.support.virtual import in_virtual_time, one_world


class Brokers:
    """Two brokers, of which one may be silent; it counts what that one is asked."""

    def __init__(self) -> None:
        self.name_servers = self
        self.loop = None
        self.silent = True
        self.asked = 0

    async def route(self, topic: str, limit: float) -> Any:
        return SimpleNamespace(
            broker_datas=[SimpleNamespace(broker_name=name, broker_addrs={0: name}) for name in ("loud", "silent")]
        )

    async def call(
        self, address: str, code: int, header: object, body: bytes, *, timeout: float, accept: object
    ) -> Command:
        if address == "silent":
            self.asked += 1
            if self.silent:
                await asyncio.sleep(timeout)
                raise RequestTimeout("no answer")
        table = TopicStatsTable({MessageQueue("T", address, 0): TopicOffset()})
        return Command(0, body=table.encode())


@in_virtual_time
async def test_a_silent_broker_is_waited_for_once() -> None:
    loop = asyncio.get_running_loop()
    brokers, admin = Brokers(), AdminClient(world=one_world(), namesrv="n:1")
    admin._instance = cast(Any, brokers)
    began = loop.time()
    for _ in range(1000):
        stats = await admin.topic_stats("T")
        assert stats.missing == {"silent": "no answer"}
        assert [queue.broker_name for queue in stats.offset_table] == ["loud"]
    assert (brokers.asked, loop.time() - began) == (1, pytest.approx(3))
    brokers.silent = False
    await asyncio.sleep(10)
    stats = await admin.topic_stats("T")
    assert (stats.missing, len(stats.offset_table), brokers.asked) == ({}, 2, 2)
    assert (await admin.topic_stats("T")).missing == {}
    admin._instance = None
