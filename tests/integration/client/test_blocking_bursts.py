"""Very many sends at once from threads: each waits for its turn, is stored once, and leaves its place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from rmq import ClientError, Message, Producer, SendResult
from rmq.runtime.bridge import Waiter
from rmq.runtime.thread_bridge import ThreadBridge, bridge
from rmq.testing.cluster import BlockingCluster
from tests.support.daemons import PATIENCE

#: Ten under way at once, on a busy machine.
NARROW: dict[str, Any] = {
    "back_pressure_for_async_send_num": 10,
    "send_msg_timeout": PATIENCE,
    "mq_client_api_timeout": PATIENCE,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def producer(cluster: BlockingCluster) -> Iterator[Producer]:
    with Producer("pg", namesrv=cluster.namesrv_addr, **NARROW) as made:
        yield made


def stored(producer: Producer, topic: str) -> int:
    return sum(producer.max_offset(queue) for queue in producer.fetch_publish_message_queues(topic))


def places(producer: Producer) -> int:
    """Places that are taken, as the loop sees it when it is through with all that was ended."""

    async def there() -> int:
        return producer._client._sender.window.used

    return bridge().run(there())


def test_send_async_waits_for_its_turn_on_a_new_producer_too(producer: Producer) -> None:
    futures = [producer.send_async(Message("Async", b"x")) for _ in range(2_000)]
    assert len({future.result(PATIENCE).msg_id for future in futures}) == 2_000
    assert stored(producer, "Async") == 2_000
    assert places(producer) == 0


def test_threads_share_the_turns(producer: Producer) -> None:
    def send(_: int) -> list[bool]:
        futures = [producer.send_async(Message("Threads", b"x")) for _ in range(100)]
        return [producer.send(Message("Threads", b"x")).ok, *(future.result(PATIENCE).ok for future in futures)]

    with ThreadPoolExecutor(8) as threads:
        outcomes = [ok for oks in threads.map(send, range(16)) for ok in oks]
    assert outcomes == [True] * 16 * 101
    assert stored(producer, "Threads") == len(outcomes)
    assert places(producer) == 0


def test_callbacks_wait_on_their_own_threads(producer: Producer) -> None:
    """Each sends two more: were the loop to wait for them, nothing would ever end."""
    ended = threading.Semaphore(0)

    def more(future: Future[SendResult]) -> None:
        for _ in range(2):
            producer.send_async(Message("Callbacks", b"x"), lambda last: ended.release())

    for _ in range(100):
        producer.send_async(Message("Callbacks", b"x"), more)
    for _ in range(200):
        assert ended.acquire(timeout=PATIENCE)
    assert stored(producer, "Callbacks") == 300


def test_the_loop_itself_is_never_made_to_wait(producer: Producer) -> None:
    async def listener() -> list[Future[SendResult]]:
        return [producer.send_async(Message("OnTheLoop", b"%d" % number)) for number in range(200)]

    futures = bridge().run(listener())
    assert len({future.result(PATIENCE).msg_id for future in futures}) == 200
    assert stored(producer, "OnTheLoop") == 200
    assert places(producer) == 0


def test_what_is_refused_or_cancelled_leaves_its_place(producer: Producer) -> None:
    producer.send(Message("Left", b"x"))
    for _ in range(30):
        with pytest.raises(ClientError):
            producer.send_async(Message("Left", b""))
        with pytest.raises(ClientError):
            producer.send(Message("Left", b"x"), selector=lambda queues, message, arg: "no queue")  # type: ignore[arg-type,return-value]
        producer.send_async(Message("Left", b"x")).cancel()
    assert producer.send(Message("Left", b"x")).ok
    assert places(producer) == 0


def test_a_send_that_waits_for_being_written_blames_no_loop(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that reads nothing for a while costs its time, and the answer as much again."""
    waits: list[float | None] = []
    wait = ThreadBridge.wait

    def noted(made: ThreadBridge, waiter: Waiter[Any], seconds: float | None = None) -> Any:
        waits.append(seconds)
        return wait(made, waiter, seconds)

    monkeypatch.setattr(ThreadBridge, "wait", noted)
    for _ in range(2):  # without a route, and with one
        assert producer.send(Message("Written", b"x"), timeout=PATIENCE).ok
    assert all(seconds is not None and seconds > 1.5 * PATIENCE for seconds in waits), waits
    assert len(waits) == 2
