"""Spark beside a group of three of our brokers whose leader is killed: jobs go on, and nothing is left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmq.spark
from tests.support.peers.groups import Group, start_group
from tests.support.spark.topics import create, fill, numbers

pytestmark = pytest.mark.timeout(600)

ROWS = 20_000


@pytest.fixture(scope="module")
def started() -> Iterator[Group]:
    with start_group("ours") as group:
        yield group


@pytest.fixture
def group(started: Group) -> Group:
    """All three members are there."""
    for name in sorted(started.dead):
        started.start(name)
    started.leader()
    return started


def topic(group: Group, name: str) -> str:
    create(group.namesrv, group.members[group.leader()].addr, name)
    return name


def kill(group: Group) -> None:
    leader = group.leader()
    group.kill(leader)
    group.leader(but=leader)


def read(spark: Any, group: Group, name: str) -> Any:
    return spark.read.format("rocketmq").options(nameServer=group.namesrv, topic=name).load()


def test_a_batch_is_written_and_read_while_leaders_are_killed(spark: Any, group: Group) -> None:
    written = topic(group, "failover_batch")
    killing = threading.Thread(target=lambda: (time.sleep(0.5), kill(group)))
    rows = spark.range(0, ROWS, numPartitions=2).selectExpr("cast(id as string) as value")
    killing.start()
    rows.write.format("rocketmq").options(nameServer=group.namesrv, topic=written).mode("append").save()
    killing.join()
    assert sorted(numbers(rmq.spark.deduplicate(read(spark, group, written)).collect())) == list(range(ROWS))
    for name in sorted(group.dead):
        group.start(name)
    killing = threading.Thread(target=lambda: (time.sleep(0.3), kill(group)))
    killing.start()
    found = sorted(numbers(rmq.spark.deduplicate(read(spark, group, written)).collect()))
    killing.join()
    assert found == list(range(ROWS))


def test_a_stream_goes_on_with_the_next_leader(spark: Any, group: Group, tmp_path: Path) -> None:
    origin, copy = topic(group, "failover_origin"), topic(group, "failover_copy")
    given = {"nameServer": group.namesrv, "topic": origin, "startingOffsets": "earliest"}
    frame = spark.readStream.format("rocketmq").options(**given).load().select("value", "keys")
    writer = frame.writeStream.format("rocketmq").option("nameServer", group.namesrv).option("topic", copy)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="200 milliseconds").start()
    try:
        fill(group.namesrv, origin, 300)
        kill(group)
        fill(group.namesrv, origin, 300)
        query.processAllAvailable()
    finally:
        query.stop()
    copies = rmq.spark.deduplicate(read(spark, group, copy))
    assert sorted(numbers(copies.collect())) == sorted([*range(300), *range(300)])
