"""Ranges and portions: nothing lost, nothing twice, always the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq.protocol.queue import MessageQueue
from rmq.spark.source.admission import Admission, portion
from rmq.spark.source.ranges import Range, distribute, ranges_between

QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(3)]
sizes = st.lists(st.integers(0, 400), min_size=1, max_size=6)
maybe = st.one_of(st.none(), st.integers(1, 12))


def covered(tasks: list[list[Range]]) -> list[tuple[MessageQueue, int]]:
    return sorted((each.queue, offset) for task in tasks for each in task for offset in range(each.start, each.end))


@given(sizes, maybe, maybe, st.one_of(st.none(), st.integers(1, 300)))
def test_every_message_is_in_one_task(
    count: list[int], least: int | None, most: int | None, records: int | None
) -> None:
    if least and most and least > most:
        least = None
    ranges = [Range(queue, 7, 7 + size) for queue, size in zip(QUEUES, count, strict=False) if size]
    tasks = distribute(ranges, least=least, most=most, records=records)
    assert covered(tasks) == covered([ranges])
    assert tasks == distribute(ranges, least=least, most=most, records=records)
    if most:
        assert len(tasks) <= most
    elif records:
        assert max((sum(each.records for each in task) for task in tasks), default=0) <= records
    if least and not most:
        assert len(tasks) >= min(least, sum(count))


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    small = [Range(queue, 0, 10) for queue in QUEUES]
    assert distribute(small) == [small]
    large = [Range(queue, 0, 50_000) for queue in QUEUES]
    assert distribute(large) == [[each] for each in large]
    assert distribute([]) == []


def test_a_queue_without_a_start_is_new_and_one_that_stands_still_is_left_out() -> None:
    a, b, c = QUEUES[:3]
    assert ranges_between({a: 5, b: 7}, {a: 9, b: 7, c: 3}) == [Range(a, 5, 9), Range(c, 0, 3, fresh=True)]
    assert ranges_between({a: 5}, {a: 0}) == []


@given(sizes, st.integers(1, 400), st.integers(0, 20))
def test_a_portion_is_as_large_as_it_may_be(count: list[int], most: int, turn: int) -> None:
    start = {queue: 3 for queue, _ in zip(QUEUES, count, strict=False)}
    end = {queue: 3 + size for queue, size in zip(QUEUES, count, strict=False)}
    found = portion(start, end, most, turn)
    taken = {queue: found[queue] - 3 for queue in end}
    assert sum(taken.values()) == min(most, sum(count))
    assert all(0 <= taken[queue] <= end[queue] - 3 for queue in end)


def test_no_queue_starves_when_a_portion_is_smaller_than_their_number() -> None:
    end = dict.fromkeys(QUEUES, 1_000)
    start = dict.fromkeys(QUEUES, 0)
    admission = Admission(1, None, 0)
    for _ in range(12):
        start = admission.admit(start, end, 0.0)
    assert sorted(start.values()) == [2] * 6


def test_a_batch_waits_for_enough_or_for_its_time() -> None:
    queue = QUEUES[0]
    admission = Admission(None, 10, 60.0)
    assert admission.admit({queue: 0}, {queue: 1}, 0.0) == {queue: 1}, "the first one is not kept waiting"
    assert admission.admit({queue: 1}, {queue: 5}, 30.0) == {queue: 1}
    assert admission.admit({queue: 1}, {queue: 11}, 31.0) == {queue: 11}
    assert admission.admit({queue: 11}, {queue: 12}, 90.0) == {queue: 11}
    assert admission.admit({queue: 11}, {queue: 12}, 91.0) == {queue: 12}
    assert admission.admit({queue: 12}, {queue: 13}, 91.0, patient=False) == {queue: 13}
