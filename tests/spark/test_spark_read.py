"""Reading as Spark does it: batches and streams against a broker that is a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rmq
import rmq.spark
from rmq.spark.arrow.columns import LEGACY
from tests.support.peers.cluster import Cluster
from tests.support.peers.ports import knocked
from tests.support.spark.gate import gate
from tests.support.spark.queries import to_the_end
from tests.support.spark.topics import Halves, create, delete, fill, numbers, open_batches, places, stored

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    """400 messages in two queues, every tenth with tag B."""
    create(cluster.namesrv, cluster.broker_addr, "read")
    with rmq.Producer("fill", namesrv=cluster.namesrv) as producer:
        for start in range(0, 400, 100):
            producer.send(
                [
                    rmq.Message(
                        "read", b"%d" % n, tags="B" if n % 10 == 0 else "A", keys=f"k{n}", properties={"n": str(n)}
                    )
                    for n in range(start, start + 100)
                ]
            )
    return "read"


def batch(spark: Any, cluster: Cluster, topic: str, **options: str) -> Any:
    return spark.read.format("rocketmq").options(nameServer=cluster.namesrv, topic=topic, **options).load()


def limits(spark: Any) -> bool:
    """This Spark asks sources for portions."""
    return tuple(int(part) for part in spark.version.split(".")[:2]) >= (4, 2)


class Stream:
    """A query into Parquet files, with its checkpoint: started again and again."""

    def __init__(self, spark: Any, cluster: Cluster, topic: str, folder: Path) -> None:
        self._spark = spark
        self._given = {"nameServer": cluster.namesrv, "topic": topic, "startingOffsets": "earliest"}
        self.checkpoint = folder / "checkpoint"
        self._out = folder / "out"

    def start(self, **options: str) -> Any:
        frame = self._spark.readStream.format("rocketmq").options(**{**self._given, **options}).load()
        writer = frame.drop("properties").writeStream.format("parquet").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.checkpoint)).option("path", str(self._out)).start()

    def run(self, **options: str) -> list[int]:
        """Start it and wait; the rows of each batch."""
        query = to_the_end(lambda: self.start(**options))
        return [each.numInputRows for each in query.recentProgress if each.numInputRows]

    def rows(self) -> list[Any]:
        return list(self._spark.read.parquet(str(self._out)).collect())


def test_everything_once_with_every_column(spark: Any, cluster: Cluster, topic: str) -> None:
    rows = batch(spark, cluster, topic, includeSystem="true").collect()
    assert places(rows) == stored(cluster.namesrv, topic)
    assert sorted(numbers(rows)) == list(range(400))
    row = next(each for each in rows if bytes(each["value"]) == b"7")
    with rmq.AdminClient(namesrv=cluster.namesrv) as admin:
        known = admin.view_message(row["offsetMsgId"])
    assert (row["msgId"], row["keys"], row["tags"]) == (known.msg_id, "k7", "A")
    assert row["timestamp"].timestamp() * 1000 == pytest.approx(known.store_timestamp)
    assert row["bornTimestamp"].timestamp() * 1000 == pytest.approx(known.born_timestamp)
    assert row["properties"]["n"] == "7"
    assert (row["physicalOffset"], row["storeHost"]) == (known.commit_log_offset, cluster.broker_addr)


def test_only_what_is_asked_for(spark: Any, cluster: Cluster, topic: str) -> None:
    given = spark.read.schema("offset bigint, value binary").format("rocketmq")
    frame = given.options(nameServer=cluster.namesrv, topic=topic).load()
    assert frame.columns == ["offset", "value"]
    assert frame.count() == 400
    assert batch(spark, cluster, topic, columns="keys,offset").columns == ["keys", "offset"]
    legacy = batch(spark, cluster, topic, columns="legacy").filter("queueOffset = 0 and queueId = 0").first()
    assert tuple(legacy.asDict()) == LEGACY
    assert json.loads(legacy["properties"])["n"] == bytes(legacy["body"]).decode()


def test_a_part_of_it(spark: Any, cluster: Cluster, topic: str) -> None:
    with rmq.AdminClient(namesrv=cluster.namesrv) as admin:
        queue, _ = admin.fetch_subscribe_message_queues(topic)
    name = queue.broker_name
    begin, end = {topic: {name: {"0": 10, "1": -1}}}, {topic: {name: {"0": 20}}}
    some = batch(spark, cluster, topic, startingOffsets=json.dumps(begin), endingOffsets=json.dumps(end))
    assert sorted(places(some.collect())) == [(topic, name, 0, offset) for offset in range(10, 20)]
    assert sorted(numbers(batch(spark, cluster, topic, subExpression="B").collect())) == list(range(0, 400, 10))
    assert sorted(numbers(batch(spark, cluster, topic, sql92="n > 395 AND TAGS = 'A'").collect())) == [
        396,
        397,
        398,
        399,
    ]
    middle = max(row["timestamp"] for row in batch(spark, cluster, topic).filter("offset < 100").collect())
    moment = str(round(middle.timestamp() * 1000))
    before = batch(spark, cluster, topic, endingTimestamp=moment)
    after = batch(spark, cluster, topic, startingTimestamp=moment)
    assert places(before.collect()) + places(after.collect()) == stored(cluster.namesrv, topic)
    assert before.filter(before.timestamp >= middle).count() == 0


def test_tasks(spark: Any, cluster: Cluster, topic: str) -> None:
    assert batch(spark, cluster, topic).rdd.getNumPartitions() == 1
    assert batch(spark, cluster, topic, minPartitions="5").rdd.getNumPartitions() >= 5
    cut = batch(spark, cluster, topic, maxRecordsPerPartition="150")
    assert cut.rdd.getNumPartitions() >= 3
    assert places(cut.collect()) == stored(cluster.namesrv, topic)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grupId": "g"}, "ConfigError: the option grupid is unknown: did you mean groupId?"),
        (
            {"startingOffsets": "{"},
            "ConfigError: the option startingoffsets is '{': give earliest, latest",
        ),
        ({"topic": "nowhere"}, "ConfigError: the topic nowhere does not exist"),
        (
            {"subExpression": "A", "sql92": "a > 1"},
            "ConfigError: the options subExpression and sql92 exclude",
        ),
        ({"nameServer": "127.0.0.1:1"}, "ConnectFailed: no name server answers (127.0.0.1:1, option nameServer)"),
        ({"sql92": "a >"}, "parse the consumer's subscription failed"),
        ({"maxOffsetsPerTrigger": "5"}, "ConfigError: the option maxOffsetsPerTrigger is for streams"),
    ],
)
def test_a_mistake_is_named(spark: Any, cluster: Cluster, topic: str, options: dict[str, str], said: str) -> None:
    given = {"nameServer": cluster.namesrv, "topic": topic, **options}
    with pytest.raises(Exception) as error:  # noqa: PT011 - pyspark's classes for it change from release to release
        spark.read.format("rocketmq").options(**given).load().collect()
    assert said in str(error.value)


def test_a_stream_goes_on_where_it_was(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    create(cluster.namesrv, cluster.broker_addr, "resume")
    fill(cluster.namesrv, "resume", 100)
    stream = Stream(spark, cluster, "resume", tmp_path)
    if limits(spark):
        assert stream.run(maxOffsetsPerTrigger="30") == [30, 30, 30, 10]
    else:
        with pytest.raises(Exception, match=r"maxOffsetsPerTrigger needs Spark 4\.2 or newer"):
            stream.run(maxOffsetsPerTrigger="30")
        assert stream.run() == [100]
    assert stream.run() == [], "nothing is repeated after a clean stop"
    fill(cluster.namesrv, "resume", 50)
    assert stream.run(startingOffsets="latest") == [50], "the checkpoint goes before the options"
    assert places(stream.rows()) == stored(cluster.namesrv, "resume")


def test_a_stream_begins_where_it_is_told(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    """Spark before 4.2 asks for that when the first batch is planned already."""
    create(cluster.namesrv, cluster.broker_addr, "begins", queues=1)
    fill(cluster.namesrv, "begins", 40)
    (broker,) = {broker for _, broker, _, _ in stored(cluster.namesrv, "begins")}
    new = Stream(spark, cluster, "begins", tmp_path / "new")
    some = Stream(spark, cluster, "begins", tmp_path / "some")
    assert new.run(startingOffsets="latest") == []
    assert some.run(startingOffsets=json.dumps({"begins": {broker: {"0": 30}}})) == [10]
    fill(cluster.namesrv, "begins", 5)
    assert new.run(startingOffsets="latest") == [5]
    assert some.run() == [5]
    assert sorted(row["offset"] for row in some.rows()) == list(range(30, 45))


def test_the_brokers_know_how_far_the_group_is(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    create(cluster.namesrv, cluster.broker_addr, "lagging")
    fill(cluster.namesrv, "lagging", 100)
    stream = Stream(spark, cluster, "lagging", tmp_path)
    stream.run(groupId="spark_group")
    fill(cluster.namesrv, "lagging", 7)
    if not limits(spark):
        stream.run(groupId="spark_group")  # before 4.2 the end of a batch is told with the next one
    shown = subprocess.run(
        [sys.executable, "-m", "rmq.cli.mqadmin", "consumerProgress", "-n", cluster.namesrv, "-g", "spark_group"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "Diff Total: 7" in shown.stdout, shown.stdout
    group = batch(spark, cluster, "lagging", startingOffsets="group", groupId="spark_group")
    assert group.count() == 7


def test_a_topic_made_anew(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    create(cluster.namesrv, cluster.broker_addr, "anew")
    fill(cluster.namesrv, "anew", 300)
    stream = Stream(spark, cluster, "anew", tmp_path)
    stream.run()
    before = stored(cluster.namesrv, "anew")
    delete(cluster.namesrv, cluster.broker_addr, "anew")
    create(cluster.namesrv, cluster.broker_addr, "anew")
    fill(cluster.namesrv, "anew", 200)
    query = stream.start()
    with pytest.raises(Exception, match="DataLost") as error:
        query.awaitTermination(300)
    assert "topic was made anew (failOnDataLoss=false goes on with what is there)" in str(error.value)
    stream.run(failOnDataLoss="false")
    if not limits(spark):
        stream.run()  # the one batch of such a run only went back
    # Offsets count anew: most places are there twice.
    assert places(stream.rows()) == before + stored(cluster.namesrv, "anew")
    assert before.total() == 300
    assert len(stream.rows()) == 500


def test_transactions_and_delays_are_seen_when_they_are_due(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    create(cluster.namesrv, cluster.broker_addr, "later", queues=1)
    halves = Halves(cluster.namesrv, cluster.broker_addr)
    kept, dropped = halves.send("later", b"kept"), halves.send("later", b"dropped")
    fill(cluster.namesrv, "later", 3)
    stream = Stream(spark, cluster, "later", tmp_path)
    assert stream.run() == [3]
    with rmq.Producer("fill", namesrv=cluster.namesrv) as producer, rmq.AdminClient(namesrv=cluster.namesrv) as admin:
        producer.send(rmq.Message("later", b"delayed", delay_level=2))
        visible = stored(cluster.namesrv, "later")
        stream.run()
        assert visible <= places(stream.rows()) <= stored(cluster.namesrv, "later")
        halves.end(kept, commit=True)
        halves.end(dropped, commit=False)
        halves.close()
        (queue,) = admin.fetch_subscribe_message_queues("later")
        while admin.max_offset(queue) < 5:
            producer.send(rmq.Message("tick", b"."))
    stream.run()
    bodies = sorted(bytes(row["value"]).split()[0] for row in stream.rows())
    assert bodies == [b"0", b"1", b"2", b"delayed", b"kept"]
    assert places(stream.rows()) == stored(cluster.namesrv, "later")


def test_a_broker_that_dies_within_a_batch(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    """kill -9 while a batch is being read, and the broker back on the same store: each message once.

    The gate keeps two of its four tasks from beginning, so what they read is still to be asked for.
    """
    create(cluster.namesrv, cluster.broker_addr, "killed", queues=4)
    fill(cluster.namesrv, "killed", 3200, size=12_000)
    (broker,) = cluster.brokers
    given = {"nameServer": cluster.namesrv, "topic": "killed", "startingOffsets": "earliest"}
    frame = spark.readStream.format("rocketmq").options(**given, columns="topic,brokerName,queueId,offset,value").load()
    passed = frame.mapInArrow(gate(tmp_path), frame.schema)
    checkpoint = tmp_path / "checkpoint"
    writer = passed.writeStream.format("parquet").trigger(availableNow=True).option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    while not list(tmp_path.glob("open-*")):
        assert not query.awaitTermination(0.1), "the batch ended without passing the gate"
    broker.daemon.kill()
    assert open_batches(checkpoint) == {"0"}
    (tmp_path / "go").touch()
    knocked(broker.addr)
    assert query.isActive
    assert open_batches(checkpoint) == {"0"}
    broker.daemon.start()
    assert query.awaitTermination(300)
    assert query.exception() is None
    assert [each.numInputRows for each in query.recentProgress] == [3200]
    assert places(spark.read.parquet(str(tmp_path / "out")).collect()) == stored(cluster.namesrv, "killed")
