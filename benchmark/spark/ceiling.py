"""A data source that has its rows already: the most that Spark's way to a Python source lets through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmq.protocol.message import MessageRecord, encode_record
from rmq.protocol.queue import MessageQueue
from rmq.spark.columns import TYPES, ddl
from rmq.spark.decode import Records, arrow_type, decode
from rmq.spark.pulls import CHUNK_RECORDS, Chunk

__all__ = ["MemorySource", "record"]

QUEUES = 4


def record(number: int) -> MessageRecord:
    """A message as the benchmark sends it: 1 KB, a key, a tag, an id."""
    properties = {"KEYS": f"k{number}", "TAGS": "A", "UNIQ_KEY": f"{number:032X}"}
    return MessageRecord("bench", queue_offset=number, body=b"x" * 1024, properties=properties, store_timestamp=1)


class MemorySource(DataSource):
    """Options: rows, columns."""

    @classmethod
    def name(cls) -> str:
        return "rmq_ceiling"

    def schema(self) -> str:
        names = self.options["columns"].split(",")
        return ddl((name, TYPES[name]) for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(schema, int(self.options["rows"]))


class _Reader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int) -> None:
        self._names = schema.fieldNames()
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(QUEUES)]

    def read(self, partition: Any) -> Iterator[Any]:
        schema = pa.schema([pa.field(name, arrow_type(TYPES[name])) for name in self._names])
        frames = [encode_record(record(number)) for number in range(CHUNK_RECORDS)]
        starts = [0]
        for each in frames[:-1]:
            starts.append(starts[-1] + len(each))
        data = bytearray(b"".join(frames))
        batch = decode(
            Records(MessageQueue("bench", "broker-a", partition.value), Chunk(data, starts, len(data))), schema
        )
        left = self._rows // QUEUES
        while left > 0:
            yield batch.slice(0, min(left, CHUNK_RECORDS))
            left -= CHUNK_RECORDS
