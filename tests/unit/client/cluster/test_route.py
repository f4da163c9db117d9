"""Queue lists from routes, and whose turn it is."""

from __future__ import annotations

import itertools
from collections import Counter

from rmq.client.cluster.route import PublishInfo, publish_queues, subscribe_queues
from rmq.client.message import MessageQueue
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData


def route(*brokers: tuple[str, int, dict[int, str]], order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[BrokerData(addrs, name, "c") for name, _, addrs in brokers],
        queue_datas=[QueueData(name, perm, 2, 0, 2) for name, perm, _ in brokers],
        order_topic_conf=order,
    )


def test_both_lists_are_sorted_whatever_the_order_of_registration() -> None:
    """Field case B037."""
    b = ("b", 6, {0: "x:1"})
    a = ("a", 6, {0: "y:1"})
    expected = [MessageQueue("T", name, i) for name in "ab" for i in range(2)]
    for given in ((a, b), (b, a)):
        assert publish_queues("T", route(*given)) == expected
        assert subscribe_queues("T", route(*given)) == expected


def test_sending_needs_write_permission_and_a_master_reading_needs_neither() -> None:
    data = route(("ro", 4, {0: "x:1"}), ("wo", 2, {0: "y:1"}), ("slave", 6, {1: "z:1"}))
    assert {q.broker_name for q in publish_queues("T", data)} == {"wo"}
    assert {q.broker_name for q in subscribe_queues("T", data)} == {"ro", "slave"}


def test_the_order_configuration_says_the_queues() -> None:
    data = route(("a", 4, {1: "x:1"}), order="b:1;a:2")
    assert publish_queues("T", data) == [MessageQueue("T", *q) for q in (("b", 0), ("a", 0), ("a", 1))]


def test_turns_stay_even_beyond_the_integers_of_java() -> None:
    """Field case B038."""
    queues = [MessageQueue("T", "a", i) for i in range(8)]
    for start in (2**31 - 3, 2**63 - 3):
        info = PublishInfo("T", queues, itertools.count(start))
        assert set(Counter(info.next_queue() for _ in range(80)).values()) == {10}


def test_a_retry_goes_to_another_broker_and_avoided_ones_come_last() -> None:
    info = PublishInfo("T", [MessageQueue("T", name, i) for name in "abc" for i in range(2)])
    assert info.brokers == {"a", "b", "c"}
    assert all(info.next_queue("a").broker_name != "a" for _ in range(20))
    assert all(info.next_queue("a", frozenset("b")).broker_name == "c" for _ in range(20))
    assert all(info.next_queue("a", frozenset("abc")).broker_name in "bc" for _ in range(20))
    alone = PublishInfo("T", [MessageQueue("T", "a", 0)])
    assert alone.next_queue("a", frozenset("a")).broker_name == "a"
