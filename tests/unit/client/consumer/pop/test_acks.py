"""Telling brokers what is done: together where they take it, again while it helps."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from rmq.client.consumer.pop.acks import Acks
from rmq.client.consumer.pop.queue import Open
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.outages import Outages
from rmq.protocol.bodies.pop import BatchAckMessageRequestBody, bits_of
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConnectFailed, ResponseError
from rmq.protocol.pop import ORDERED, Handle
from rmq.runtime.tasks import TaskOwner
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation


def done(offset: int, *, until: float = 1e9, queue: int = 0, revive: int = 3, mark: str = "0", start: int = 0) -> Open:
    message = MessageExt()
    message.topic, message.properties = "T", {}
    return Open(message, "T", Handle(start, 1_000, 60_000, revive, mark, "b", queue, offset), until)


class Broker:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self, batches: bool = True, away: int = 0) -> None:
        self.batches = batches
        self.away = away
        self.asked: list[tuple[int, Any]] = []
        self.clock = Simulation(1).node("a").clock
        self.tasks = TaskOwner("test")
        instance = SimpleNamespace(
            world=SimpleNamespace(clock=self.clock), call=self.call, find_master=self.find, outages=Outages()
        )
        self.acks = Acks(cast(ClientInstance, instance), "g", self.tasks)

    async def find(self, queue: MessageQueue) -> str:
        return f"{queue.broker_name}:1"

    async def call(self, address: str, code: int, header: Any, body: bytes = b"", **_: Any) -> Command:
        await asyncio.sleep(0.5)
        if self.away:
            self.away -= 1
            raise ConnectFailed("away")
        batch = code == RequestCode.BATCH_ACK_MESSAGE
        if batch and not self.batches:
            raise ResponseError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no", address)
        self.asked.append((code, BatchAckMessageRequestBody.decode(body) if batch else header))
        return Command.request(0, None).reply(ResponseCode.SUCCESS)

    @property
    def told(self) -> list[tuple[str, int, int]]:
        """(topic, queue, offset) of everything that it was told of."""
        found = []
        for code, what in self.asked:
            if code == RequestCode.ACK_MESSAGE:
                found.append((what.topic, what.queue_id, what.offset))
            else:
                for one in what.acks:
                    found += [(one.topic, one.queue_id, one.start_offset + bit) for bit in bits_of(one.bit_set)]
        return found

    async def end(self) -> None:
        await self.acks.drain(60)
        await self.tasks.close()


def test_what_comes_meanwhile_goes_together() -> None:
    async def scene() -> Broker:
        broker = Broker()
        broker.acks.ack([done(0)])
        for offset in range(1, 20):
            await asyncio.sleep(0)
            broker.acks.ack([done(offset, queue=offset % 2)])
        await broker.end()
        return broker

    broker = run(scene())
    assert sorted(broker.told) == sorted([("T", 0, 0), *(("T", offset % 2, offset) for offset in range(1, 20))])
    assert len(broker.asked) <= 2
    (batch,) = [what for code, what in broker.asked if code == RequestCode.BATCH_ACK_MESSAGE]
    assert {(one.consumer_group, one.retry, one.pop_time, one.revive_queue_id) for one in batch.acks} == {
        ("g", "0", 1_000, 3)
    }


def test_a_broker_without_batches_gets_one_each_and_in_order_is_never_in_one() -> None:
    async def scene() -> list[Broker]:
        brokers = Broker(batches=False), Broker()
        brokers[0].acks.ack([done(offset, mark="1") for offset in range(40)])
        brokers[1].acks.ack([done(offset, revive=ORDERED) for offset in range(3)])
        for broker in brokers:
            await broker.end()
        return list(brokers)

    for broker, topic, count in zip(run(scene()), ("%RETRY%g_T", "T"), (40, 3), strict=True):
        assert sorted(broker.told) == [(topic, 0, offset) for offset in range(count)]
        assert {code for code, _ in broker.asked} == {RequestCode.ACK_MESSAGE}


def test_what_lies_far_from_the_beginning_of_its_pop_is_no_long_bit_set() -> None:
    async def scene() -> Broker:
        broker = Broker()
        broker.acks.ack([done(1 << 40), done(0), done(1)])
        await broker.end()
        return broker

    assert sorted(run(scene()).told) == [("T", 0, 0), ("T", 0, 1), ("T", 0, 1 << 40)]


def test_without_an_answer_it_is_said_again_while_that_helps() -> None:
    async def scene() -> Broker:
        broker = Broker(away=2)
        now = broker.clock.monotonic()
        broker.acks.ack([done(0, until=now + 60), done(1, until=now + 2)])
        await broker.end()
        return broker

    assert run(scene()).told == [("T", 0, 0)]
