"""Messages by kind: what is told apart, what is left, and that no counter goes back."""

from __future__ import annotations

from rmq.broker.kinds import DELAY, FIFO, NORMAL, SIZE_BOUNDS, MessageKinds
from rmq.broker.store.state import Put, Queue
from rmq.remoting.metrics import Histogram

HOST = bytes(8)


def put(topic: str, size: int, host: bytes = HOST) -> Put:
    return Put(Queue(topic, 0), bytes(size), b"", 0, 0, 0, host, host, 0, 0, 0, ())


def test_what_is_left_is_normal() -> None:
    kinds = MessageKinds()
    assert list(kinds.numbers("T", 5)) == [(NORMAL, 5)]
    kinds.count(DELAY, [put("T", 100), put("T", 2000)])
    kinds.count(FIFO, [put("T", 10)])
    assert dict(kinds.numbers("T", 5)) == {NORMAL: 2, DELAY: 2, FIFO: 1}
    overhead = Queue("T", 0).overhead
    assert dict(kinds.sizes("T", 10_000))[DELAY] == 2100 + 2 * overhead
    assert list(kinds.numbers("SCHEDULE_TOPIC_XXXX", 7)) == [(DELAY, 7)]
    assert list(kinds.numbers("Empty", 0)) == []


def test_sizes_are_those_of_records_whatever_the_hosts() -> None:
    kinds = MessageKinds()
    kinds.count(FIFO, [put("T", 0, bytes(20))])
    assert dict(kinds.sizes("T", 1000))[FIFO] == Queue("T", 0).overhead + 24


def test_buckets_are_divided_as_well() -> None:
    kinds = MessageKinds()
    total = Histogram(SIZE_BOUNDS)
    for size in (100, 200, 2000, 2000):
        total.add(size + Queue("T", 0).overhead)
    kinds.count(DELAY, [put("T", 200), put("T", 2000)])
    told = dict(kinds.histograms("T", total))
    assert told[NORMAL].values()[:2] == told[DELAY].values()[:2] == [1, 1]
    assert told[NORMAL].sum + told[DELAY].sum == total.sum
    assert told[NORMAL].count == 2


def test_a_counter_never_goes_back() -> None:
    """All messages are counted at another moment than those of a kind."""
    kinds = MessageKinds()
    kinds.count(DELAY, [put("T", 1)])
    assert dict(kinds.numbers("T", 10)) == {NORMAL: 9, DELAY: 1}
    kinds.count(DELAY, [put("T", 1)])
    assert dict(kinds.numbers("T", 10)) == {NORMAL: 9, DELAY: 2}
    assert dict(kinds.numbers("T", 12)) == {NORMAL: 10, DELAY: 2}
    kinds.forget("T")
    assert list(kinds.numbers("T", 1)) == [(NORMAL, 1)]
