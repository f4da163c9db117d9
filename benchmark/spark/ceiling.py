"""A data source that makes the same rows out of Python values in memory: no broker, no network, no records.

It says how fast Spark takes rows that a Python data source makes: each batch is made anew, by pyarrow out of the values
that its rows have, whole columns at a time; no faster way leads from values to batches. The bodies, keys and ids of a
few thousand rows are in memory before the first batch and serve every batch; offsets go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rmq.spark.arrow.columns import TYPES, arrow_type, ddl

__all__ = ["MemorySource"]

QUEUES = 4
#: Rows of a batch of a stream.
STREAM_ROWS = 32
#: Rows of a batch: as many as the source of the same rows from a broker makes of 1 KB each.
ROWS = 4096
_BORN = 1_700_000_000_000_000  # microseconds


def _values(queue: int) -> dict[str, Callable[[int, int], Any]]:
    """The values of each column, for rows from an offset on; ready in memory, but for offsets."""
    keys = [f"k{number}" for number in range(ROWS)]
    ids = [f"{number:032X}" for number in range(ROWS)]
    ready: dict[str, list[Any]] = {
        "topic": ["bench"] * ROWS,
        "brokerName": ["broker-a"] * ROWS,
        "queueId": [queue] * ROWS,
        "value": [b"%d" % number + b"x" * (1024 - len(str(number))) for number in range(ROWS)],
        "keys": keys,
        "tags": ["A"] * ROWS,
        "msgId": ids,
        "bornTimestamp": [_BORN + number for number in range(ROWS)],
        "timestamp": [_BORN + number for number in range(ROWS)],
        "properties": [[("KEYS", key), ("TAGS", "A"), ("UNIQ_KEY", ids[number])] for number, key in enumerate(keys)],
    }
    made = {name: _Ready(values) for name, values in ready.items()}
    return {**made, "offset": lambda start, count: np.arange(start, start + count)}


class _Ready:
    """Values that are in memory."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __call__(self, start: int, count: int) -> list[Any]:
        return self._values[:count]


class MemorySource(DataSource):
    """Options: rows, columns; ``again=true`` makes one batch and sends it again and again.

    A stream has the option folder instead of rows: each file in it is a task of :data:`STREAM_ROWS`.
    """

    @classmethod
    def name(cls) -> str:
        return "rmq_ceiling"

    def schema(self) -> str:
        names = self.options["columns"].split(",")
        return ddl((name, TYPES[name]) for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(schema, int(self.options["rows"]) // QUEUES, self.options.get("again") == "true")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(schema, self.options["folder"])


class _StreamReader(DataSourceStreamReader):
    """As little as a source in Python can do for a micro-batch."""

    def __init__(self, schema: StructType, folder: str) -> None:
        self._names, self._folder = schema.fieldNames(), folder

    def initialOffset(self) -> dict[str, int]:
        return {"files": 0}

    def latestOffset(self, *start_and_limit: Any) -> dict[str, int]:
        return {"files": len(os.listdir(self._folder))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["files"], end["files"])]

    def read(self, partition: Any) -> Iterator[Any]:
        schema = pa.schema([pa.field(name, arrow_type(TYPES[name])) for name in self._names])
        values = {"offset": list(range(STREAM_ROWS)), "value": [b"one"] * STREAM_ROWS}
        yield pa.RecordBatch.from_arrays([pa.array(values[each.name], each.type) for each in schema], schema=schema)


class _Reader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int, again: bool) -> None:
        self._names = schema.fieldNames()
        self._rows = rows
        self._again = again

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(QUEUES)]

    def read(self, partition: Any) -> Iterator[Any]:
        schema = pa.schema([pa.field(name, arrow_type(TYPES[name])) for name in self._names])
        values = _values(partition.value)

        def batch(start: int, count: int) -> pa.RecordBatch:
            columns = [pa.array(values[column.name](start, count), column.type) for column in schema]
            return pa.RecordBatch.from_arrays(columns, schema=schema)

        made = batch(0, ROWS) if self._again else None
        for start in range(0, self._rows, ROWS):
            count = min(ROWS, self._rows - start)
            yield batch(start, count) if made is None else made.slice(0, count)
