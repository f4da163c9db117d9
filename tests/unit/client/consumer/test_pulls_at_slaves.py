"""A slave that keeps messages back, or has not got them, takes none from who asks it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from rmq.aio import Message, Producer, PushConsumer
from rmq.client.consumer.puller import Puller
from rmq.client.message import MessageQueue
from rmq.client.namespace import Namespace
from rmq.client.results import PullResult, PullStatus
from rmq.client.settings import ClientSettings
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.pull import PullMessageRequest, PullMessageResponse
from rmq.protocol.subscription import build
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time, one_world


class Slave:
    """Answers 20 with a remark and a next offset."""

    def __init__(self, broker_id: int, remark: str, following: int) -> None:
        self.broker_id = broker_id
        self.remark = remark
        self.following = following
        self.namespace = Namespace()
        self.settings = ClientSettings()
        self.world = one_world()
        self.suspected: list[str] = []
        self.suspect = self.suspected.append

    async def find_reader(self, queue: MessageQueue, suggested: int, *, timeout: float) -> tuple[str, int]:
        return "b:1", self.broker_id

    async def call(self, address: str, code: RequestCode, header: PullMessageRequest, **_: Any) -> Command:
        answer = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=self.following, min_offset=0, max_offset=90
        )
        return Command.request(code).reply(20, self.remark, header=answer)


def pulled(broker_id: int, remark: str, following: int) -> PullResult:
    puller = Puller(Slave(broker_id, remark, following), "g")  # type: ignore[arg-type]
    return asyncio.run(puller.pull(MessageQueue("T", "b", 0), build("T", "*"), 7, max_nums=32, timeout=1.0))


@pytest.mark.parametrize(
    ("remark", "following", "words"),
    [("FOUND", 39, "does not serve reads"), ("OFFSET_OVERFLOW_BADLY", 7, "not yet or no longer")],
)
def test_nothing_is_passed_over_and_nobody_asks_without_a_pause(remark: str, following: int, words: str) -> None:
    with pytest.raises(ResponseError, match=words):
        pulled(1, remark, following)


def test_what_a_filter_refuses_is_passed_over() -> None:
    for broker_id in (0, 1):
        result = pulled(broker_id, "NO_MATCHED_MESSAGE", 39)
        assert (result.status, result.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 39)


@in_virtual_time
async def test_a_handover_is_no_failure_of_a_consumer(caplog: pytest.LogCaptureFixture) -> None:
    """Its pulls reach the one that led until a moment ago once, and the next ones the one that leads."""
    got: list[bytes] = []
    async with GroupCluster(seed=6) as cluster, Producer("p", namesrv=cluster.namesrv_addr) as producer:
        consumer = PushConsumer("g", namesrv=cluster.namesrv_addr, consume_from_where="CONSUME_FROM_FIRST_OFFSET")

        @consumer.on("T")
        async def take(message: Message) -> None:
            got.append(bytes(message.body))

        leader = await cluster.led_by()
        await producer.send(Message("T", b"0"))
        await consumer.start()
        caplog.clear()
        for number in range(1, 60):
            if number == 20:
                cluster.driver(leader).transfer(next(name for name in cluster.names if name != leader))
            await producer.send(Message("T", b"%d" % number))
            await asyncio.sleep(0.1)
        await eventually(lambda: len(got) == 60, 20)
        assert cluster.leader() != leader
        told = [one for one in caplog.records if one.name.startswith("rmq.client") and one.levelno >= logging.WARNING]
        await consumer.shutdown()
    assert [one.getMessage() for one in told] == []
