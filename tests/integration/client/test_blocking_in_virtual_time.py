"""The blocking clients with a cluster in virtual time: what takes hours takes none, and nothing passes by itself."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from rmq import (
    AdminClient,
    ClientError,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReplyTimeout,
    RMQError,
    ScheduledPullConsumer,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from rmq.testing.simloop import SimLoop
from rmq.testing.simworld import Simulation


class Scene:
    """A cluster on a loop that runs only within blocking calls."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.simulation = Simulation(1, loop=self.loop)
        self.world: World = self.simulation.node("one").world
        self.made = self.simulation.bridge()
        self.cluster = Cluster("/cluster", world=self.world)
        self.made.run(self.cluster.start())

    @contextmanager
    def silence(self) -> Iterator[None]:
        """No byte of what is said meanwhile arrives before its end."""
        address = self.simulation.nodes["one"].address
        self.simulation.net.cut(address, address)
        yield
        self.simulation.net.heal()

    @property
    def how(self) -> dict[str, Any]:
        return {"namesrv": self.cluster.namesrv_addr, "world": self.world}


@pytest.fixture(name="s")
def make_scene() -> Iterator[Scene]:
    before = set(threading.enumerate())
    scene = Scene()
    yield scene
    scene.made.run(scene.cluster.stop())
    scene.made.close()
    assert not scene.loop.unhandled
    assert set(threading.enumerate()) <= before


def test_what_is_sent_is_found_and_times_are_those_of_the_world(s: Scene) -> None:
    with Producer("p", **s.how) as producer, PullConsumer("c", **s.how) as consumer, AdminClient(**s.how) as admin:
        admin.create_and_update_topic(s.cluster.broker_addr, "T", read_queue_nums=1, write_queue_nums=1)
        result = producer.send(Message("T", b"one", keys="k"))
        s.made.advance(60.0)
        future = producer.send_async(Message("T", b"two"))
        assert (result.send_status, future.result(10.0).send_status) == (SendStatus.SEND_OK,) * 2
        [queue] = consumer.fetch_subscribe_message_queues("T")
        one, two = consumer.pull(queue, "*", 0, 32).messages
        assert (one.body, two.body) == (b"one", b"two")
        assert 60_000 <= two.store_timestamp - one.store_timestamp < 61_000


def test_a_send_that_nobody_answers_ends_when_its_time_is_over(s: Scene) -> None:
    with Producer("p", retry_times_when_send_failed=0, **s.how) as producer:
        producer.send(Message("TBW102", b"the way is known"))
        with s.silence():
            began = s.loop.time()
            with pytest.raises(RMQError, match="no answer"):
                producer.send(Message("TBW102", b"lost"), timeout=5.0)
            assert 5.0 <= s.loop.time() - began < 5.1
            future = producer.send_async(Message("TBW102", b"lost, too"), timeout=7.0)
            with pytest.raises(TimeoutError):
                future.result(1.0)  # of virtual time
            assert isinstance(future.exception(), RMQError)
            assert 12.0 <= s.loop.time() - began < 12.3


def test_a_client_is_closed_while_its_sends_wait(s: Scene) -> None:
    producer = Producer("p", retry_times_when_send_async_failed=0, **s.how)
    producer.start()
    producer.send(Message("TBW102", b"the way is known"))
    with s.silence():
        futures = [producer.send_async(Message("TBW102", b"%d" % number), timeout=5.0) for number in range(3)]
        producer.shutdown()
    assert all(isinstance(future.exception(0), RMQError) for future in futures)


def test_listeners_wait_and_send_in_virtual_time_and_are_waited_for(s: Scene) -> None:
    seen: list[tuple[bytes, int]] = []
    answered: list[Future[SendResult]] = []
    with Producer("p", **s.how) as producer:
        producer.send(Message("TBW102", b"the topic is there"))
        consumer = PushConsumer(
            "g", consume_from_where="CONSUME_FROM_FIRST_OFFSET", consume_thread_min=4, consume_thread_max=4,
            await_termination_when_shutdown=120.0, **s.how,
        )  # fmt: skip

        @consumer.on("Work")
        def work(message: MessageExt) -> None:
            began = s.world.clock.now_ms()
            s.made.advance(60.0)
            result = producer.send(Message("Done", message.body))
            assert result.send_status is SendStatus.SEND_OK
            answered.append(producer.send_async(Message("Done", message.body)))
            answered[-1].result(10.0)
            seen.append((message.body, s.world.clock.now_ms() - began))

        with pytest.raises(ClientError, match="no virtual time passes"):
            consumer.run()
        with consumer:
            for number in range(8):
                producer.send(Message("Work", b"%d" % number))
            s.made.advance(20.0)
            assert not seen
            s.made.advance(150.0)
            assert sorted(body for body, _ in seen) == sorted(b"%d" % number for number in range(8))
            assert all(60_000 <= took < 61_000 for _, took in seen)
            producer.send(Message("Work", b"under way"))
            s.made.advance(5.0)
        assert seen[-1][0] == b"under way"  # the shutdown has waited for it
        assert all(future.done() for future in answered)


