"""What may happen to a topic while a batch of it is being read: it grows, it is made anew, its messages expire."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers.cluster import Cluster
from tests.support.spark.gate import gate
from tests.support.spark.topics import create, delete, fill, numbers, open_batches, places, stored

pytestmark = pytest.mark.timeout(600)

COLUMNS = "topic,brokerName,queueId,offset,value"
#: Bytes of a body of thousands, so that they do not fit between a reader and a task at the gate: 36 MB may be on each
#: of the two ways between Spark's processes, and a reader that has read everything meets nothing any more.
BEYOND_BUFFERS = 24_000


class Held:
    """A stream into Parquet files whose batches wait at the gate until they are let through."""

    def __init__(self, spark: Any, cluster: Cluster, topic: str, folder: Path) -> None:
        self._spark = spark
        self._given = {"nameServer": cluster.namesrv, "topic": topic, "startingOffsets": "earliest"}
        self._folder = folder
        self.checkpoint = folder / "checkpoint"

    def start(self, **options: str) -> Any:
        frame = self._spark.readStream.format("rocketmq").options(**self._given, **options, columns=COLUMNS).load()
        passed = frame.mapInArrow(gate(self._folder), frame.schema)
        writer = passed.writeStream.format("parquet").option("path", str(self._folder / "out"))
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def until_open(self, query: Any) -> set[str]:
        """Wait until a task stands at the gate; the batches that are open then."""
        while not list(self._folder.glob("open-*")):
            assert not query.awaitTermination(0.1), "the batch ended without passing the gate"
        return open_batches(self.checkpoint)

    def let_through(self) -> None:
        (self._folder / "go").touch()

    def rows(self) -> list[Any]:
        return list(self._spark.read.parquet(str(self._folder / "out")).collect())


def end(query: Any) -> None:
    """Stop a query when it has read everything."""
    query.processAllAvailable()
    query.stop()


def test_queues_that_are_added(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    create(cluster.namesrv, cluster.broker_addr, "wider", queues=1)
    fill(cluster.namesrv, "wider", 1200)
    held = Held(spark, cluster, "wider", tmp_path)
    query = held.start()
    assert held.until_open(query) == {"0"}
    create(cluster.namesrv, cluster.broker_addr, "wider", queues=4)
    fill(cluster.namesrv, "wider", 400)
    there = stored(cluster.namesrv, "wider")
    assert len({queue for _, _, queue, _ in there}) > 1
    assert open_batches(held.checkpoint) == {"0"}
    held.let_through()
    query.processAllAvailable()
    while len(held.rows()) < len(there):  # routes are asked for every few seconds
        query.processAllAvailable()
    end(query)
    assert places(held.rows()) == there


def test_a_topic_that_is_made_anew(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    create(cluster.namesrv, cluster.broker_addr, "renewed")
    fill(cluster.namesrv, "renewed", 5000, size=BEYOND_BUFFERS)
    held = Held(spark, cluster, "renewed", tmp_path)
    query = held.start()
    assert held.until_open(query) == {"0"}
    delete(cluster.namesrv, cluster.broker_addr, "renewed")
    create(cluster.namesrv, cluster.broker_addr, "renewed")
    fill(cluster.namesrv, "renewed", 200)
    there = stored(cluster.namesrv, "renewed")
    assert open_batches(held.checkpoint) == {"0"}
    held.let_through()
    with pytest.raises(Exception, match="DataLost") as error:
        query.awaitTermination()
    # A task had begun to read, or not.
    said = r"its topic was made anew (or lost them|while a batch of it was read) \(failOnDataLoss=false"
    assert re.search(said, str(error.value)), str(error.value)
    end(held.start(failOnDataLoss="false"))
    got = places(held.rows())
    assert got.keys() == there.keys(), "all of the new topic, and nothing that the failed batch had read of the old one"


def test_messages_that_expire(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    create(cluster.namesrv, cluster.broker_addr, "expiring")
    fill(cluster.namesrv, "expiring", 7000, size=BEYOND_BUFFERS)
    held = Held(spark, cluster, "expiring", tmp_path)
    query = held.start()
    assert held.until_open(query) == {"0"}
    (broker,) = cluster.brokers
    broker.daemon.stop()
    files = sorted((broker.store / "commitlog").iterdir())
    assert len(files) > 1
    # What retention does at night: the oldest files go.
    for path in files[:-1]:
        path.unlink()
    broker.daemon.start()
    left = stored(cluster.namesrv, "expiring")
    assert 0 < len(left) < 7000
    assert open_batches(held.checkpoint) == {"0"}
    held.let_through()
    with pytest.raises(Exception, match="DataLost") as error:
        query.awaitTermination()
    assert "they have expired (failOnDataLoss=false goes on without them)" in str(error.value)
    end(held.start(failOnDataLoss="false"))
    assert places(held.rows()) == left, "each that is left once"
    assert set(numbers(held.rows())) <= set(range(7000))
