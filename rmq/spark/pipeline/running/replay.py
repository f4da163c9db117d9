"""Runs the job ``replay``: a slice of time after the other, and a note of the last one that was sent whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as sql

from rmq.protocol.errors import ConfigError
from rmq.runtime.dial import RealDial
from rmq.spark.pipeline.replay import Replay
from rmq.spark.pipeline.running.files import Files
from rmq.spark.pipeline.running.pace import paced
from rmq.spark.pipeline.running.stop import Stop
from rmq.spark.pipeline.running.watch import Batch, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ORIGIN", "work"]

#: Property to column: where a replayed message came from.
ORIGIN = {
    "RMQ_REPLAY_TOPIC": "topic",
    "RMQ_REPLAY_BROKER": "brokerName",
    "RMQ_REPLAY_QUEUE": "queueId",
    "RMQ_REPLAY_OFFSET": "offset",
}
_STATE = "replay.json"


def work(spark: SparkSession, job: Replay, watch: Watch, stop: Stop) -> None:
    """Send every slice that was not sent before.

    :raises ConfigError: the checkpoint is that of another replay.
    """
    clock = RealDial()
    files = Files(spark, job.checkpoint)
    done, sent = _state(files, job)
    slices = list(_slices(done, job.from_.end, timedelta(seconds=job.slice)))
    if done > job.from_.start:
        watch.say(f"{sent:,} messages before {done:%Y-%m-%dT%H:%M:%S}Z were sent by an earlier run")
    archive = _archive(spark, job) if job.from_.archive is not None else None
    for number, (begin, end) in enumerate(slices):
        if stop.asked:
            return
        started = clock.monotonic()
        rows = _of_topic(spark, job, begin, end) if archive is None else _of_archive(archive, begin, end)
        count = _send(_chosen(rows, job), job)
        sent += count
        _note(files, job, end, sent)
        watch.batch(Batch(number, count, clock.monotonic() - started))


def _slices(begin: datetime, end: datetime, width: timedelta) -> Iterator[tuple[datetime, datetime]]:
    while begin < end:
        yield begin, min(begin + width, end)
        begin += width


# -- which slices were sent ---------------------------------------------------------------------------------------


def _fingerprint(job: Replay) -> dict[str, Any]:
    """What must not change between two runs of one replay."""
    part, to = job.from_, job.to
    return {
        "from": part.topic or part.archive,
        "topics": part.archived_topics,
        "start": part.start.isoformat(),
        "end": part.end.isoformat(),
        "tags": part.tags,
        "keys": part.keys_,
        "filter": part.sub_expression or part.sql92,
        "to": to.topic,
        "cluster": to.name_server or job.cluster.name_server,
    }


def _state(files: Files, job: Replay) -> tuple[datetime, int]:
    """(end of the last whole slice, messages sent up to it)."""
    if not files.exists(_STATE):
        return job.from_.start, 0
    state = json.loads(files.read(_STATE))
    if state["replay"] != json.loads(json.dumps(_fingerprint(job))):
        raise ConfigError(f"the checkpoint {job.checkpoint} is that of another replay: give this one its own folder")
    return datetime.fromisoformat(state["done"]), int(state["sent"])


def _note(files: Files, job: Replay, done: datetime, sent: int) -> None:
    files.write(_STATE, json.dumps({"replay": _fingerprint(job), "done": done.isoformat(), "sent": sent}))


# -- rows ---------------------------------------------------------------------------------------------------------


def _of_topic(spark: SparkSession, job: Replay, begin: datetime, end: datetime) -> DataFrame:
    millis = {name: str(round(at.timestamp() * 1000)) for name, at in (("starting", begin), ("ending", end))}
    times = {f"{name}Timestamp": value for name, value in millis.items()}
    return spark.read.format("rocketmq").options(**job.source_options(), **times).load()


def _archive(spark: SparkSession, job: Replay) -> DataFrame:
    rows = spark.read.parquet(str(job.from_.archive))
    missing = [name for name in ("eventTime", "topic", "date", "hour", "offset") if name not in rows.columns]
    if missing:
        raise ConfigError(f"{job.from_.archive} has no column {missing[0]}: it is no archive of the job archive")
    return rows.where(sql.col("topic").isin(*job.from_.archived_topics)) if job.from_.archived_topics else rows


def _of_archive(rows: DataFrame, begin: datetime, end: datetime) -> DataFrame:
    # The folders are looked at by name, so that only those of the slice are read.
    folder = sql.concat_ws("T", sql.col("date").cast("string"), sql.lpad(sql.col("hour").cast("string"), 2, "0"))
    within = (sql.col("eventTime") >= sql.lit(begin)) & (sql.col("eventTime") < sql.lit(end))
    return rows.where(folder.between(f"{begin:%Y-%m-%dT%H}", f"{end:%Y-%m-%dT%H}") & within)


def _chosen(rows: DataFrame, job: Replay) -> DataFrame:
    if job.from_.tags is not None:
        rows = rows.where(sql.col("tags").isin(*job.from_.tags))
    if job.from_.keys_ is not None:
        wanted = sql.array(*(sql.lit(one) for one in job.from_.keys_))
        rows = rows.where(sql.arrays_overlap(sql.split("keys", " "), wanted))
    return rows


def _send(rows: DataFrame, job: Replay) -> int:
    """Send rows; how many there were."""
    ordered = job.to.order == "queue"
    origin = [part for name, column in ORIGIN.items() for part in (sql.lit(name), sql.col(column).cast("string"))]
    kept = sql.map_filter("properties", lambda name, _: ~name.rlike("^RMQ_(REPLAY|SPARK)_"))
    queue = sql.concat_ws("-", "topic", "brokerName", "queueId")
    columns = [
        sql.col("value"),
        sql.col("tags"),
        sql.col("keys"),
        sql.map_concat(sql.coalesce(kept, sql.create_map()), sql.create_map(*origin)).alias("properties"),
    ]
    if job.to.topic is None:
        columns.append(sql.col("topic"))
    if ordered:
        # All of a queue in one task, in its order; one key keeps it together in the target.
        rows = rows.repartition("topic", "brokerName", "queueId").sortWithinPartitions("offset")
        columns.append(queue.alias("shardingKey"))
    observed = Observation()
    found = rows.select(*columns).observe(observed, sql.count(sql.lit(1)).alias("rows"))
    if job.to.max_rate is not None:
        found = found.coalesce(1).mapInArrow(paced(job.to.max_rate), found.schema)
    found.write.format("rocketmq").options(**job.sink_options()).mode("append").save()
    return int(observed.get["rows"])
