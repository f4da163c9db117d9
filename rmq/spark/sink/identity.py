"""Dropping what an at-least-once writer sent twice."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from rmq.protocol.errors import ConfigError
from rmq.spark.sink.rows import IDENTITY

__all__ = ["deduplicate", "identity"]

_MARK = "__rmq_identity"
_PLACE = ("topic", "brokerName", "queueId", "offset")


def identity(properties: str = "properties") -> Column:
    """The identity that the sink stamped on a message: null for messages of others.

    :param properties: the name of the column with the message's properties.
    """
    return sql.col(properties)[IDENTITY]


def deduplicate(df: DataFrame, *, within: str | None = None, event_time: str = "timestamp") -> DataFrame:
    """The rows of a read without those that the sink sent again; messages of others are all different.

    :param df: rows of the source with the columns properties, topic, brokerName, queueId and offset.
    :param within: for streams, how far apart repeated rows may lie, such as ``1 hour``: they are remembered as long.
        Its watermark also bounds how late rows may be.
    :param event_time: the timestamp column that ``within`` is about.
    :raises ConfigError: a column is missing, or a stream without ``within``.
    """
    missing = [name for name in ("properties", *_PLACE) if name not in df.columns]
    if missing:
        raise ConfigError(f"deduplicate needs the column {missing[0]} of the source: select it as well")
    if df.isStreaming and within is None:
        raise ConfigError('a stream must forget at some time: give within, such as within="1 hour"')
    place = sql.concat_ws("/", *(sql.col(name).cast("string") for name in _PLACE))
    marked = df.withColumn(_MARK, sql.coalesce(identity(), place))
    if within is None:
        return marked.dropDuplicates([_MARK]).drop(_MARK)
    return marked.withWatermark(event_time, within).dropDuplicatesWithinWatermark([_MARK]).drop(_MARK)
