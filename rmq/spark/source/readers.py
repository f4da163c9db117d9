"""The source's readers: what Spark asks for ranges, and what a task does with its own.

A module of its own, since it needs pyspark; the work is done in modules that do not. ``__init__`` does no I/O: Spark
makes readers in processes that only plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rmq.spark.arrow.columns import arrow_type, check
from rmq.spark.cluster.brokers import connect
from rmq.spark.options.checked import SourceOptions
from rmq.spark.source.advance import Advance
from rmq.spark.source.ranges import Range, distribute
from rmq.spark.source.resolve import ranges_of_batch

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    LIMITS = True
except ImportError:  # before 4.2, sources are neither asked for portions nor told of Trigger.AvailableNow
    LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


__all__ = ["LIMITS", "BatchReader", "StreamReader"]


@dataclass
class _Ranges(InputPartition):
    """What one task reads."""

    ranges: list[Range]


def _arrow_schema(schema: StructType) -> pa.Schema:
    fields = [(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]
    check(fields)
    return pa.schema([pa.field(name, arrow_type(kind), nullable) for name, kind, nullable in fields])


class _Reader:
    """What both readers have; it travels to the workers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = _arrow_schema(schema)

    def _tasks(self, ranges: Sequence[Range]) -> list[_Ranges]:
        options = self._options
        return [
            _Ranges(each)
            for each in distribute(
                ranges, least=options.min_partitions, most=options.max_partitions, records=options.max_records
            )
        ]

    def read(self, partition: Any) -> Iterator[Any]:
        from rmq.spark.source.task import (
            Reading,  # what it needs (numpy) takes long to load, and planning does without it
        )

        # Spark asks for a partition of its own where a batch has none.
        ranges = partition.ranges if isinstance(partition, _Ranges) else []
        reading = Reading.of(self._options, self._schema)
        return reading.batches(connect(self._options.endpoint), ranges)


class BatchReader(_Reader, DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        options.check_batch()
        super().__init__(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        return self._tasks(ranges_of_batch(connect(self._options.endpoint), self._options))


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        options.check_stream(limits=LIMITS, version=pyspark.__version__)
        super().__init__(options, schema)
        self._advance: Advance | None = None

    @property
    def advance(self) -> Advance:
        if self._advance is None:
            self._advance = Advance(self._options, connect(self._options.endpoint))
        return self._advance

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_advance": None}  # workers have connections of their own

    def initialOffset(self) -> dict[str, Any]:
        return self.advance.initial()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        limited = not (LIMITS and isinstance(limit, ReadAllAvailable)) if start is not None else False
        return self.advance.latest(start, limited=limited)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.advance.prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self.advance.report_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._tasks(self.advance.ranges(start, end))

    def commit(self, end: dict[str, Any]) -> None:
        self.advance.report(end)

    def stop(self) -> None:
        connect(self._options.endpoint).close()
