"""The same source and sink against Java 4.9.4, with a slave that goes on when its master dies."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmq
from rmq.protocol.codes import RequestCode
from rmq.protocol.headers.offset import GetMaxOffsetRequest, GetMaxOffsetResponse
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import Endpoint
from rmq.spark.pipeline import catalog, document
from rmq.spark.pipeline.running.runner import run_in
from tests.support.peers.clients import start_client
from tests.support.peers.cluster import Cluster, start_broker, start_cluster
from tests.support.peers.tools import ToolMissing, skip_or_fail
from tests.support.spark.gate import gate
from tests.support.spark.queries import to_the_end
from tests.support.spark.refusals import LARGEST, check_refusals
from tests.support.spark.topics import create, fill, numbers, open_batches, places, stored

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """A Java master and its slave; the slave is the second broker."""
    try:
        # Without options it speaks TLS, too.
        properties = {"brokerIP2": "127.0.0.1", "maxMessageSize": str(LARGEST)}
        made = start_cluster("java-4.9.4", properties=properties, java_options=())
    except ToolMissing as error:
        skip_or_fail(error)
    with made:
        slave = {"brokerName": "broker-a", "brokerId": "1", "brokerRole": "SLAVE", "slaveReadEnable": "true"}
        made.brokers.append(start_broker(made, "broker-a-slave", slave))
        yield made


def test_java_is_read_and_written(spark: Any, pair: Cluster) -> None:
    create(pair.namesrv, pair.broker_addr, "java")
    rows = spark.range(0, 1000).selectExpr("cast(id as string) as value", "concat('s', id % 5) as shardingKey")
    given = {"nameServer": pair.namesrv, "topic": "java"}
    rows.write.format("rocketmq").options(**given).mode("append").save()
    there = stored(pair.namesrv, "java", least=1000)
    got = spark.read.format("rocketmq").options(**given).load().collect()
    assert places(got) == there
    assert sorted(numbers(got)) == list(range(1000))


def test_rows_that_java_refuses(spark: Any, pair: Cluster) -> None:
    check_refusals(spark, pair)


def test_a_filtered_stream_goes_on_and_java_shows_how_far_it_is(spark: Any, pair: Cluster, tmp_path: Path) -> None:
    """Restarts from a checkpoint, tags, a condition, and the group's lag as Apache's mqadmin sees it."""
    create(pair.namesrv, pair.broker_addr, "resumed")
    given = {"nameServer": pair.namesrv, "topic": "resumed"}

    def send(first: int, count: int) -> None:
        with rmq.Producer("resumed", namesrv=pair.namesrv) as producer:
            for n in range(first, first + count):
                message = rmq.Message("resumed", b"%d" % n, tags="B" if n % 5 == 0 else "A", properties={"n": str(n)})
                producer.send(message)
        stored(pair.namesrv, "resumed", least=first + count)

    def run(start: str = "earliest") -> int:
        stream = spark.readStream.format("rocketmq").options(**given, groupId="spark_java", subExpression="B || C")
        writer = stream.option("startingOffsets", start).load().drop("properties").writeStream.format("parquet")
        places = {"checkpointLocation": str(tmp_path / "checkpoint"), "path": str(tmp_path / "out")}
        query = to_the_end(writer.options(**places).trigger(availableNow=True).start)
        return sum(each.numInputRows for each in query.recentProgress)

    send(0, 100)
    assert run() == 20
    assert run() == 0, "nothing is repeated after a clean stop"
    send(100, 50)
    assert run("latest") == 10, "the checkpoint goes before the options"
    assert sorted(numbers(spark.read.parquet(str(tmp_path / "out")).collect())) == list(range(0, 150, 5))
    condition = spark.read.format("rocketmq").options(**given, sql92="n > 140 AND TAGS = 'A'").load()
    assert sorted(numbers(condition.collect())) == [141, 142, 143, 144, 146, 147, 148, 149]
    send(150, 7)
    # Before 4.2 the offsets of a run's last batch are reported with the next batch (docs/spark/promises.md).
    behind = 57 if spark.version.startswith(("4.0", "4.1")) else 7
    with start_client("java-4.9.8") as reader:
        shown = reader.call("mqadmin", namesrv=pair.namesrv, args=["consumerProgress", "-g", "spark_java"])["output"]
    assert shown.rstrip().endswith(f"Diff Total: {behind}"), shown
    group = spark.read.format("rocketmq").options(**given, groupId="spark_java", startingOffsets="group").load()
    assert sorted(numbers(group.collect())) == list(range(157 - behind, 157))


def test_a_ready_job_and_tls(spark: Any, pair: Cluster, tmp_path: Path) -> None:
    """An archive of a Java broker's topic, and the same topic over TLS: 4.9.4 makes itself a certificate."""
    create(pair.namesrv, pair.broker_addr, "archived")
    fill(pair.namesrv, "archived", 300)
    there = stored(pair.namesrv, "archived", least=300)
    text = (
        f"job: archive\ncluster:\n  nameServer: {pair.namesrv}\nsource:\n  topics: [archived]\n"
        f"  startingOffsets: earliest\ntrigger: once\ncheckpoint: {tmp_path}/checkpoint\npath: {tmp_path}/archive\n"
    )
    watch = run_in(spark, catalog.of("job.yaml", document.parse("job.yaml", text, {})), io.StringIO())
    assert watch.rows == 300
    assert places(spark.read.parquet(str(tmp_path / "archive")).collect()) == there
    given = {"nameServer": pair.namesrv, "topic": "archived", "useTLS": "true", "tlsVerify": "false"}
    tls = spark.read.format("rocketmq").options(**given).load()
    assert places(tls.collect()) == there


