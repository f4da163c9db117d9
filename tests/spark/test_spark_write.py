"""Writing as Spark does it: batches and streams to a broker that is a process of its own."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import rmq.spark
from rmq.spark.sink.rows import IDENTITY
from tests.support.peers.cluster import Cluster
from tests.support.spark.queries import to_the_end
from tests.support.spark.refusals import check_refusals
from tests.support.spark.topics import create, fill, numbers, places, stored

pytestmark = pytest.mark.timeout(600)


def read(spark: Any, cluster: Cluster, topic: str) -> Any:
    return spark.read.format("rocketmq").options(nameServer=cluster.namesrv, topic=topic).load()


def write(frame: Any, cluster: Cluster, mode: str = "append", **options: str) -> None:
    frame.write.format("rocketmq").options(nameServer=cluster.namesrv, **options).mode(mode).save()


def test_a_batch_with_keys_in_order_and_every_column(spark: Any, cluster: Cluster) -> None:
    create(cluster.namesrv, cluster.broker_addr, "written", queues=4)
    rows = spark.range(0, 4000, numPartitions=2).selectExpr(
        "cast(id as string) as value",
        "'written' as topic",
        "concat('k', id) as keys",
        "if(id % 2 = 0, 'A', null) as tags",
        "concat('s', id % 7) as shardingKey",
        "map('own', cast(id as string)) as properties",
    )
    write(rows, cluster)
    got = read(spark, cluster, "written").collect()
    assert sorted(numbers(got)) == list(range(4000))
    orders: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for row in got:
        number = int(bytes(row["value"]))
        assert (row["keys"], row["tags"]) == (f"k{number}", None if number % 2 else "A")
        assert row["properties"]["own"] == str(number)
        task = int(row["properties"][IDENTITY].split("/")[2])
        orders[row["properties"]["__SHARDINGKEY"], task].append((row["queueId"], row["offset"], number))
    for placed in orders.values():
        assert len({queue for queue, _, _ in placed}) == 1
        assert [number for _, _, number in sorted(placed)] == sorted(number for _, _, number in placed)
    assert len({row["properties"][IDENTITY] for row in got}) == 4000


def test_a_stream_that_sends_a_batch_again_can_be_told_apart(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    """The commit of a batch is lost, as when a driver dies after sending: it is sent again, with the same names."""
    create(cluster.namesrv, cluster.broker_addr, "origin")
    create(cluster.namesrv, cluster.broker_addr, "copy")
    fill(cluster.namesrv, "origin", 300)
    given = {"nameServer": cluster.namesrv, "topic": "origin", "startingOffsets": "earliest"}

    def run() -> None:
        frame = spark.readStream.format("rocketmq").options(**given).load().select("value", "keys")
        writer = frame.writeStream.format("rocketmq").option("nameServer", cluster.namesrv).option("topic", "copy")
        to_the_end(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start)

    run()
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "commits" / ".0.crc").unlink()
    run()
    copies = read(spark, cluster, "copy")
    assert copies.count() == 600
    once = rmq.spark.deduplicate(copies)
    assert sorted(numbers(once.collect())) == list(range(300))
    assert rmq.spark.deduplicate(read(spark, cluster, "origin")).count() == 300, "messages of others are all different"
    stream = spark.readStream.format("rocketmq").options(**{**given, "topic": "copy"}).load()
    kept = rmq.spark.deduplicate(stream, within="1 hour").select("value")
    to_the_end(kept.writeStream.format("memory").queryName("kept").trigger(availableNow=True).start)
    assert sorted(numbers(spark.table("kept").collect())) == list(range(300))


def test_a_row_of_the_source_can_be_written_back(spark: Any, cluster: Cluster) -> None:
    create(cluster.namesrv, cluster.broker_addr, "there")
    create(cluster.namesrv, cluster.broker_addr, "back")
    fill(cluster.namesrv, "there", 50, tags="A", properties={"own": "1"})
    rows = read(spark, cluster, "there").select("value", "keys", "tags", "properties")
    write(rows, cluster, topic="back")
    back = read(spark, cluster, "back").collect()
    assert sorted((bytes(row["value"]), row["keys"], row["tags"], row["properties"]["own"]) for row in back) == sorted(
        (bytes(row["value"]), row["keys"], "A", "1") for row in rows.collect()
    )
    assert places(back) == stored(cluster.namesrv, "back")


def test_delayed_rows_come_later(spark: Any, cluster: Cluster) -> None:
    create(cluster.namesrv, cluster.broker_addr, "delayed", queues=1)
    rows = spark.sql("select '1' as value, 1 as delayLevel, null as deliverTimestamp union all "
                     "select '2', null, cast(current_timestamp() + interval 2 seconds as timestamp)")  # fmt: skip
    write(rows, cluster, topic="delayed")
    with rmq.AdminClient(namesrv=cluster.namesrv) as admin, rmq.Producer("tick", namesrv=cluster.namesrv) as producer:
        (queue,) = admin.fetch_subscribe_message_queues("delayed")
        while admin.max_offset(queue) < 2:
            producer.send(rmq.Message("tick", b"."))
    got = {int(bytes(row["value"])): row for row in read(spark, cluster, "delayed").collect()}
    assert got[1]["timestamp"].timestamp() - got[1]["bornTimestamp"].timestamp() > 0.9
    assert got[2]["timestamp"].timestamp() - got[2]["bornTimestamp"].timestamp() > 0.5


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("select '1' as value, 'x' as colour", {"topic": "t"}, "ConfigError: the sink has no column 'colour'"),
        ("select 1 as value", {"topic": "t"}, "ConfigError: the column value is int: the sink takes binary or string"),
        ("select '1' as value", {}, "ConfigError: no topic to write to: give the option topic or a column topic"),
        ("select '1' as value", {"topic": "t", "batchsize": "x"}, "ConfigError: the option batchsize is 'x'"),
        (
            "select if(id = 3, null, 'x') as value from range(0, 5, 1, 1)",
            {"topic": "t"},
            "RowRefused: batch 0, partition 0, row 3 has no value",
        ),
    ],
)
def test_a_mistake_is_named(spark: Any, cluster: Cluster, query: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011 - pyspark's classes for it change from release to release
        write(spark.sql(query), cluster, **options)
    assert said in str(error.value)


def test_rows_that_the_broker_refuses(spark: Any, cluster: Cluster) -> None:
    check_refusals(spark, cluster)


def test_a_topic_cannot_be_overwritten(spark: Any, cluster: Cluster) -> None:
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        write(spark.sql("select '1' as value"), cluster, "overwrite", topic="t")
