"""The data source ``rocketmq`` for Spark: what Spark asks first.

It starts a process to make the source of each query, often for its columns alone: what readers and writers need is
loaded where one is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from rmq.protocol.errors import ConfigError
from rmq.spark.arrow.columns import chosen, ddl
from rmq.spark.options.checked import COLUMN_OPTIONS, SourceOptions

if TYPE_CHECKING:
    from rmq.spark.sink.writers import BatchWriter, StreamWriter

__all__ = ["RocketMQDataSource"]


class RocketMQDataSource(DataSource):
    """``spark.read.format("rocketmq")``, and the same with readStream, write and writeStream."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return ddl(chosen(SourceOptions.of(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        # None that takes the conditions of a query: Spark 4.1 to 4.3 asks a source once for all uses of a frame or
        # view, which would have the rows of one use.
        from rmq.spark.source.readers import BatchReader

        return BatchReader(self._checked(schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from rmq.spark.source.readers import StreamReader

        return StreamReader(self._checked(schema), schema)

    def _checked(self, schema: StructType) -> SourceOptions:
        """The options of a read. :raises ConfigError: a schema was given that says otherwise than they do."""
        options = SourceOptions.of(self.options)
        wanted = [name for name, _ in chosen(options)]
        for name in COLUMN_OPTIONS:
            if name.lower() in map(str.lower, self.options) and schema.names != wanted:
                raise ConfigError(f"the option {name} and a schema exclude each other: both say which columns")
        return options

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from rmq.spark.sink.writers import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from rmq.spark.sink.writers import StreamWriter

        return StreamWriter(self.options, schema)