def test_a_master_that_dies_within_a_batch_leaves_its_slave(spark: Any, pair: Cluster, tmp_path: Path) -> None:
    create(pair.namesrv, pair.broker_addr, "lost")
    fill(pair.namesrv, "lost", 4000, size=12_000)
    there = stored(pair.namesrv, "lost", least=4000)
    assert len(there) == 4000
    given = {"nameServer": pair.namesrv, "topic": "lost", "startingOffsets": "earliest"}
    frame = spark.readStream.format("rocketmq").options(**given, columns="topic,brokerName,queueId,offset,value").load()
    writer = frame.mapInArrow(gate(tmp_path), frame.schema).writeStream.format("parquet").trigger(availableNow=True)
    checkpoint = tmp_path / "checkpoint"
    query = writer.option("checkpointLocation", str(checkpoint)).option("path", str(tmp_path / "out")).start()
    while not list(tmp_path.glob("open-*")):
        assert not query.awaitTermination(0.1), "the batch ended without passing the gate"
    master, slave = pair.brokers
    copied(pair.namesrv, slave.addr, "lost", 4000)
    master.daemon.kill()
    assert open_batches(checkpoint) == {"0"}
    (tmp_path / "go").touch()
    assert query.awaitTermination(300)
    assert query.exception() is None
    assert places(spark.read.parquet(str(tmp_path / "out")).collect()) == there


def copied(namesrv: str, slave: str, topic: str, count: int) -> None:
    """Wait until a slave has all messages of a topic, and knows it: topics come every ten seconds."""
    brokers = Brokers(Endpoint((namesrv,)))
    headers = [GetMaxOffsetRequest(topic=topic, queue_id=number) for number in (0, 1)]
    while True:
        replies = [brokers.call(slave, RequestCode.GET_MAX_OFFSET, header) for header in headers]
        if sum(reply.header(GetMaxOffsetResponse).offset for reply in replies) == count:
            break
        time.sleep(0.1)
    while f'"{topic}"'.encode() not in brokers.call(slave, RequestCode.GET_ALL_TOPIC_CONFIG).body:
        time.sleep(0.1)
    brokers.close()
