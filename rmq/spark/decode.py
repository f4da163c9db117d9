"""From records to Arrow columns, all records of a chunk at once and only the columns that are wanted.

The layout of a record is drawn in :mod:`rmq.protocol.message`. Numbers are gathered from their places in the buffer;
bodies and properties are cut out of it by Arrow itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from rmq.protocol import ids
from rmq.protocol import properties as property_string
from rmq.protocol.compression import decompress
from rmq.protocol.errors import ProtocolError
from rmq.protocol.message import MAGIC_V1, MAGIC_V2
from rmq.protocol.queue import MessageQueue
from rmq.protocol.sysflags import BORN_HOST_V6, COMPRESSED, INNER_BATCH, NEED_UNWRAP, STORE_HOST_V6
from rmq.spark.pieces import Numbers, cut
from rmq.spark.property_columns import PropertyColumns
from rmq.spark.pulls import Chunk

__all__ = ["Records", "arrow_type", "decode"]

_UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")
_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": _UTC_MICROSECONDS,
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type that Spark expects of a column."""
    return _ARROW[kind]


class Records:
    """The records of a chunk of one queue; each column is made when it is asked for.

    :raises ProtocolError: something in the chunk is no record.
    """

    def __init__(self, queue: MessageQueue, chunk: Chunk) -> None:
        self.queue = queue
        self._buffer = chunk.buffer
        self._delta = chunk.delta
        self._at: Numbers = np.array(chunk.starts, np.int64)
        self._layout()

    def _layout(self) -> None:
        """Where the parts of variable place begin."""
        magic = self._ints(self._at + 4, 4)
        second = magic == MAGIC_V2
        if not (second | (magic == MAGIC_V1)).all():
            raise ProtocolError(f"{self.queue}: what the broker sent is no message record")
        self._second = second
        self.offsets: Numbers = self._ints(self._at + 20, 8) + self._delta
        self._sys_flags = self._ints(self._at + 36, 4)
        self._born6 = (self._sys_flags & BORN_HOST_V6 != 0) * 12
        self._store6 = (self._sys_flags & STORE_HOST_V6 != 0) * 12
        self._body_at = self._at + 88 + self._born6 + self._store6
        self._body_end = self._body_at + self._ints(self._body_at - 4, 4)

    def __len__(self) -> int:
        return len(self._at)

    def before(self, end: int) -> Records:
        """Those before an offset: the last pull of a range may bring more."""
        if len(self.offsets) and self.offsets[-1] >= end:
            return self.where(self.offsets < end)
        return self

    def where(self, which: np.ndarray[Any, np.dtype[np.bool_]]) -> Records:
        """Some of them."""
        other = object.__new__(Records)
        other.queue, other._buffer, other._delta = self.queue, self._buffer, self._delta
        other._at = self._at[which]
        other._layout()
        return other

    def _ints(self, at: Numbers, width: int) -> Numbers:
        """The big-endian numbers at places of the buffer, which need not be aligned."""
        every: Any = np.ndarray((len(self._buffer) - width + 1,), f">i{width}", self._buffer, 0, (1,))
        try:
            found: Numbers = every[at].astype(np.int64)
        except IndexError:
            raise ProtocolError(f"{self.queue}: a message record reaches beyond what the broker sent") from None
        return found

    # -- columns ------------------------------------------------------------------------------------------------------

    def values(self) -> Any:
        """Bodies, decompressed."""
        bodies = cut(self._buffer, self._body_at, self._body_end, pa.binary())
        packed = np.flatnonzero(self._sys_flags & COMPRESSED)
        if not len(packed):
            return bodies
        plain = bodies.to_pylist()
        for number in packed.tolist():
            try:
                plain[number] = decompress(plain[number], int(self._sys_flags[number]))
            except ProtocolError as error:
                where = f"{self.queue} offset {self.offsets[number]}"
                raise ProtocolError(f"{where}: the body cannot be decompressed: {error}") from None
        return pa.array(plain, pa.binary())

    def properties(self) -> PropertyColumns:
        topic_at = self._body_end
        if self._sys_flags.any() and (self._sys_flags & (INNER_BATCH | NEED_UNWRAP)).any():
            raise ProtocolError(f"{self.queue}: batches stored as one message are not read here")
        size = np.where(self._second, self._ints(topic_at, 2) & 0xFFFF, self._ints(topic_at, 1) & 0xFF)
        at = topic_at + 1 + self._second + size
        found = cut(self._buffer, at + 2, at + 2 + self._ints(at, 2), pa.binary())
        return PropertyColumns(found)

    def number(self, at: int, width: int, *, after_born_host: bool = False) -> Numbers:
        """A field at a fixed place of the record."""
        return self._ints(self._at + at + (self._born6 if after_born_host else 0), width)

    def reconsume_times(self) -> Numbers:
        return self._ints(self._body_at - 16, 4)

    def time(self, at: int, *, after_born_host: bool = False) -> Any:
        milliseconds = self.number(at, 8, after_born_host=after_born_host)
        return pa.array(milliseconds * 1000).cast(_UTC_MICROSECONDS)

    def same(self, text: str) -> Any:
        return pa.repeat(pa.scalar(text), len(self))

    def hosts(self, *, store: bool) -> Any:
        """``address:port`` of who stored them, or who sent them."""
        at = self._at + 48 + ((16 + self._born6) if store else 0)
        size = 8 + (self._store6 if store else self._born6)
        buffer = self._buffer
        texts = []
        for begin, end in zip(at.tolist(), (at + size).tolist(), strict=True):
            host, port = ids.unpack_host(bytes(buffer[begin:end]))
            texts.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return pa.array(texts, pa.string())

    def offset_ids(self, which: Sequence[int] | None = None) -> list[str]:
        """The ids that say where records are stored, of all or of some."""
        at = self._at if which is None else self._at[list(which)]
        born6 = self._born6 if which is None else self._born6[list(which)]
        store6 = self._store6 if which is None else self._store6[list(which)]
        begins = at + 64 + born6
        buffer = self._buffer
        return [
            (bytes(buffer[begin:end]) + bytes(buffer[start + 28 : start + 36])).hex().upper()
            for begin, end, start in zip(begins.tolist(), (begins + 8 + store6).tolist(), at.tolist(), strict=True)
        ]


