"""A client used on another event loop than it was started on: one line says so at once, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from rmq import TransactionState
from rmq.aio import (
    AdminClient,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    ScheduledPullConsumer,
    TransactionProducer,
)
from rmq.protocol.errors import ClientError
from rmq.runtime import patience
from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import PATIENCE

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
        return await asyncio.wait_for(waited, PATIENCE)

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


def _told(namesrv: str, group: str, got: asyncio.Queue[bytes]) -> PushConsumer:
    made = PushConsumer(group, namesrv=namesrv, instance_name="shared", consume_from_where="CONSUME_FROM_FIRST_OFFSET")

    @made.on("Twice")
    async def handle(message: MessageExt) -> None:
        got.put_nowait(message.body)

    return made


def test_one_id_has_one_member_of_a_group_whatever_its_loop(cluster: BlockingCluster) -> None:
    """Two would have the same share of the queues: each message came twice."""
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def second() -> None:
        with pytest.raises(
            ClientError, match=r"^the consumer group once already has a consumer with client id .*@shared"
        ):
            await _told(cluster.namesrv_addr, "once", got).start()
        async with _told(cluster.namesrv_addr, "another", asyncio.Queue()):
            pass

    async def first() -> None:
        consumer = _told(cluster.namesrv_addr, "once", got)
        async with consumer, Producer("pg", namesrv=cluster.namesrv_addr, send_msg_timeout=PATIENCE) as producer:
            await asyncio.to_thread(asyncio.run, second())
            for number in range(8):
                await producer.send(Message("Twice", b"%d" % number))
            async with patience.timeout(PATIENCE):
                bodies = [await got.get() for _ in range(8)]
        await asyncio.to_thread(asyncio.run, again())
        assert len(set(bodies)) == 8

    async def again() -> None:
        """It is free when the first has left, and when its loop has ended without a word."""
        await _told(cluster.namesrv_addr, "once", got).start()

    asyncio.run(first())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(again())
        gc.collect()


def test_a_reply_finds_who_asked_on_another_loop(cluster: BlockingCluster) -> None:
    """A broker knows the connections of a client id, and hands a reply to one of them: both loops ask."""
    options: dict[str, Any] = {"namesrv": cluster.namesrv_addr, "instance_name": "asking", "send_msg_timeout": PATIENCE}

    async def ask(producer: Producer) -> None:
        for _ in range(3):
            reply = await producer.request(Message("Asked", b"how?"), timeout=PATIENCE)
            assert reply.body == b"so"

    async def second() -> None:
        async with Producer("asks", **options) as producer:
            await ask(producer)
            asked.set()
            await asyncio.to_thread(answered.wait, PATIENCE)

    async def first() -> None:
        replier = PushConsumer("replies", namesrv=cluster.namesrv_addr, consume_from_where="CONSUME_FROM_FIRST_OFFSET")

        @replier.on("Asked")
        async def handle(message: MessageExt) -> None:
            await replier.reply(message, b"so")

        async with Producer("asks", **options) as producer, replier:
            await ask(producer)
            other = asyncio.create_task(asyncio.to_thread(asyncio.run, second()))
            await asyncio.to_thread(asked.wait, PATIENCE)
            try:
                await ask(producer)
            finally:
                answered.set()
                await other

    asked, answered = threading.Event(), threading.Event()
    asyncio.run(first())
