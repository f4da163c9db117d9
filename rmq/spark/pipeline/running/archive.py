"""Runs the job ``archive``."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from rmq.protocol.errors import ConfigError
from rmq.runtime.dial import RealDial
from rmq.spark.pipeline.archive import Archive
from rmq.spark.pipeline.job import ONCE
from rmq.spark.pipeline.running.compaction import PREFIX, Compactor
from rmq.spark.pipeline.running.files import Files
from rmq.spark.pipeline.running.staging import Staging
from rmq.spark.pipeline.running.streams import Running, trigger
from rmq.spark.pipeline.running.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FOLDERS", "start"]

log = logging.getLogger(__name__)

#: The columns that are folders.
FOLDERS = ("topic", "date", "hour")
_QUERY_ID = "sql.streaming.queryId"


def start(spark: SparkSession, job: Archive, watch: Watch) -> Running:
    """The running query."""
    archivist = _Archivist(spark, job, watch)
    rows = spark.readStream.format("rocketmq").options(**job.source_options()).load()
    event = event_time(job.event_time)
    placed = (
        rows.withColumn("eventTime", event)
        .withColumn("date", sql.date_format("eventTime", "yyyy-MM-dd"))
        .withColumn("hour", sql.date_format("eventTime", "HH"))
    )
    writer = trigger(placed.writeStream.queryName(job.title()), job.trigger)
    query = writer.option("checkpointLocation", job.checkpoint).foreachBatch(archivist).start()
    return Running(query, archivist.compact)


def event_time(words: str) -> Column:
    """The column of the event's time, by the words of the job file."""
    if not words.startswith("$"):
        return sql.col(words)
    text = sql.get_json_object(sql.col("value").cast("string"), words)
    millis = sql.timestamp_millis(text.try_cast("bigint"))
    return sql.coalesce(millis, text.try_cast("timestamp"), sql.col("bornTimestamp"))


class _Archivist:
    """Puts each batch into the archive."""

    def __init__(self, spark: SparkSession, job: Archive, watch: Watch) -> None:
        self._spark = spark
        self._job = job
        self._watch = watch
        self._files = Files(spark, job.path)
        self._clock = RealDial()
        self._parts: tuple[Staging, Compactor] | None = None
        self._codec = "uncompressed" if job.compression == "none" else job.compression

    def _ready(self) -> tuple[Staging, Compactor]:
        if self._parts is None:
            owner = self._spark.sparkContext.getLocalProperty(_QUERY_ID)
            if not owner:
                raise ConfigError("Spark does not tell the id of the query: run the job with Spark's classic mode")
            staging = Staging(self._files, owner)
            compactor = Compactor(self._spark, self._files, staging, self._job.compaction, self._codec)
            if staging.others():
                self._watch.say(
                    f"the archive {self._job.path} was written under other checkpoints before: "
                    "what they have read and this one reads again is in it twice"
                )
            staging.recover(PREFIX)
            self._parts = staging, compactor
        return self._parts

    def __call__(self, rows: DataFrame, number: int) -> None:
        staging, compactor = self._ready()

        def write(address: str) -> None:
            writer = rows.write.option("compression", self._codec).partitionBy(*FOLDERS)
            writer.parquet(address)

        compactor.touched(staging.publish(f"batch-{number}", write))
        # Batch n begins when n - 1 is committed: it is never asked for again.
        staging.forget(f"batch-{number - 1}")
        if self._job.trigger != ONCE and compactor.due(self._clock.monotonic()):
            self.compact()

    def compact(self) -> None:
        """Join small files. That may fail without harm: the archive is whole either way."""
        if self._parts is None:
            return
        try:
            joined = self._parts[1].work(datetime.now(UTC))
        except Exception as error:
            log.warning("small files of %s stay as they are: %s", self._job.path, error)
            return
        if joined:
            self._watch.say(f"{joined} small files joined", compacted=joined)