def _message_ids(records: Records, properties: PropertyColumns) -> Any:
    """The producer's id; the offset id where there is none, as clients do."""
    found = properties.value(property_string.UNIQ_KEY)
    if not found.null_count:
        return found
    texts = found.to_pylist()
    missing = [number for number, text in enumerate(texts) if text is None]
    for number, text in zip(missing, records.offset_ids(missing), strict=True):
        texts[number] = text
    return pa.array(texts, pa.string())


def _ints32(numbers: Numbers) -> Any:
    return pa.array(numbers.astype(np.int32))


_PLAIN: dict[str, Callable[[Records], Any]] = {
    "topic": lambda records: records.same(records.queue.topic),
    "brokerName": lambda records: records.same(records.queue.broker_name),
    "queueId": lambda records: pa.repeat(pa.scalar(records.queue.queue_id, pa.int32()), len(records)),
    "offset": lambda records: pa.array(records.offsets),
    "queueOffset": lambda records: pa.array(records.offsets),
    "value": Records.values,
    "body": Records.values,
    "bornTimestamp": lambda records: records.time(40),
    "timestamp": lambda records: records.time(56, after_born_host=True),
    "storeTimestamp": lambda records: records.time(56, after_born_host=True),
    "flag": lambda records: _ints32(records.number(16, 4)),
    "sysFlag": lambda records: _ints32(records.number(36, 4)),
    "physicalOffset": lambda records: pa.array(records.number(28, 8)),
    "bornHost": lambda records: records.hosts(store=False),
    "storeHost": lambda records: records.hosts(store=True),
    "offsetMsgId": lambda records: pa.array(records.offset_ids(), pa.string()),
    "reconsumeTimes": lambda records: _ints32(records.reconsume_times()),
}
_OF_PROPERTIES: dict[str, Callable[[Records, PropertyColumns], Any]] = {
    "keys": lambda _, properties: properties.value(property_string.KEYS),
    "tags": lambda _, properties: properties.value(property_string.TAGS),
    "msgId": _message_ids,
    "properties": lambda _, properties: properties.map(),
}


def decode(records: Records, schema: pa.Schema, tags: frozenset[str] = frozenset()) -> pa.RecordBatch:
    """The columns of a schema.

    :param tags: only records with one of these tags: brokers compare hashes of tags, which others may share.
    """
    properties: PropertyColumns | None = None
    if tags or any(name in _OF_PROPERTIES for name in schema.names):
        properties = records.properties()
    if tags and properties is not None:
        which = np.array([tag in tags for tag in properties.value(property_string.TAGS).to_pylist()], np.bool_)
        if not which.all():
            return decode(records.where(which), schema)
    arrays = []
    for column in schema:
        make = _PLAIN.get(column.name)
        if make is not None:
            array = make(records)
        else:
            assert properties is not None
            array = _OF_PROPERTIES[column.name](records, properties)
            if column.name == "properties" and column.type == pa.string():
                array = pa.array([orjson.dumps(dict(each)).decode() for each in array.to_pylist()], column.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
