"""Our SDK pops from a Java 5.3.3 broker: what is done stays away, what is not comes again, in order if it is asked."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rmq import (
    AdminClient,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from tests.support.interop import Clusters, fresh, until
from tests.support.peers import Cluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Place:
    """A topic of a Java broker from which a group pops."""

    def __init__(self, cluster: Cluster, queues: int) -> None:
        self.cluster = cluster
        self.topic, self.group = fresh("pop"), fresh("g-pop")
        self.lock = threading.Lock()
        #: (body, tries so far, queue id) of each call.
        self.given: list[tuple[int, int, int]] = []
        with AdminClient(namesrv=cluster.namesrv) as admin:
            for broker in cluster.brokers:
                admin.create_and_update_topic(broker.addr, self.topic, read_queue_nums=queues, write_queue_nums=queues)
                admin.set_message_request_mode(broker.addr, self.topic, self.group)

    def send(self, count: int) -> None:
        with Producer(fresh("p"), namesrv=self.cluster.namesrv) as producer:
            producer.send([Message(self.topic, str(number), keys=str(number)) for number in range(count)])

    def note(self, message: MessageExt) -> tuple[int, int]:
        assert message.topic == self.topic
        assert "POP_CK" in message.properties, "it was not popped"
        with self.lock:
            self.given.append((int(message.body), message.reconsume_times, message.queue_id))
        return int(message.body), message.reconsume_times

    @contextmanager
    def consumer(self, listener: Any, **options: Any) -> Iterator[PushConsumer]:
        consumer = PushConsumer(
            self.group, namesrv=self.cluster.namesrv, client_rebalance=False, consume_from_where=FIRST,
            pop_invisible_time=5, **options,
        )  # fmt: skip
        consumer.on(self.topic)(listener)
        with consumer:
            yield consumer

    def tries(self) -> Counter[int]:
        return Counter(number for number, _, _ in self.given)


@pytest.fixture(scope="module")
def java(clusters: Clusters) -> Cluster:
    return clusters.get("java-5.3.3")


@pytest.fixture(scope="module")
def in_order(java: Cluster) -> Iterator[tuple[Place, float]]:
    """A group that has been given all of a topic in order, and when: what was not acknowledged comes again later."""
    place = Place(java, 2)

    def handle(message: MessageExt) -> ConsumeResult:
        number, tries = place.note(message)
        fails = number == 5 and tries < 2
        return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if fails else ConsumeResult.SUCCESS

    with Producer(fresh("p"), namesrv=java.namesrv) as producer:
        for number in range(60):
            producer.send(
                Message(place.topic, str(number)), selector=lambda queues, _, one: queues[one % 2], arg=number
            )
    with place.consumer(handle, orderly=True, suspend_current_queue_time=0.2):
        until(place.tries, lambda tries: len(tries) == 60)
        yield place, time.monotonic()


@pytest.mark.usefixtures("in_order")
def test_it_pops_from_a_java_broker(java: Cluster) -> None:
    place = Place(java, 4)
    held: list[PushConsumer] = []

    def handle(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
        number, tries = place.note(message)
        if number == 7 and tries == 0:
            return ConsumeResult.RECONSUME_LATER  # ten seconds
        if number == 8:
            context.delay_level_when_next_consume = -1
            return ConsumeResult.RECONSUME_LATER
        if number in (9, 10) and tries == 0:
            if number == 10:
                held[0].change_invisible_time(message, 60)
            threading.Event().wait(6)
        return ConsumeResult.SUCCESS

    place.send(200)
    with place.consumer(handle) as consumer:
        held.append(consumer)
        until(place.tries, lambda tries: len(tries) == 200 and tries[7] == 2 and tries[9] == 2)
        assert place.tries() == Counter(range(200)) + Counter((7, 9))
        assert sorted(tries for number, tries, _ in place.given if number in (7, 9)) == [0, 0, 1, 1]
        with AdminClient(namesrv=java.namesrv) as admin:
            (dead,) = until(lambda: admin.query_message(f"%DLQ%{place.group}", "8").messages, bool)
            assert dead.body == b"8"


def test_it_pops_in_order_from_a_java_broker(in_order: tuple[Place, float]) -> None:
    place, since = in_order
    threading.Event().wait(since + 6 - time.monotonic())  # longer than the invisible time
    assert place.tries() == Counter(range(60)) + Counter({5: 2})
    for queue in {queue for _, _, queue in place.given}:
        numbers = [number for number, _, of in place.given if of == queue]
        assert numbers == sorted(numbers)
