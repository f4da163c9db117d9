"""A client used on another event loop than it was started on: one line says so at once, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from rmq import TransactionState
from rmq.aio import (
    AdminClient,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ScheduledPullConsumer,
    TransactionProducer,
)
from rmq.protocol.errors import ClientError
from rmq.testing.cluster import BlockingCluster

Use = Callable[[Any], Awaitable[object]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def _push(namesrv: str) -> PushConsumer:
    made = PushConsumer("push", namesrv=namesrv)
    made.on("TBW102")(print)
    return made


def _lite(namesrv: str) -> LitePullConsumer:
    made = LitePullConsumer("lite", namesrv=namesrv)
    made.subscribe("TBW102")
    return made


def _scheduled(namesrv: str) -> ScheduledPullConsumer:
    made = ScheduledPullConsumer("scheduled", namesrv=namesrv)
    made.on("TBW102")(lambda queue: 60)
    return made


KINDS: dict[str, tuple[Callable[[str], Any], Use]] = {
    "producer": (
        lambda namesrv: Producer("pg", namesrv=namesrv, enable_msg_trace=True),
        lambda client: client.send(Message("T", "x")),
    ),
    "transactions": (
        lambda namesrv: TransactionProducer("tg", lambda _: TransactionState.COMMIT, namesrv=namesrv),
        lambda client: client.send_in_transaction(Message("T", "x"), lambda _: TransactionState.COMMIT),
    ),
    "push": (_push, lambda client: client.fetch_subscribe_message_queues("TBW102")),
    "lite": (_lite, lambda client: client.poll(0)),
    "pull": (
        lambda namesrv: PullConsumer("pull", namesrv=namesrv),
        lambda client: client.fetch_subscribe_message_queues("TBW102"),
    ),
    "scheduled": (_scheduled, lambda client: client.fetch_subscribe_message_queues("TBW102")),
    "admin": (lambda namesrv: AdminClient(namesrv=namesrv), lambda client: client.topic_list()),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_another_loop_than_its_own(cluster: BlockingCluster, kind: str) -> None:
    make, use = KINDS[kind]
    client = make(cluster.namesrv_addr)

    async def in_time(waited: Awaitable[object]) -> object:
        return await asyncio.wait_for(waited, 10)

    def elsewhere(call: Use) -> None:
        with asyncio.Runner() as other, pytest.raises(ClientError, match="was started on another event loop"):
            other.get_loop().run_until_complete(in_time(call(client)))

    with asyncio.Runner() as own:
        own.run(client.start())
        elsewhere(use)
        elsewhere(lambda one: one.start())
        elsewhere(lambda one: one.shutdown())
        own.run(in_time(use(client)))
    elsewhere(use)

    async def anew() -> None:
        await client.shutdown()
        async with client:
            await use(client)

    asyncio.run(in_time(anew()))
    gc.collect()  # what was left open warns here