def test_requests_are_answered_by_listeners_on_threads(s: Scene) -> None:
    consumer = PushConsumer("answering", **s.how)

    @consumer.on("TBW102")
    def answer(message: MessageExt) -> None:
        if message.body == b"slow":
            s.made.advance(10.0)
        assert consumer.reply(message, b"re:" + message.body).ok

    with Producer("p", **s.how) as producer:
        with consumer:
            assert producer.request(Message("TBW102", b"a"), timeout=30.0).body == b"re:a"
            told: list[Future[MessageExt]] = []
            future = producer.request_async(Message("TBW102", b"b"), told.append)
            assert future.result(30.0).body == b"re:b"
            s.made.advance(0.1)
            assert told == [future]
            with pytest.raises(ReplyTimeout, match="no reply in 2 s"):
                producer.request(Message("TBW102", b"slow"), timeout=2.0)
            with pytest.raises(ClientError, match="request takes a Message, not int"):
                producer.request_async(5).result(1.0)  # type: ignore[arg-type]
        left = producer.request_async(Message("TBW102", b"nobody is there"), timeout=3.0)
    assert isinstance(left.exception(0), ReplyTimeout)  # the shutdown has waited for it


def test_messages_are_polled_and_looped_over_on_threads(s: Scene) -> None:
    with Producer("p", **s.how) as producer:
        for number in range(5):
            sent = producer.send(Message("TBW102", b"%d" % number), selector=lambda queues, *_: queues[0])
        consumer = LitePullConsumer("g", consume_from_where="CONSUME_FROM_FIRST_OFFSET", **s.how)
        consumer.subscribe("TBW102")
        with consumer:
            seen = []
            for message in consumer:
                seen.append(message.body)
                if len(seen) == 3:
                    break
            assert seen == [b"0", b"1", b"2"]
            assert [message.body for message in consumer.poll(1.0)] == [b"2", b"3", b"4"]
            assert consumer.poll(10.0) == []
            consumer.seek_to_begin(sent.message_queue)
            assert next(iter(consumer)).body == b"0"
            consumer.commit([sent.message_queue])
            assert consumer.committed(sent.message_queue) == 1


def test_queues_are_pulled_by_functions_on_threads_which_may_end_the_consumer(s: Scene) -> None:
    consumer = ScheduledPullConsumer("g", **s.how)
    got: list[bytes] = []

    @consumer.on("TBW102")
    def pull(queue: MessageQueue) -> float:
        offset = max(0, consumer.fetch_consume_offset(queue))
        result = consumer.pull(queue, "*", offset)
        got.extend(message.body for message in result.messages)
        consumer.update_consume_offset(queue, result.next_begin_offset)
        if b"end" in got:
            consumer.shutdown()
        return 5.0

    with Producer("p", **s.how) as producer:
        consumer.start()
        for body in (b"a", b"b"):
            producer.send(Message("TBW102", body))
        s.made.advance(30.0)
        assert sorted(got) == [b"a", b"b"]
        producer.send(Message("TBW102", b"end"))
        s.made.advance(60.0)
        with pytest.raises(ClientError, match="is not started"):
            consumer.pull(MessageQueue("TBW102", "broker-0", 0), "*", 0)


def test_what_a_broker_does_after_minutes_comes_when_time_is_advanced(s: Scene) -> None:
    """Delay levels, retries and the check of a transaction, without a second of waiting."""
    got: list[tuple[bytes, int]] = []
    asked: list[bytes] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT

    with TransactionProducer("tx", check, **s.how) as producer:
        producer.send(Message("T", b"first"))
        consumer = PushConsumer("g", consume_from_where="CONSUME_FROM_FIRST_OFFSET", **s.how)

        @consumer.on("T")
        def fails_once(message: MessageExt) -> None:
            got.append((message.body, message.reconsume_times))
            if not message.reconsume_times:
                raise ValueError("not now")

        with consumer:
            producer.send(Message("T", b"in a minute", delay_level=5))
            producer.send_in_transaction(Message("T", b"unknown"), lambda message: TransactionState.UNKNOWN)
            s.made.advance(50.0)
            assert got == [(b"first", 0), (b"first", 1)]
            s.made.advance(80.0)
            assert asked == [b"unknown"]
            assert sorted(got) == sorted((body, n) for body in (b"first", b"in a minute", b"unknown") for n in (0, 1))


def test_a_rebalance_that_fails_for_one_reason_is_told_of_once(s: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with PullConsumer("c", **s.how) as consumer:
        with pytest.raises(ClientError, match="the topic Nope does not exist"):
            consumer.pull(MessageQueue("Nope", "broker-0", 0), "*", 0, 32)
        s.made.advance(120.0)
    told = [record for record in caplog.records if "rebalance of group c" in record.message]
    assert [record.levelname for record in told if record.levelno > logging.DEBUG] == ["WARNING"]


def test_clients_that_were_forgotten_are_stopped_with_their_loop() -> None:
    scene = Scene()
    producer = Producer("p", **scene.how)
    producer.start()
    scene.made.run(scene.cluster.stop())
    with pytest.warns(ResourceWarning, match="<Producer p, .*> was not shut down"):
        scene.made.close()
    with pytest.raises(RMQError, match="is shut down"):
        producer.send(Message("TBW102", b"too late"))


class _Noted(dict[str, str]):
    """Properties of a class of the application's, which notes whether a loop runs where they are read."""

    def __init__(self, read: list[bool]) -> None:
        super().__init__(a="b")
        self._read = read

    def items(self) -> Any:
        self._read.append(asyncio._get_running_loop() is not None)
        return super().items()


@pytest.mark.parametrize("auto_batch", [False, True])
def test_what_a_message_is_made_of_is_read_on_the_callers_thread(s: Scene, auto_batch: bool) -> None:
    with Producer("pg", auto_batch=auto_batch, **s.how) as producer:

        def message(read: list[bool]) -> Message:
            made = Message("T", b"x")
            made.properties = _Noted(read)
            return made

        ways: list[Any] = [producer.send, lambda one: producer.send_async(one).result(), producer.send_oneway]
        for send in ways:
            read: list[bool] = []
            send(message(read))
            assert read
            assert not any(read)
