"""Coroutine functions given to blocking clients run on a thread of their own: one that blocks stops no client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from rmq import (
    ClientError,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ScheduledPullConsumer,
    TransactionProducer,
    TransactionState,
)
from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import PATIENCE

FIRST = "CONSUME_FROM_FIRST_OFFSET"
PATIENT: dict[str, Any] = {"send_msg_timeout": PATIENCE, "mq_client_api_timeout": PATIENCE}
THERE = "rmq-coroutines"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    settings = {"transactionCheckInterval": "100", "transactionTimeOut": "100"}
    with BlockingCluster(tmp_path_factory.mktemp("cluster"), settings=settings) as made:
        yield made


def here() -> str:
    return threading.current_thread().name


@pytest.mark.parametrize("orderly", [False, True])
def test_a_listener_that_blocks_stops_no_client(cluster: BlockingCluster, orderly: bool) -> None:
    free, begun, over = threading.Event(), threading.Event(), threading.Event()
    threads: list[str] = []
    topic = f"Blocks{orderly}"
    consumer = PushConsumer(topic, namesrv=cluster.namesrv_addr, consume_from_where=FIRST, orderly=orderly)

    @consumer.on(topic)
    async def handle(message: MessageExt) -> None:
        begun.set()
        threads.append(here())
        free.wait(PATIENCE)
        over.set()

    assert handle.__name__ == "handle", "the application has its function back"
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
        producer.send(Message(topic, b"x"))
        with consumer:
            assert begun.wait(PATIENCE)
            for number in range(20):
                assert producer.send(Message("Others", b"%d" % number)).ok
            assert consumer.lag()
            free.set()
            assert over.wait(PATIENCE)
    assert threads == [THERE]


def test_a_listener_may_make_blocking_calls_and_end_its_consumer(cluster: BlockingCluster) -> None:
    sent: list[bool] = []
    ended = threading.Event()
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
        consumer = PushConsumer("calls", namesrv=cluster.namesrv_addr, consume_from_where=FIRST)

        async def handle(message: MessageExt) -> None:
            sent.append(producer.send(Message("Others", b"y")).ok)
            consumer.shutdown()
            ended.set()

        consumer.subscribe("Calls")
        consumer.register_message_listener(handle)
        producer.send(Message("Calls", b"x"))
        consumer.start()
        assert ended.wait(PATIENCE)
        consumer.shutdown()
    assert sent == [True]


def queue_listener(cluster: BlockingCluster, told: Callable[[], None]) -> Any:
    async def listener(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        told()

    made = PushConsumer("queues", namesrv=cluster.namesrv_addr, message_queue_listener=listener)
    made.on("Others")(lambda message: None)
    return made


def scheduled(cluster: BlockingCluster, told: Callable[[], None]) -> Any:
    made = ScheduledPullConsumer("scheduled", namesrv=cluster.namesrv_addr)

    @made.on("Others")
    async def pull(queue: MessageQueue) -> float:
        told()
        return 60

    return made


def offsets(cluster: BlockingCluster, told: Callable[[], None]) -> Any:
    class Store:
        async def read(self, group: str, queue: MessageQueue) -> int | None:
            told()
            return None

        async def write(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
            told()

    made = PushConsumer("stored", namesrv=cluster.namesrv_addr, offset_store=Store())
    made.on("Others")(lambda message: None)
    return made


class Check:
    """Called as a function: an object of that kind."""

    def __init__(self, told: Callable[[], None]) -> None:
        self.told = told

    async def __call__(self, message: MessageExt) -> TransactionState:
        self.told()
        return TransactionState.COMMIT


class Asked(TransactionProducer):
    """Leaves a transaction open, which its broker asks for."""

    def start(self) -> None:
        super().start()
        self.send_in_transaction(Message("Half", b"x"), lambda message: TransactionState.UNKNOWN)


def transactions(cluster: BlockingCluster, told: Callable[[], None]) -> Any:
    return Asked("checked", Check(told), namesrv=cluster.namesrv_addr, **PATIENT)


@pytest.mark.parametrize("make", [queue_listener, scheduled, offsets, transactions])
def test_whatever_is_a_coroutine_function_runs_there(
    cluster: BlockingCluster, make: Callable[[BlockingCluster, Callable[[], None]], Any]
) -> None:
    with Producer("pg", namesrv=cluster.namesrv_addr, **PATIENT) as producer:
        producer.send(Message("Others", b"x"))
    threads: list[str] = []
    called = threading.Event()

    def told() -> None:
        threads.append(here())
        called.set()

    with make(cluster, told):
        assert called.wait(PATIENCE)
    assert set(threads) == {THERE}


def test_an_offset_store_that_fails_is_named_by_its_own_class(cluster: BlockingCluster) -> None:
    class Broken:
        async def read(self, group: str, queue: MessageQueue) -> int | None:
            raise ValueError("no such table")

        async def write(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
            return None

    with (
        PullConsumer("broken", namesrv=cluster.namesrv_addr, offset_store=Broken()) as consumer,
        pytest.raises(ClientError, match=r"^read of the offset store Broken raised ValueError: no such table$"),
    ):
        consumer.fetch_consume_offset(consumer.fetch_subscribe_message_queues("Others")[0])
