"""Options of the source that change what Spark is given: which topics, columns, tasks and batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rmq[spark]'")

import rmq
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
        ({"endingOffsets": "latest"}, "the option endingOffsets is for batches: a stream has no end"),
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


def reader(spark: Any, **options: Any) -> Any:
    return spark.read.format("rocketmq").options(**options)


def stream(spark: Any, **options: Any) -> Any:
    return spark.readStream.format("rocketmq").options(**options)


def writer(spark: Any, **options: Any) -> Any:
    return spark.sql("select 'x' as value").write.format("rocketmq").options(**options).mode("append")


def stream_writer(spark: Any, **options: Any) -> Any:
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    return rows.writeStream.format("rocketmq").options(**options)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (
            lambda spark, given: reader(spark, **given).load("stock"),
            "the option path is 'stock': give no path to load()",
        ),
        (
            lambda spark, given: reader(spark, **given).load(["a", "b"]),
            'the option paths is \'["a","b"]\': give no path',
        ),
        (lambda spark, given: reader(spark, **given, path="stock").load(), "the option path is 'stock': give no path"),
        (
            lambda spark, given: stream(spark, **given).load("stock"),
            "the option path is 'stock': give no path to load()",
        ),
        (
            lambda spark, given: stream(spark, **given, checkpointLocation="/cp").load(),
            "the option checkpointlocation is '/cp': give it to the writer of the stream (writeStream)",
        ),
        (
            lambda spark, given: stream(spark, **given, queryName="q").load(),
            "the option queryname is 'q': give it to the writer of the stream (writeStream)",
        ),
        (
            lambda spark, given: reader(spark, **given, commitOffsetsToBroker=True, groupId="g").load().collect(),
            "the option commitOffsetsToBroker is for streams: a batch reports no offsets",
        ),
        (
            lambda spark, given: writer(spark, **given).save("stock"),
            "the option path is 'stock': give no path to save()",
        ),
        (
            lambda spark, given: writer(spark, **given, checkpointLocation="/cp").save(),
            "the option checkpointLocation is for streams: a batch has neither a name nor a checkpoint",
        ),
        (
            lambda spark, given: stream_writer(spark, **given).start("stock").awaitTermination(60),
            "the option path is 'stock': give no path to save() and start()",
        ),
    ],
)
def test_what_would_do_nothing_is_an_error(
    spark: Any, topics: str, tmp_path: Path, act: Callable[[Any, dict[str, str]], None], said: str
) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        with pytest.raises(Exception) as error:  # noqa: PT011 - pyspark's classes for it change from release to release
            act(spark, {"nameServer": topics, "topic": "stock"})
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert said in str(error.value)


def test_a_query_has_its_name_and_its_checkpoint(spark: Any, topics: str, cluster: Cluster, tmp_path: Path) -> None:
    """Spark hands both over to the sink, in whichever way they were given."""
    create(cluster.namesrv, cluster.broker_addr, "named")
    given = {"nameServer": topics, "topic": "named"}
    by_option = stream_writer(spark, **given, checkpointLocation=str(tmp_path / "option"), queryName="of an option")
    by_argument = stream_writer(spark).trigger(once=True)
    arguments = {"queryName": "of an argument", "checkpointLocation": str(tmp_path / "argument"), **given}
    by_session = stream_writer(spark, **given).queryName("of a method").trigger(once=True)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "session"))
    try:
        queries = [by_option.trigger(once=True).start(), by_argument.start(**arguments), by_session.start()]
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    for query in queries:
        assert query.awaitTermination(300)
    assert [query.name for query in queries] == ["of an option", "of an argument", "of a method"]
    assert all((tmp_path / folder / "offsets").is_dir() for folder in ("option", "argument", "session/of a method"))


def test_options_as_python_has_them(spark: Any, topics: str) -> None:
    options = {"NAMESERVER": topics, "topic": " stock ", "failOnDataLoss": False, "maxPartitions": 1}
    rows = reader(spark, **options).load()
    assert places(rows.collect()) == stored(topics, "stock")
    with pytest.raises(Exception, match=r"the option minpartitions is .2\.5.: give a whole number from 1"):
        reader(spark, **options, minPartitions=2.5).load()


def test_sql(spark: Any, topics: str, cluster: Cluster) -> None:
    """A view is read and written, whatever asks for it; tables of the catalog are refused."""
    create(cluster.namesrv, cluster.broker_addr, "by-sql")
    given = f"USING rocketmq OPTIONS (nameServer '{topics}', topic 'by-sql')"
    spark.sql(f"CREATE TEMPORARY VIEW by_sql (value BINARY, keys STRING) {given}")
    spark.sql("INSERT INTO by_sql VALUES (cast('1 a' AS BINARY), 'k1'), (cast('2 b' AS BINARY), NULL)")
    rows = spark.sql("SELECT cast('3 c' AS BINARY) AS value, 'k3' AS keys")
    rows.write.insertInto("by_sql")
    rows.select("keys", "value").writeTo("by_sql").append()
    assert sorted(numbers(spark.table("by_sql").collect())) == [1, 2, 3, 3]
    assert spark.sql("SELECT count(keys) AS n FROM by_sql").first()["n"] == 3
    spark.sql(f"CREATE TEMPORARY VIEW whole {given.replace(')', ', includeSystem true)')}")
    assert spark.table("whole").count() == 4

    def refused(text: str, said: str) -> None:
        with pytest.raises(Exception) as error:  # noqa: PT011 - pyspark's classes for it change from release to release
            spark.sql(text).collect()
        assert said in str(error.value), text

    refused("INSERT OVERWRITE by_sql SELECT * FROM by_sql", "a topic cannot be overwritten")
    refused("INSERT INTO whole SELECT * FROM whole", "the option includesystem is for reading: leave it out")
    no_tables = "no options, neither nameServer nor topic: Spark hands those of a table in its catalog to no source in"
    refused(f"CREATE TABLE by_sql_table {given}", no_tables)
    spark.sql(f"CREATE TABLE by_sql_table (value BINARY) {given}")
    try:
        refused("SELECT * FROM by_sql_table", no_tables)
        refused("INSERT INTO by_sql_table VALUES (cast('1' AS BINARY))", no_tables)
    finally:
        spark.sql("DROP TABLE by_sql_table")


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


def test_a_frame_keeps_the_ends_of_its_first_use(spark: Any, topics: str, cluster: Cluster) -> None:
    create(cluster.namesrv, cluster.broker_addr, "kept")
    fill(topics, "kept", 10)
    frame = read(spark, topics, topic="kept")
    frame.createOrReplaceTempView("kept")
    assert frame.count() == 10
    fill(topics, "kept", 5)
    # Spark 4.0 asks a source for every query.
    kept = 15 if spark.version.startswith("4.0.") else 10
    assert [frame.count(), frame.where("offset >= 0").count(), spark.table("kept").count()] == [kept] * 3
    assert read(spark, topics, topic="kept").count() == 15


def test_filters_of_a_query_stay_with_spark(spark: Any, topics: str) -> None:
    """Also where Spark would hand them to sources that take them."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert read(spark, topics, topic="stock").where("offset >= 90 AND tags IS NULL").count() == 10
        frame = read(spark, topics, topic="stock")
        one, other = frame.where("offset < 90"), frame.where("offset >= 90")
        assert (one.union(other).count(), one.crossJoin(other).count(), frame.count()) == (100, 900, 100)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
