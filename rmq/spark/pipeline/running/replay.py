"""Runs the job ``replay``: a slice of time after the other, and a note of the last one that was sent whole."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import Observation
from pyspark.sql import functions as sql

from rmq.protocol.errors import ConfigError
from rmq.protocol.properties import SHARDING_KEY
from rmq.protocol.queue import MessageQueue
from rmq.runtime.dial import RealDial
from rmq.spark.cluster.brokers import Brokers, connect
from rmq.spark.options.checked import SourceOptions
from rmq.spark.pipeline.replay import Replay
from rmq.spark.pipeline.running.files import Files
from rmq.spark.pipeline.running.pace import paced
from rmq.spark.pipeline.running.snapshot import read_archive
from rmq.spark.pipeline.running.stop import Stop
from rmq.spark.pipeline.running.watch import BatchFigures, Watch
from rmq.spark.source.resolve import offset_at_time, queues_to_read, store_time

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
#: What a broker stored so short a time ago is left to the next run: its clock may be behind, or a message on its way.
SETTLED = timedelta(seconds=5)
_FOLDER = re.compile(r"/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/[^/]*$")


def work(spark: SparkSession, job: Replay, watch: Watch, stop: Stop) -> None:
    """Send every slice that was not sent before.

    :raises ConfigError: the checkpoint is that of another replay.
    """
    clock = RealDial()
    files = Files(spark, job.checkpoint)
    done, sent = _state(files, job)
    if done > job.from_.start:
        watch.say(f"{sent:,} messages before {_told(done)} were sent by an earlier run")
    # What is to come is no part of this run: a slice that was sent before its messages came is not looked at again.
    now = datetime.now(UTC) - (SETTLED if job.from_.archive is None else timedelta(0))
    last = min(job.from_.end, now.replace(microsecond=now.microsecond // 1000 * 1000))
    source: _Source = _Archive(spark, job) if job.from_.archive is not None else _Topic(spark, job)
    width = timedelta(seconds=job.slice)
    number = 0
    while done < last and not stop.asked:
        first = source.first(done, last)
        if first is None:
            done = last
            break
        # Slices without a message are passed by, also when there are thousands of them.
        done += (first - done) // width * width
        end = min(done + width, last)
        started = clock.monotonic()
        count = _send(_chosen(source.rows(done, end), job), job)
        sent += count
        done = end
        _note(files, job, done, sent)
        watch.batch(BatchFigures(number, count, clock.monotonic() - started, upto=_told(done)))
        number += 1
    _note(files, job, done, sent)
    if done < last:
        watch.say(f"sent up to {_told(done)}, the next run goes on there")
    elif last < job.from_.end:
        watch.say(f"sent up to {_told(done)}; the rest of the range is still to come: run the job again then")


def _told(at: datetime) -> str:
    return f"{at.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


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


class _Source(Protocol):
    def first(self, begin: datetime, end: datetime) -> datetime | None:
        """A time up to which there is nothing; None when there is nothing up to ``end``."""

    def rows(self, begin: datetime, end: datetime) -> DataFrame:
        """The messages of a slice."""


class _Topic:
    """A topic, by the time at which messages were stored."""

    def __init__(self, spark: SparkSession, job: Replay) -> None:
        self._spark = spark
        self._options = job.source_options()
        options = SourceOptions.of(self._options)
        self._brokers = connect(options.endpoint)
        _refuse_itself(self._brokers, job)
        self._queues = queues_to_read(self._brokers, options)
        self._group = options.group
        self._next: dict[MessageQueue, int] = {}

    def first(self, begin: datetime, end: datetime) -> datetime | None:
        moment = round(begin.timestamp() * 1000)
        behind = [queue for queue in self._queues if self._next.get(queue, moment) <= moment]
        least, most = self._brokers.min_offsets(behind), self._brokers.max_offsets(behind)
        for queue in behind:
            if queue not in least or queue not in most:
                return begin  # its broker is away: the read waits for it, and says so
            offset = offset_at_time(self._brokers, self._group, queue, moment, least[queue], most[queue].offset)
            if offset < most[queue].offset:
                self._next[queue] = store_time(self._brokers, self._group, queue, offset)
            else:
                self._next.pop(queue, None)
        first = min(self._next.values(), default=None)
        if first is None or first >= round(end.timestamp() * 1000):
            return None
        return max(begin, datetime.fromtimestamp(first / 1000, UTC))

    def rows(self, begin: datetime, end: datetime) -> DataFrame:
        millis = {
            name: str(max(0, round(at.timestamp() * 1000))) for name, at in (("starting", begin), ("ending", end))
        }
        times = {f"{name}Timestamp": value for name, value in millis.items()}
        return self._spark.read.format("rocketmq").options(**self._options, **times).load()


def _refuse_itself(brokers: Brokers, job: Replay) -> None:
    """:raises ConfigError: the other name servers are of the same cluster under another address."""
    topic = job.from_.topic
    if topic is None or job.to.name_server is None or job.to.topic not in (None, topic):
        return
    there = connect(SourceOptions.of(job.source_options() | {"nameServer": job.to.name_server}).endpoint)
    routes = [each.route(topic) for each in (brokers, there)]
    ours, theirs = (
        {address for data in (route.broker_datas if route else ()) for address in data.broker_addrs.values()}
        for route in routes
    )
    if ours & theirs:
        raise ConfigError(
            f"to.nameServer: {job.to.name_server} has the same brokers: the topic {topic} would be sent into itself: "
            "give another topic"
        )


class _Archive:
    """An archive, by the time of the event.

    :raises ConfigError: it is none.
    """

    def __init__(self, spark: SparkSession, job: Replay) -> None:
        rows = read_archive(spark, str(job.from_.archive))
        topics = job.from_.archived_topics
        self._rows = rows.where(sql.col("topic").isin(*topics)) if topics else rows
        folders = {found.groups() for path in rows.inputFiles() if (found := _FOLDER.search(path))}
        self._hours = sorted(datetime.fromisoformat(f"{date}T{hour}:00:00+00:00") for date, hour in folders)

    def first(self, begin: datetime, end: datetime) -> datetime | None:
        at = bisect_left(self._hours, begin.replace(minute=0, second=0, microsecond=0))
        return max(begin, self._hours[at]) if at < len(self._hours) and self._hours[at] < end else None

    def rows(self, begin: datetime, end: datetime) -> DataFrame:
        # The folders are looked at by name, so that only those of the slice are read.
        folder = sql.concat_ws("T", sql.col("date").cast("string"), sql.lpad(sql.col("hour").cast("string"), 2, "0"))
        within = (sql.col("eventTime") >= sql.lit(begin)) & (sql.col("eventTime") < sql.lit(end))
        return self._rows.where(folder.between(begin.isoformat()[:13], end.isoformat()[:13]) & within)


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
    key = sql.coalesce(sql.col("properties")[SHARDING_KEY], queue)
    columns = [
        sql.col("value"),
        sql.col("tags"),
        sql.col("keys"),
        sql.map_concat(sql.coalesce(kept, sql.create_map()), sql.create_map(*origin)).alias("properties"),
    ]
    if job.to.topic is None:
        columns.append(sql.col("topic"))
    if ordered:
        # All of a queue in one task, in its order; the target keeps together what has one sharding key, else the queue.
        rows = rows.repartition("topic", "brokerName", "queueId").sortWithinPartitions("offset")
        columns.append(key.alias("shardingKey"))
    observed = Observation()
    found = rows.select(*columns).observe(observed, sql.count(sql.lit(1)).alias("rows"))
    if job.to.max_rate is not None:
        found = found.coalesce(1).mapInArrow(paced(job.to.max_rate), found.schema)
    found.write.format("rocketmq").options(**job.sink_options()).mode("append").save()
    return int(observed.get["rows"])
