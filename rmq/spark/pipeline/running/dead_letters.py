"""Runs the job ``dead-letters``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from rmq.protocol.bodies.connection import ConsumerConnection
from rmq.protocol.codes import RequestCode, ResponseCode, version_name
from rmq.protocol.errors import ResponseError, RMQError, StoreError
from rmq.protocol.headers.client import GetConsumerConnectionListRequest
from rmq.protocol.names import DLQ_PREFIX, dlq_topic, retry_topic
from rmq.protocol.sysflags import PERM_WRITE
from rmq.runtime.dial import RealDial
from rmq.spark.cluster.brokers import Brokers, connect
from rmq.spark.options.checked import SourceOptions
from rmq.spark.pipeline.dead_letters import DeadLetters
from rmq.spark.pipeline.running import charts
from rmq.spark.pipeline.running.report import Cause, Dead, Report, Unread, page, to_json, when
from rmq.spark.pipeline.running.stop import Stop
from rmq.spark.pipeline.running.watch import BatchFigures, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["work"]

#: No bodies: what people wrote to each other does not belong into a report.
_COLUMNS = (
    "topic string, timestamp timestamp, keys string, tags string, reconsumeTimes int, bornHost string, "
    "properties map<string,string>"
)

_OVER_TIME, _BY_GROUP = "Dead letters over time", "Dead letters by group"


def work(spark: SparkSession, job: DeadLetters, watch: Watch, stop: Stop) -> None:
    """Write the report.

    :raises ConfigError: charts are asked for and matplotlib is missing.
    :raises StoreError: the report cannot be written.
    """
    if job.charts:
        charts.require()
    try:
        os.makedirs(job.report, exist_ok=True)
    except OSError as error:
        raise StoreError(f"report: the folder {job.report} cannot be made: {error.strerror}") from error
    started = RealDial().monotonic()
    made = datetime.now(UTC)
    endpoint = SourceOptions.of(job.cluster.options() | {"topic": "any"}).endpoint
    brokers = connect(endpoint)
    there = brokers.dead_letter_topics()
    wanted = [dlq_topic(group) for group in job.groups] if job.groups is not None else there
    here = [topic for topic in wanted if topic in there]
    unread = [closed for topic in here if (closed := _unread(brokers, topic)) is not None]
    shut = {each.group for each in unread if each.whole}
    read = [topic for topic in here if topic.removeprefix(DLQ_PREFIX) not in shut]
    groups = _analyse(_rows(spark, job, read), job) if read else []
    if job.connections:
        for dead in groups:
            _ask_who_is_connected(brokers, dead)
    found = {dead.group for dead in groups}
    quiet = sorted({topic.removeprefix(DLQ_PREFIX) for topic in wanted} - found - shut)
    report = Report(made, job.cluster.name_server, job.since, job.until, groups, quiet, unread)
    _write(report, job)
    watch.batch(BatchFigures(0, report.count, RealDial().monotonic() - started))
    for dead in groups:
        watch.say(
            f"{dead.group} gave up on {dead.count:,} messages since {when(dead.first)}, last {when(dead.last)}; "
            + (dead.unknown or f"{len(dead.consumers)} connected now")
        )
    for closed in unread:
        watch.say(closed.text())
    if not (groups or unread):
        watch.say("there are no dead letters")
    watch.say(f"the report is {os.path.join(job.report, 'report.html')}")


def _unread(brokers: Brokers, topic: str) -> Unread | None:
    """What a dead-letter topic keeps back: old Java brokers made them without the permission to read."""
    closed, served = brokers.not_readable(topic)
    if not closed:
        return None
    queues = [queue for queue in brokers.queues(topic, PERM_WRITE) or () if queue.broker_name in closed]
    least, most = brokers.min_offsets(queues), brokers.max_offsets(queues)
    known = sum(most[queue].offset - least[queue] for queue in queues if queue in least and queue in most)
    return Unread(topic.removeprefix(DLQ_PREFIX), closed, len(closed) == served, known)


def _rows(spark: SparkSession, job: DeadLetters, topics: Sequence[str]) -> DataFrame:
    # What expires meanwhile is no longer there to be told of.
    options = job.cluster.options() | {"topic": ",".join(topics), "failOnDataLoss": "false"}
    for name, at in (("startingTimestamp", job.since), ("endingTimestamp", job.until)):
        if at is not None:
            options[name] = str(round(at.timestamp() * 1000))
    rows = spark.read.format("rocketmq").options(**options).schema(_COLUMNS).load()
    origin = sql.coalesce(sql.col("properties")["DLQ_ORIGIN_TOPIC"], sql.col("properties")["RETRY_TOPIC"], sql.lit("?"))
    return rows.select(
        sql.substring("topic", len(DLQ_PREFIX) + 1, 255).alias("group"),
        sql.col("timestamp").alias("at"),
        origin.alias("topic"),
        sql.coalesce("tags", sql.lit("")).alias("tag"),
        sql.regexp_replace("bornHost", r":\d+$", "").alias("bornHost"),
        "keys",
        sql.col("reconsumeTimes").alias("tried"),
    )


def _analyse(rows: DataFrame, job: DeadLetters) -> list[Dead]:
    """The groups, the worst first."""
    rows = rows.cache()
    try:
        number, first, last = (sql.count(sql.lit(1)), sql.min("at"), sql.max("at"))
        by_group = {
            row["group"]: Dead(row["group"], row["n"], _utc(row["first"]), _utc(row["last"]), row["tried"])
            for row in rows.groupBy("group")
            .agg(number.alias("n"), first.alias("first"), last.alias("last"), sql.max("tried").alias("tried"))
            .collect()
        }
        causes = rows.groupBy("group", "topic", "tag", "bornHost").agg(
            number.alias("n"), first.alias("first"), last.alias("last")
        )
        for row in _top(causes, job.top):
            by_group[row["group"]].causes.append(
                Cause(row["topic"], row["tag"], row["bornHost"], row["n"], _utc(row["first"]), _utc(row["last"]))
            )
        key = sql.explode(sql.split("keys", " ")).alias("key")
        for row in _top(
            rows.select("group", key).where("key != ''").groupBy("group", "key").agg(number.alias("n")), job.top
        ):
            by_group[row["group"]].keys.append((row["key"], row["n"]))
        spans = rows.groupBy("group", sql.window("at", f"{round(job.bucket * 1000)} milliseconds").alias("span")).agg(
            number.alias("n")
        )
        for row in spans.orderBy("span.start").collect():
            by_group[row["group"]].bars.append((_utc(row["span"]["start"]), row["n"]))
        return sorted(by_group.values(), key=lambda dead: (-dead.count, dead.group))
    finally:
        rows.unpersist()


def _top(rows: DataFrame, most: int) -> list[Any]:
    """The most frequent rows of each group."""
    from pyspark.sql.window import Window

    place = sql.row_number().over(Window.partitionBy("group").orderBy(sql.desc("n"), *rows.columns[1:-1]))
    return list(rows.withColumn("place", place).where(sql.col("place") <= most).orderBy("group", "place").collect())


def _utc(at: datetime) -> datetime:
    """Spark hands out local times without a zone."""
    return at.astimezone(UTC)


def _ask_who_is_connected(brokers: Brokers, dead: Dead) -> None:
    """Fill in the consumers of a group; why not, when no broker tells."""
    topic = retry_topic(dead.group)
    try:
        queues = brokers.queues(topic)
        if not queues:
            dead.unknown = "no consumer was ever connected"
            return
        header = GetConsumerConnectionListRequest(consumer_group=brokers.endpoint.wrap(dead.group))
        reply = brokers.call(brokers.master(queues[0]), RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    except ResponseError as error:
        offline = error.code == ResponseCode.CONSUMER_NOT_ONLINE
        dead.unknown = "nobody is connected" if offline else f"cannot be asked: {error}"
    except RMQError as error:
        dead.unknown = f"cannot be asked: {error}"
    else:
        dead.consumers = sorted(
            f"{one.client_id} at {one.client_addr}, {one.language or 'unknown'} {version_name(one.version)}"
            for one in ConsumerConnection.decode(reply.body).connection_set
        )


def _write(report: Report, job: DeadLetters) -> None:
    images: dict[str, bytes] = {}
    if job.charts and report.groups:
        images = {
            _OVER_TIME: charts.stacked(
                _OVER_TIME, {dead.group: dead.bars for dead in report.groups}, job.bucket, "dead letters"
            ),
            _BY_GROUP: charts.bars(
                _BY_GROUP, {dead.group: dead.count for dead in report.groups[: job.top]}, "dead letters"
            ),
        }
    for title in (_OVER_TIME, _BY_GROUP):
        path = os.path.join(job.report, title.lower().replace(" ", "-") + ".png")
        if title in images:
            _put(path, images[title])
        elif os.path.exists(path):  # of a report before, which would pass for one of this
            os.remove(path)
    _put(os.path.join(job.report, "report.json"), to_json(report).encode())
    _put(os.path.join(job.report, "report.html"), page(report, images).encode())


def _put(path: str, data: bytes) -> None:
    """Write a file that readers see whole. :raises StoreError: says which and why not."""
    try:
        with open(path + ".tmp", "wb") as file:
            file.write(data)
        os.replace(path + ".tmp", path)
    except OSError as error:
        with suppress(OSError):  # half of it would go on taking the room that there is too little of
            os.remove(path + ".tmp")
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
