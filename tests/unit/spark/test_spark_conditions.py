# ruff: noqa: E402 - what follows the check for pyspark needs it
"""What a query's conditions leave to be pulled: less where that is certain, and never too little."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

datasource = pytest.importorskip("pyspark.sql.datasource", reason="pyspark is not installed: pip install 'rmq[spark]'")
if not hasattr(datasource, "Not"):
    pytest.skip("Spark hands conditions to sources from 4.1 on", allow_module_level=True)

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rmq.protocol.message import decode_record
from rmq.protocol.queue import MessageQueue
from rmq.spark.brokers import Brokers
from rmq.spark.conditions import CLOCK_STEP, Conditions
from rmq.spark.options import Endpoint
from rmq.spark.ranges import Range
from tests.support.spark.memory import NAMESRV, MemoryCluster

A0, A1, B0 = (MessageQueue(*each) for each in (("a", "broker-a", 0), ("a", "broker-a", 1), ("b", "broker-a", 0)))
EVERY = [Range(A0, 0, 100), Range(A1, 10, 50), Range(B0, 5, 15)]
TOPIC, QUEUE, OFFSET, TIME, TAGS = ("topic",), ("queueId",), ("offset",), ("timestamp",), ("tags",)


def narrowed(*conditions: Filter, cluster: MemoryCluster | None = None) -> list[tuple[MessageQueue, int, int]]:
    brokers = Brokers(Endpoint((NAMESRV,)), cluster or MemoryCluster())
    left = Conditions.of(conditions).narrow(brokers, "g", EVERY)
    return [(each.queue, each.start, each.end) for each in left]


@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        ([EqualTo(TOPIC, "b")], [B0]),
        ([Not(EqualTo(TOPIC, "b"))], [A0, A1]),
        ([EqualNullSafe(TOPIC, "a"), In(QUEUE, (1, 7))], [A1]),
        ([GreaterThan(QUEUE, 0)], [A1]),
        ([Not(In(QUEUE, (1, None)))], [A0, B0]),
        ([Not(Not(LessThanOrEqual(QUEUE, 0)))], [A0, B0]),
        ([StringStartsWith(TOPIC, "b")], [B0]),
        ([StringEndsWith(("brokerName",), "-a"), StringContains(TOPIC, "a")], [A0, A1]),
        ([EqualTo(("brokerName",), "broker-b")], []),
        ([EqualTo(TOPIC, "a"), EqualTo(TOPIC, "b")], []),
        ([IsNotNull(TOPIC), Not(IsNotNull(TOPIC)), EqualNullSafe(TOPIC, None)], [A0, A1, B0]),
        ([EqualTo(("keys",), "k"), EqualTo(("properties", "topic"), "b")], [A0, A1, B0]),
    ],
)
def test_queues(conditions: list[Filter], left: list[MessageQueue]) -> None:
    assert [queue for queue, _, _ in narrowed(*conditions)] == left


@pytest.mark.parametrize(
    ("conditions", "of_a0"),
    [
        ([GreaterThan(OFFSET, 5), LessThan(OFFSET, 20)], (6, 20)),
        ([GreaterThanOrEqual(OFFSET, 5), LessThanOrEqual(OFFSET, 20)], (5, 21)),
        ([EqualTo(("queueOffset",), 7)], (7, 8)),
        ([In(OFFSET, (30, 12, None, 17))], (12, 31)),
        ([GreaterThan(OFFSET, 5), GreaterThan(OFFSET, 2)], (6, 100)),
        ([GreaterThan(OFFSET, 99)], None),
        ([LessThan(OFFSET, 0)], None),
        ([Not(EqualTo(OFFSET, 7)), EqualTo(OFFSET, "7"), In(OFFSET, ())], (0, 100)),
    ],
)
def test_offsets(conditions: list[Filter], of_a0: tuple[int, int] | None) -> None:
    found = {queue: (start, end) for queue, start, end in narrowed(*conditions)}
    assert found.get(A0) == of_a0


def filled(steps: list[float]) -> tuple[MemoryCluster, list[datetime]]:
    """100 messages in queue 0 of topic a, each so many seconds after the last; when they were stored."""
    cluster = MemoryCluster()
    cluster.create("a", 2)
    cluster.create("b")
    for step in steps:
        cluster.now += step
        cluster.put("a")
    queue = cluster.broker.queues["a", 0]
    times = [datetime.fromtimestamp(decode_record(each).store_timestamp / 1000, UTC) for each in queue.records if each]
    return cluster, times


def of_times(cluster: MemoryCluster, *conditions: Filter) -> tuple[int, int]:
    ((_, start, end),) = narrowed(EqualTo(TOPIC, "a"), EqualTo(QUEUE, 0), *conditions, cluster=cluster)
    return start, end


def test_times_are_looked_for_with_some_room() -> None:
    cluster, times = filled([CLOCK_STEP / 1000] * 100)
    some = (GreaterThanOrEqual(TIME, times[40]), LessThan(("storeTimestamp",), times[60]))
    assert of_times(cluster, *some) == (39, 61)
    assert of_times(cluster, EqualTo(TIME, times[40])) == (39, 41)
    assert of_times(cluster, GreaterThan(TIME, times[40].replace(tzinfo=None))) == (0, 100), "of no zone"


def test_a_clock_that_was_set_back_hides_nothing() -> None:
    steps = [1.0] * 100
    steps[50] = -CLOCK_STEP / 1000 + 1
    cluster, times = filled(steps)
    for moment in times:
        for condition, wanted in (
            (GreaterThanOrEqual(TIME, moment), [n for n, time in enumerate(times) if time >= moment]),
            (LessThanOrEqual(TIME, moment), [n for n, time in enumerate(times) if time <= moment]),
            (EqualTo(TIME, moment + timedelta(microseconds=1)), []),
        ):
            start, end = of_times(cluster, condition)
            assert set(wanted) <= set(range(start, end))


@pytest.mark.parametrize(
    ("conditions", "asked"),
    [
        ([EqualTo(TAGS, "A")], {"A"}),
        ([In(TAGS, ("A", "B", None))], {"A", "B"}),
        ([In(TAGS, ("A", "B")), In(TAGS, ("B", "C"))], {"B"}),
        ([EqualTo(TAGS, "A || B")], set()),
        ([EqualTo(TAGS, "*")], set()),
        ([EqualTo(TAGS, "")], set()),
        ([Not(EqualTo(TAGS, "A")), EqualNullSafe(TAGS, None), GreaterThan(TAGS, "A")], set()),
        ([In(TAGS, tuple(f"t{number}" for number in range(500)))], set()),
    ],
)
def test_tags(conditions: list[Any], asked: set[str]) -> None:
    assert Conditions.of(conditions).tags == asked
