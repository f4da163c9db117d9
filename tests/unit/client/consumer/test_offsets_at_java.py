"""Offsets kept by a broker that has threads for them, as Java's has."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from rmq.client.consumer.offsets import RemoteBrokerOffsetStore
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConnectFailed, RequestTimeout, ResponseError
from rmq.protocol.headers.offset import UpdateConsumerOffsetRequest

QUEUES = [MessageQueue(topic, "broker-a", number) for topic in ("T1", "T2") for number in range(4)]


class JavaBroker:
    """Who has no table of a group's topic begins one with the offset that he brings, and stores it when he has done."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, int]] = {}
        self.asked = 0
        #: Not waited for.
        self.told: list[int] = []
        self.refuses: type[Exception] | None = None
        self.remoting = self.outages = self

    def level(self, error: Exception) -> int:
        return logging.DEBUG

    async def find_reader(self, queue: MessageQueue) -> tuple[str, bool]:
        return "127.0.0.1:10911", False

    async def call(self, address: str, code: RequestCode, header: UpdateConsumerOffsetRequest) -> Command:
        self.asked += 1
        if self.refuses is ResponseError:
            raise ResponseError(ResponseCode.NO_PERMISSION)
        if self.refuses is not None:
            raise self.refuses("it is silent")
        table = self.tables.get(header.topic, {})
        await asyncio.sleep(0)  # the other threads' turn
        table[header.queue_id] = header.commit_offset or 0
        self.tables[header.topic] = table
        return Command(ResponseCode.SUCCESS)

    async def oneway(self, address: str, command: Command) -> None:
        self.told.append(int(cast("dict[str, Any]", command.ext)["queueId"]))


def noted(broker: JavaBroker) -> RemoteBrokerOffsetStore:
    store = RemoteBrokerOffsetStore(cast("ClientInstance", broker), "g")
    for queue in QUEUES:
        store.update(queue, 7)
    return store


async def test_the_first_offsets_of_a_group_do_not_cost_one_another() -> None:
    broker = JavaBroker()
    store = noted(broker)
    assert await store.persist(QUEUES, wait=True) is None
    assert broker.tables == {topic: dict.fromkeys(range(4), 7) for topic in ("T1", "T2")}
    assert await store.persist(QUEUES, wait=True) is None
    assert broker.asked == 16


async def test_a_refused_offset_keeps_none_of_the_others_back() -> None:
    broker = JavaBroker()
    broker.refuses = ResponseError
    assert isinstance(await noted(broker).persist(QUEUES, wait=True), ResponseError)
    assert broker.asked == 8


async def test_a_silent_broker_is_waited_for_once_and_told_all_the_same() -> None:
    broker = JavaBroker()
    broker.refuses = RequestTimeout
    assert isinstance(await noted(broker).persist(QUEUES, wait=True), RequestTimeout)
    assert (broker.asked, broker.told) == (2, [1, 2, 3] * 2)


async def test_a_broker_that_is_away_is_looked_for_once() -> None:
    broker = JavaBroker()
    broker.refuses = ConnectFailed
    assert isinstance(await noted(broker).persist(QUEUES, wait=True), ConnectFailed)
    assert (broker.asked, broker.told) == (2, [])


async def test_what_went_meanwhile_is_not_kept_again() -> None:
    broker = JavaBroker()
    store = noted(broker)
    keeping = asyncio.ensure_future(store.persist(QUEUES[:4], wait=True))
    await asyncio.sleep(0)
    store.remove(QUEUES[1])
    store.update(QUEUES[2], 9)
    assert await keeping is None
    assert broker.tables == {"T1": {0: 7, 2: 9, 3: 7}}


class Deposed(JavaBroker):
    """The first address is that of a member that leads no longer, and says so to who asks it."""

    async def find_reader(self, queue: MessageQueue) -> tuple[str, bool]:
        return ("127.0.0.1:10912" if self.asked else "127.0.0.1:10911"), False

    async def call(self, address: str, code: RequestCode, header: UpdateConsumerOffsetRequest) -> Command:
        if address.endswith(":10911"):
            self.asked += 1
            raise ResponseError(ResponseCode.SERVICE_NOT_AVAILABLE)
        return await super().call(address, code, header)


async def test_what_a_leader_refuses_that_was_deposed_is_told_to_the_next_one() -> None:
    broker = Deposed()
    assert await noted(broker).persist(QUEUES[:2], wait=True) is None
    assert broker.tables == {"T1": {0: 7, 1: 7}}
