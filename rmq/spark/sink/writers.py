"""The sink's writers. A task that ends well has all its messages stored; one that is tried again sends them again.

What tells repeated rows apart is stamped on each: the query, the batch, the write, the partition and the row within it
(:data:`rmq.spark.sink.rows.IDENTITY`), which are the same in every attempt.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmq.protocol.errors import ConfigError
from rmq.protocol.ids import UniqueIds
from rmq.runtime.identity import RealIdentity, choose_address
from rmq.spark.cluster.brokers import connect
from rmq.spark.options.checked import SinkOptions
from rmq.spark.sink.rows import RowRefused, Rows, check_columns
from rmq.spark.sink.sending import Sender

__all__ = ["BatchWriter", "Sent", "StreamWriter"]

log = logging.getLogger(__name__)

#: Rows are handed over as Arrow batches from Spark 4.1 on, one by one before.
_StreamBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
_ROWS_AT_ONCE = 1000
_BYTES_AT_ONCE = 4 << 20

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class Sent(WriterCommitMessage):
    """What a task has sent."""

    messages: int


class _Writer:
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SinkOptions.of(options)
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        self._found = check_columns(columns, self._options.topic)
        self._names = [name for name, _ in columns]
        #: Names a batch write, which has no query: made once, and carried to every attempt of every task.
        self._run = os.urandom(8).hex()

    def _write(self, chunks: Iterator[Mapping[str, Sequence[Any]]]) -> Sent:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        query = (context.getLocalProperty(_QUERY_ID) if context is not None else None) or self._run
        batch = (context.getLocalProperty(_BATCH_ID) if context is not None else None) or "0"
        brokers = connect(self._options.endpoint)
        # Nothing that Spark tells a task names one of several writes in the same way in every try: their author does.
        name = self._options.write_name
        write = f"{batch}/{name}" if name is not None else batch
        identity = f"{query}/{write}/{partition}" if self._options.stamp else None
        rows = Rows(
            self._found,
            self._options.topic,
            _ids(brokers.dial.now_ms),
            f"batch {batch}, partition {partition}, ",
            identity,
            self._options.max_body,
        )
        sender = Sender(brokers, self._options)
        try:
            for chunk in chunks:
                for message in rows.messages(chunk):
                    sender.add(message)
        except _NoTextError as error:
            raise RowRefused(
                f"{rows.name(error.index)}: the column {error.column} holds bytes that are no UTF-8"
            ) from None
        sender.flush()
        return Sent(sender.sent)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """``df.write.format("rocketmq")``."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: use mode("append")')
        super().__init__(options, schema)
        self._options.check_batch()

    def write(self, iterator: Iterator[Any]) -> Sent:
        return self._write(_columns_of_batches(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("%d messages were sent", sum(each.messages for each in messages if isinstance(each, Sent)))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning(
            "the write failed; %d messages of tasks that had ended stay sent",
            sum(each.messages for each in messages if isinstance(each, Sent)),
        )


class StreamWriter(_Writer, _StreamBase):  # type: ignore[misc]
    """``df.writeStream.format("rocketmq")``."""

    def write(self, iterator: Iterator[Any]) -> Sent:
        if _StreamBase is DataSourceStreamWriter:
            return self._write(self._columns_of_rows(iterator))
        return self._write(_columns_of_batches(iterator))

    def _columns_of_rows(self, rows: Iterator[Any]) -> Iterator[dict[str, Sequence[Any]]]:
        waiting: list[Any] = []
        for row in rows:
            waiting.append(row)
            if len(waiting) == _ROWS_AT_ONCE:
                yield dict(zip(self._names, zip(*waiting, strict=True), strict=True))
                waiting = []
        if waiting:
            yield dict(zip(self._names, zip(*waiting, strict=True), strict=True))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.debug("batch %d is sent", batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("batch %d failed; what its tasks had sent stays sent", batchId)


class _NoTextError(ValueError):
    """A column of text that holds something else, in the row ``index`` of those that come next."""

    def __init__(self, column: str, index: int) -> None:
        super().__init__(column)
        self.column = column
        self.index = index


def _columns_of_batches(batches: Iterator[Any]) -> Iterator[dict[str, Sequence[Any]]]:
    for batch in batches:
        # Some at a time: Spark hands over as many rows as it is set to, however large, and these are copies.
        fitting = _BYTES_AT_ONCE * batch.num_rows // max(1, batch.nbytes)
        step = max(1, min(_ROWS_AT_ONCE, fitting))
        for start in range(0, batch.num_rows, step):
            rows = batch.slice(start, step)
            yield {name: _values(name, rows.column(number)) for number, name in enumerate(rows.schema.names)}


def _values(name: str, column: Any) -> list[Any]:
    """Times as milliseconds: Spark's go further than Python's. Bodies are bytes, whatever they are said to be."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).view(pa.int64())
    elif pa.types.is_string(column.type) and name.lower() in ("value", "body"):
        column = column.cast(pa.binary())
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        raise _NoTextError(name, next(index for index, each in enumerate(column) if not _is_text(each))) from None


def _is_text(value: Any) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _ids(now_ms: Callable[[], int]) -> Callable[[], str]:
    """What gives each message its unique id."""
    address = choose_address(RealIdentity().addresses()).address
    ids = UniqueIds(
        ip_address(address.partition("%")[0]).packed, os.getpid(), int.from_bytes(os.urandom(4), "big"), now_ms()
    )
    return lambda: ids.next(now_ms())
