"""Options of the source that change what Spark is given: which topics, columns, tasks and batches."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

import rmq
from rmq.spark.readers import PUSHING
from tests.support.peers.cluster import Cluster
from tests.support.spark.topics import create, fill, numbers, places, stored

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> str:
    """Three topics of 100 messages in one queue, of which two match ``sales-.*``."""
    for topic in ("sales-north", "sales-south", "stock"):
        create(cluster.namesrv, cluster.broker_addr, topic, queues=1)
        fill(cluster.namesrv, topic, 50)
        fill(cluster.namesrv, topic, 50)
    return cluster.namesrv


def read(spark: Any, namesrv: str, **options: str) -> Any:
    return spark.read.format("rocketmq").options(nameServer=namesrv, **options).load()


def test_several_topics_and_a_pattern(spark: Any, topics: str) -> None:
    sales = stored(topics, "sales-north", "sales-south")
    assert places(read(spark, topics, topic="sales-north, sales-south").collect()) == sales
    assert places(read(spark, topics, topicPattern="sales-.*").collect()) == sales
    one = read(spark, topics, topicPattern="sto", columns="topic")
    with pytest.raises(Exception, match="the option topicPattern 'sto' matches no topic"):
        one.collect()


def test_less_of_each_row_and_of_each_pull(spark: Any, topics: str) -> None:
    frame = read(spark, topics, topic="stock", includeProperties="false", pullBatchSize="7")
    assert "properties" not in frame.columns
    assert places(frame.collect()) == stored(topics, "stock")


def test_a_time_for_a_queue(spark: Any, topics: str) -> None:
    rows = read(spark, topics, topic="stock").collect()
    (moment,) = [round(row["timestamp"].timestamp() * 1000) for row in rows if row["offset"] == 50]
    given = json.dumps({"stock": {rows[0]["brokerName"]: {"0": moment}}})
    late = read(spark, topics, topic="stock", startingTimestamp=given).collect()
    assert places(late) == places(row for row in rows if row["timestamp"].timestamp() * 1000 >= moment)
    early = read(spark, topics, topic="stock", endingTimestamp=given).collect()
    assert places(late) + places(early) == places(rows)


def test_the_number_of_tasks(spark: Any, topics: str) -> None:
    def tasks(**options: str) -> int:
        frame = read(spark, topics, topicPattern=".*[hk]", **options)
        assert places(frame.collect()) == stored(topics, "sales-north", "sales-south", "stock")
        return int(frame.rdd.getNumPartitions())

    assert tasks(maxRecordsPerPartition="10") == 30
    assert tasks(maxRecordsPerPartition="10", maxPartitions="4") == 4
    assert tasks(minPartitions="7") >= 7


def test_a_batch_waits_for_enough(spark: Any, topics: str, cluster: Cluster, tmp_path: Path) -> None:
    """minOffsetsPerTrigger: what is less than that stays until maxTriggerDelay is over."""
    source = spark.readStream.format("rocketmq").options(nameServer=topics, topic="patient", startingOffsets="earliest")
    limited = source.options(minOffsetsPerTrigger="50", maxTriggerDelay="1d")
    create(cluster.namesrv, cluster.broker_addr, "patient")
    fill(topics, "patient", 60)
    if tuple(int(part) for part in spark.version.split(".")[:2]) < (4, 2):
        with pytest.raises(Exception, match=r"the option minOffsetsPerTrigger needs Spark 4\.2 or newer; this is"):
            limited.load().writeStream.format("noop").start().awaitTermination(60)
        return
    query = limited.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    query.processAllAvailable()
    fill(topics, "patient", 20)
    query.processAllAvailable()
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [60]
    fill(topics, "patient", 30)
    while query.lastProgress.batchId < 1:
        query.processAllAvailable()
    query.stop()
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [60, 50]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grupId": "g"}, "the option grupid is unknown: did you mean groupId?"),
        ({"nameServer": "127.0.0.1:1"}, "no name server answers (127.0.0.1:1, option nameServer)"),
        ({"topic": "nowhere"}, "the topic nowhere does not exist"),
        ({"endingOffsets": "latest"}, "the options endingOffsets and endingTimestamp are for batches"),
        ({"columns": "offset,colour"}, "the option columns names 'colour': the columns are topic, "),
    ],
)
def test_a_stream_that_cannot_start_fails(spark: Any, topics: str, options: dict[str, str], said: str) -> None:
    """Field case B131."""
    given = {"nameServer": topics, "topic": "stock", **options}

    def start() -> None:
        frame = spark.readStream.format("rocketmq").options(**given).load()
        frame.writeStream.format("noop").start().awaitTermination(60)

    with pytest.raises(Exception) as error:  # noqa: PT011 - pyspark's classes for it change from release to release
        start()
    assert said in str(error.value)
    assert spark.streams.active == []


def test_who_asks_is_signed_and_a_broker_that_does_not_look_answers(spark: Any, topics: str) -> None:
    """Without access control on the broker keys are sent and do nothing."""
    keys = {"accessKey": "who", "secretKey": "s3cret-key", "securityToken": "t0ken"}
    assert sorted(numbers(read(spark, topics, topic="stock", **keys).collect())) == sorted([*range(50)] * 2)
    with pytest.raises(Exception, match="the option accessKey needs the option secretKey beside it") as error:
        read(spark, topics, topic="stock", accessKey="who", securityToken="t0ken")
    assert "t0ken" not in str(error.value).partition("rmq.protocol.errors")[2]


def test_a_namespace(spark: Any, topics: str, cluster: Cluster) -> None:
    create(cluster.namesrv, cluster.broker_addr, "shop%visits")
    frame = spark.sql("select 'a visit' as value")
    given = {"nameServer": topics, "namespace": "shop", "topic": "visits"}
    frame.write.format("rocketmq").options(**given).mode("append").save()
    assert [
        (row["topic"], bytes(row["value"])) for row in spark.read.format("rocketmq").options(**given).load().collect()
    ] == [("visits", b"a visit")]
    with rmq.AdminClient(namesrv=topics) as admin:
        assert sum(admin.max_offset(queue) for queue in admin.fetch_subscribe_message_queues("shop%visits")) == 1


def test_filters_of_a_query_stay_with_spark(spark: Any, topics: str) -> None:
    """Also where Spark would hand them to sources that take them."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert read(spark, topics, topic="stock").where("offset >= 90 AND tags IS NULL").count() == 10
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filters_of_a_query_leave_less_to_pull(spark: Any, topics: str, cluster: Cluster) -> None:
    """pushFilters: the same rows as without, out of fewer that are pulled."""
    create(cluster.namesrv, cluster.broker_addr, "sales-east", queues=1)
    fill(topics, "sales-east", 60, tags="A")
    fill(topics, "sales-east", 40, tags="B")

    def run(where: str, **options: str) -> tuple[list[Any], int]:
        """The rows, and how many of them the source gave to Spark."""
        frame = read(spark, topics, topicPattern="sales-.*", **options).where(where)
        rows = sorted((*each[:5], *each[7:10]) for each in frame.collect())
        scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
        return rows, scan.metrics().apply("numOutputRows").value()

    if not PUSHING:
        with pytest.raises(Exception, match=r"the option pushFilters needs Spark 4\.1 or newer; this is 4\.0"):
            run("offset > 1", pushFilters="true")
        return
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        run("offset > 1", pushFilters="true")
    (first,) = read(spark, topics, topic="sales-north").where("offset = 0").collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for where, pulled in (
            ("topic = 'sales-north'", 100),
            ("topic IN ('sales-north', 'stock') AND brokerName LIKE 'broker%' AND queueId = 0", 100),
            ("NOT topic LIKE '%th'", 100),
            ("offset >= 40 AND offset < 42 AND topic <> 'sales-east'", 4),
            ("offset = 7", 3),
            ("tags = 'B'", 40),
            ("tags IN ('B', 'C') AND offset < 1000", 40),
            ("tags IS NULL", 300),
            (f"timestamp > TIMESTAMP '{first['timestamp'] + timedelta(hours=1)}'", 0),
            (f"timestamp >= TIMESTAMP '{first['timestamp']}'", 300),
            ("offset = 7 OR topic = 'sales-north'", 300),
            ("length(value) = 1", 300),
        ):
            plain, _ = run(where)
            assert run(where, pushFilters="true") == (plain, pulled), where
        plain, _ = run("tags = 'B'", subExpression="A || B")
        assert run("tags = 'B'", subExpression="A || B", pushFilters="true") == (plain, 100)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
