"""Runs the job ``archive``."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from rmq.protocol.errors import ConfigError, StoreError
from rmq.runtime.dial import RealDial
from rmq.spark.options.positions import OTHERS, nested
from rmq.spark.pipeline.archive import Archive
from rmq.spark.pipeline.job import ONCE
from rmq.spark.pipeline.running import times
from rmq.spark.pipeline.running.compaction import Compactor
from rmq.spark.pipeline.running.files import Files
from rmq.spark.pipeline.running.staging import Staging
from rmq.spark.pipeline.running.streams import Running, trigger
from rmq.spark.pipeline.running.watch import OBSERVED, Watch
from rmq.spark.source.advance import read_offsets

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
    found = event_time(job.event_time)
    placed = (
        rows.observe(OBSERVED, sql.count_if(found.isNull()).alias("undated"))
        .withColumn("eventTime", sql.coalesce(found, times.within(sql.col("bornTimestamp")), "timestamp"))
        .withColumn("date", times.date(sql.col("eventTime")))
        .withColumn("hour", times.hour(sql.col("eventTime")))
    )
    writer = trigger(placed.writeStream.queryName(job.title()), job.trigger)
    query = writer.option("checkpointLocation", job.checkpoint).foreachBatch(archivist).start()
    return Running(query, archivist.compact)


def event_time(words: str) -> Column:
    """The column of the event's time, by the words of the job file; null where a message does not tell it."""
    if not words.startswith("$"):
        return times.within(sql.col(words))
    return times.of_text(sql.get_json_object(sql.col("value").cast("string"), words))


def query_id(checkpoint: Files) -> str | None:
    """The id of the query that a checkpoint is of; None where there is none yet, or it is damaged, which Spark says."""
    try:
        return str(json.loads(checkpoint.read("metadata"))["id"]) if checkpoint.exists("metadata") else None
    except (ValueError, KeyError, TypeError):
        return None


def planned_end(checkpoint: Files, number: int) -> dict[str, Any] | None:
    """The offsets that a checkpoint lets a batch end at, as they begin another read that leaves nothing out.

    :returns: None where the checkpoint does not tell them as a line of their own.
    """
    try:
        *_, last = checkpoint.read(f"offsets/{number}").splitlines()
        # Queues that the query does not know yet: a stream would begin at their end.
        return {OTHERS: "earliest", **nested(read_offsets(json.loads(last)))}
    except (ValueError, ConfigError, FileNotFoundError) as error:
        log.warning(
            "%s does not tell where batch %d ends (%s): should the checkpoint be put back to an older state, "
            "that is not noticed, and messages may be left out of the archive",
            checkpoint.full(f"offsets/{number}"),
            number,
            error,
        )
        return None


class _Archivist:
    """Puts each batch into the archive."""

    def __init__(self, spark: SparkSession, job: Archive, watch: Watch) -> None:
        self._spark = spark
        self._job = job
        self._watch = watch
        self._files = Files(spark, job.path)
        self._checkpoint = Files(spark, job.checkpoint)
        self._clock = RealDial()
        self._parts: tuple[Staging, Compactor] | None = None
        self._codec = "uncompressed" if job.compression == "none" else job.compression
        # A query that began before is known by its checkpoint: what was cut off is finished though nothing new comes.
        owner = query_id(self._checkpoint)
        if owner is not None:
            self._parts = self._of(owner)

    def _of(self, owner: str) -> tuple[Staging, Compactor]:
        """What looks after the files of a query."""
        staging = Staging(self._files, owner)
        if staging.others():
            self._watch.say(
                f"the archive {self._job.path} was written under other checkpoints, too: "
                "what they have read and this one reads again is in it twice"
            )
        staging.settle()
        return staging, Compactor(self._spark, self._files, staging, self._job.compaction, self._codec)

    def __call__(self, rows: DataFrame, number: int) -> None:
        if self._parts is None:
            owner = self._spark.sparkContext.getLocalProperty(_QUERY_ID)
            if not owner:
                raise ConfigError("Spark does not tell the id of the query: run the job with Spark's classic mode")
            self._parts = self._of(owner)
        staging, compactor = self._parts
        self._is_settled(staging)

        def write(address: str) -> None:
            writer = rows.write.option("compression", self._codec).partitionBy(*FOLDERS)
            try:
                writer.parquet(address)
            except Exception as error:
                if "No space left on device" in str(error):
                    raise StoreError(
                        f"no space left on device for {self._job.path}: make room and start again, nothing is lost"
                    ) from error
                raise

        compactor.touched(staging.batch(number, planned_end(self._checkpoint, number), write))
        if self._job.trigger != ONCE and compactor.due(self._clock.monotonic()):
            self.compact()

    def compact(self) -> None:
        """Join small files. That may fail without harm: the archive is whole either way."""
        if self._parts is None:
            return
        staging, compactor = self._parts
        if not self._is_settled(staging):
            return
        try:
            joined = compactor.work(datetime.now(UTC))
        except Exception as error:
            log.warning("joining small files of %s failed: %s", self._job.path, error)
            self._is_settled(staging)
            return
        if joined:
            self._watch.say(f"{joined} small files joined", compacted=joined)

    def _is_settled(self, staging: Staging) -> bool:
        """Whether nothing is left of what failed before: until then nothing is joined, and new files do no harm."""
        if staging.unsettled:
            try:
                staging.settle()
            except Exception as error:
                log.warning(
                    "%s: files that were replaced cannot be removed: %s; this is tried again with every batch, and "
                    "readers see rows twice until then",
                    self._job.path,
                    error,
                )
        return not staging.unsettled
