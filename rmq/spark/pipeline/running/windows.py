"""Runs the job ``windows``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmq.protocol.errors import ConfigError
from rmq.spark.pipeline.job import ONCE
from rmq.spark.pipeline.running import times
from rmq.spark.pipeline.running.streams import Running, trigger
from rmq.spark.pipeline.running.watch import OBSERVED, Watch
from rmq.spark.pipeline.windows import Aggregate, Windows
from rmq.spark.source.readers import LIMITS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["group_key", "start"]

_CORRUPT = "_rmq_corrupt"
_STORED = "_rmq_stored"
#: How fields come out of JSON: times that are numbers as numbers.
_TYPES = {
    "string": StringType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "epochMillis": LongType(),
    "epochSeconds": LongType(),
}
_TIME_TYPES = ("timestamp", "epochMillis", "epochSeconds")
_PARTS = {"epochMillis": 1000, "epochSeconds": 1}


def start(spark: SparkSession, job: Windows, watch: Watch) -> Running:
    """The running query. :raises ConfigError: this Spark would leave the last windows open."""
    if job.trigger == ONCE and job.mode == "append" and not LIMITS:
        raise ConfigError(
            f"trigger: once needs Spark 4.2 or newer for windows in the mode append; this is {pyspark.__version__}: "
            "give a duration such as 30s, or mode: update"
        )
    rows = (
        spark.readStream.format("rocketmq")
        .options(**job.source_options())
        .schema("value binary, timestamp timestamp")
        .load()
    )
    events = readable(rows, job).withWatermark(_quoted(job.event_time), f"{round(job.watermark * 1000)} milliseconds")
    writer = trigger(results(events, job).writeStream.queryName(job.title()).outputMode(job.mode), job.trigger)
    writer = writer.option("checkpointLocation", job.checkpoint)
    if job.mode == "append":
        return Running(writer.format("rocketmq").options(**job.sink_options()).start())
    return Running(writer.foreachBatch(_send(job)).start())


def _send(job: Windows):  # type: ignore[no-untyped-def]
    """Sends the windows that changed in a batch."""

    def send(rows: DataFrame, number: int) -> None:
        rows.write.format("rocketmq").options(**job.sink_options()).mode("append").save()

    return send


def readable(rows: DataFrame, job: Windows) -> DataFrame:
    """The events whose bodies can be read and whose clock was right, a column a field; the others are counted."""
    body = sql.from_json(sql.col("value").cast("string"), _schema(job.fields), _PERMISSIVE).alias("j")
    read = rows.select(body, sql.col("timestamp").alias(_STORED))
    fields = [_field(name, kind).alias(name) for name, kind in job.fields.items()]
    read = read.select(*fields, sql.col(f"j.{_CORRUPT}").alias(_CORRUPT), _STORED)
    event = sql.col(_quoted(job.event_time))
    bad = sql.col(_CORRUPT).isNotNull() | event.isNull()
    for name in (name for name, kind in job.fields.items() if kind == "double"):
        bad |= sql.coalesce(sql.abs(sql.col(_quoted(name))) == float("inf"), sql.lit(False))  # 1e999
    early = sql.coalesce(sql.unix_seconds(event) - sql.unix_seconds(_STORED) > job.max_ahead, sql.lit(False))
    counts = {"ahead": ~bad & early}
    if job.on_unreadable == "fail":
        said = sql.concat(sql.lit("a body cannot be read (onUnreadable: fail): "), sql.coalesce(_CORRUPT, sql.lit("?")))
        # A condition, because a column that nobody uses is never computed.
        read = read.where(sql.when(bad, sql.raise_error(sql.substring(said, 1, 200)).cast("boolean")).otherwise(True))
    else:
        counts["unreadable"] = bad
    read = read.observe(OBSERVED, *(sql.count_if(each).alias(name) for name, each in counts.items()))
    read = read.where(~bad & ~early).drop(_CORRUPT, _STORED)
    if job.where is None:
        return read
    try:
        return read.where(job.where)
    except Exception as error:
        why = str(error).partition(" SQLSTATE")[0].strip()
        raise ConfigError(f"where: {job.where!r} is no condition over the fields: {why}") from error


def results(events: DataFrame, job: Windows) -> DataFrame:
    """Rows for the sink: a JSON object a window and group."""
    length, step = (f"{round(seconds * 1000)} milliseconds" for seconds in (job.window, job.slide or job.window))
    span = sql.window(_quoted(job.event_time), length, step)
    groups = job.group_by or ()
    computed = [_computed(call, job).alias(name) for name, call in job.aggregates.items()]
    found = events.groupBy(span, *(sql.col(_quoted(name)) for name in groups)).agg(*computed)
    start, end = (times.iso(sql.col(f"window.{side}")) for side in ("start", "end"))
    columns = [sql.col(_quoted(name)) for name in (*groups, *job.aggregates)]
    row = sql.struct(start.alias("windowStart"), end.alias("windowEnd"), *columns)
    value = sql.to_json(row, {"ignoreNullFields": "false"})  # every result has every field
    group = group_key(groups, job.fields) if groups else sql.lit("all")
    return found.select(
        value.alias("value"),
        sql.concat_ws("/", group, start).alias("keys"),
        group.alias("shardingKey"),
        sql.lit(job.to.tags).cast("string").alias("tags"),
    )


def group_key(groups: Sequence[str], fields: Mapping[str, str]) -> Column:
    """The values of a group as one text, which no other group has.

    A value with what would part keys, values or properties is written as in addresses (``%20``); ``-`` is none.

    :param fields: their types, as the job file says them.
    """

    def text(name: str) -> Column:
        column = sql.col(_quoted(name))
        if fields[name] in _TIME_TYPES:  # as a text an hour of the year is there twice, where clocks are set back
            column = sql.unix_micros(column)
        plain = column.cast("string")
        coded = sql.replace(sql.url_encode(plain), sql.lit("+"), sql.lit("%20"))
        return (
            sql.when(plain.isNull(), "-")
            .when(plain == "-", "%2D")
            .when(plain == "", "%")
            .when(plain.rlike(r"[\x00-\x20/%\x7f]"), coded)
            .otherwise(plain)
        )

    return sql.concat_ws("/", *map(text, groups))


_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowNonNumericNumbers": "false"}


def _quoted(name: str) -> str:
    return f"`{name}`"


def _schema(fields: dict[str, str]) -> StructType:
    """The schema of a body: names with dots are fields of objects."""
    top = StructType()
    for name, kind in fields.items():
        at = top
        *objects, last = name.split(".")
        for part in objects:
            known = next((field.dataType for field in at.fields if field.name == part), None)
            if not isinstance(known, StructType):
                known = StructType()
                at.add(part, known)
            at = known
        at.add(last, _TYPES.get(kind) or DecimalType(*map(int, re.findall(r"\d+", kind))))
    return top.add(StructField(_CORRUPT, StringType()))


def _field(name: str, kind: str) -> Column:
    column = sql.col("j." + ".".join(_quoted(part) for part in name.split(".")))
    if kind == "timestamp":
        return times.within(column)
    parts = _PARTS.get(kind)
    return column if parts is None else times.of_epoch(column, parts)


def _computed(call: Aggregate, job: Windows) -> Column:
    if call.field is None:
        return sql.count(sql.lit(1))
    column = sql.col(_quoted(call.field))
    if call.call == "sum" and job.fields[call.field] == "long":
        column = column.cast("decimal(19,0)")  # whose sum has ten digits more: a sum that overflows ends the query
    return {
        "sum": sql.sum,
        "avg": sql.avg,
        "min": sql.min,
        "max": sql.max,
        "countDistinct": sql.approx_count_distinct,
    }[call.call](column)
