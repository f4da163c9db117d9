"""From records to Arrow columns, all records of a chunk at once and only the columns that are wanted.

The layout of a record is drawn in :mod:`rmq.protocol.message`. Numbers are gathered from their places in the buffer;
bodies and properties are cut out of it by Arrow itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import calcsize
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rmq.protocol import ids
from rmq.protocol import properties as property_string
from rmq.protocol.compression import decompress
from rmq.protocol.errors import ProtocolError
from rmq.protocol.queue import MessageQueue
from rmq.protocol.record import FIELDS, HEAD_SIZE, MAGIC_V1, MAGIC_V2
from rmq.protocol.sysflags import BORN_HOST_V6, COMPRESSED, INNER_BATCH, NEED_UNWRAP, STORE_HOST_V6
from rmq.spark.arrow.pieces import Numbers, cut
from rmq.spark.arrow.properties import PropertyColumns
from rmq.spark.source.one_range import Chunk

__all__ = ["Records", "TooMuch", "decode"]

_UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")

#: The numbers of fixed size: where they lie in records whose hosts are IPv4, and their widths.
_PLACES = {name: (at, calcsize(f">{letter}")) for name, (at, letter) in FIELDS.items() if letter in "iq"}
_HEAD = np.dtype(
    {
        "names": [*_PLACES],
        "formats": [f">i{width}" for _, width in _PLACES.values()],
        "offsets": [at for at, _ in _PLACES.values()],
        "itemsize": HEAD_SIZE,
    }
)
_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)


@dataclass(frozen=True, slots=True)
class _Of:
    """The queues of records that are joined, and the number of its queue for each record."""

    queues: list[MessageQueue]
    which: Numbers


#: Bytes that the bodies of compressed records have together at most: a few of them hold gigabytes of zeros.
MOST_PLAIN = 64 << 20


class TooMuch(Exception):
    """Records whose bodies are too long together once they are decompressed: read fewer at once."""


class Records:
    """The records of a chunk, each column made when it is asked for; of one queue unless they are joined.

    :raises ProtocolError: something in the chunk is no record, or a batch stored as one message.
    """

    def __init__(self, queue: MessageQueue, chunk: Chunk) -> None:
        self.queue = queue
        self.lasting = chunk.lasting
        self._of: _Of | None = None
        self._buffer = chunk.buffer
        self._delta: Numbers | int = chunk.delta
        self._at: Numbers = np.array(chunk.starts, np.int64)
        self._layout()

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """Records of chunks of several queues, one behind the other: few rows each would be dear each by itself."""
        if len(parts) == 1:
            return parts[0]
        made = object.__new__(cls)
        counts = [len(part) for part in parts]
        made.queue, made.lasting = parts[0].queue, True
        made._of = _Of([part.queue for part in parts], np.repeat(np.arange(len(parts)), counts))
        made._delta = np.repeat([np.int64(part._delta) for part in parts], counts)
        begins = [int(part._at[0]) for part in parts]
        made._buffer = bytearray().join(
            memoryview(part._buffer)[begin : begin + part.size] for part, begin in zip(parts, begins, strict=True)
        )
        moves = np.cumsum([0, *(part.size for part in parts[:-1])]) - begins
        made._at = np.concatenate([part._at for part in parts]) + np.repeat(moves, counts)
        made._layout()
        return made

    def _layout(self) -> None:
        """Take the heads out of the buffer, and see where the parts of variable place begin."""
        # As opaque bytes, which numpy copies whole: much faster than field by field out of places that are far apart.
        every: Any = np.ndarray((len(self._buffer) - HEAD_SIZE + 1,), f"V{HEAD_SIZE}", self._buffer, 0, (1,))
        try:
            self._heads: Any = every[self._at].view(_HEAD)
        except IndexError:
            raise self._cut_off() from None
        magic = self._head("magic")
        second = magic == MAGIC_V2
        if not (second | (magic == MAGIC_V1)).all():
            raise ProtocolError(f"{self.queue}: what the broker sent is no message record")
        self._second = second
        self._ends = self._at + self._head("size")
        self.offsets: Numbers = self._head("queue_offset") + self._delta
        self._sys_flags = flags = self._head("sys_flag")
        self._born6: Numbers | int = 0
        self._store6: Numbers | int = 0
        if flags.any():
            if (flags & (INNER_BATCH | NEED_UNWRAP)).any():
                raise ProtocolError(f"{self.queue}: batches stored as one message are not read here")
            if (flags & (BORN_HOST_V6 | STORE_HOST_V6)).any():
                self._born6 = (flags & BORN_HOST_V6 != 0) * 12
                self._store6 = (flags & STORE_HOST_V6 != 0) * 12
        self._body_at = self._at + (HEAD_SIZE + self._born6 + self._store6)
        self._body_end = self._body_at + self._head("body_size", self._born6 + self._store6)
        if (self._body_end < self._body_at).any() or (self._body_end >= self._ends).any():
            raise self._cut_off()

    def _cut_off(self) -> ProtocolError:
        return ProtocolError(f"{self.queue}: a part of a message record reaches beyond its end")

    def __len__(self) -> int:
        return len(self._at)

    @property
    def size(self) -> int:
        """Bytes from the first to the end of the last."""
        return int(self._ends[-1] - self._at[0])

    def before(self, end: int) -> Records:
        """Those before an offset: the last pull of a range may bring more."""
        if len(self.offsets) and self.offsets[-1] >= end:
            return self.where(self.offsets < end)
        return self

    def where(self, which: np.ndarray[Any, np.dtype[np.bool_]]) -> Records:
        """Some of them."""
        other = object.__new__(Records)
        other.queue, other.lasting, other._buffer = self.queue, self.lasting, self._buffer
        other._of = _Of(self._of.queues, self._of.which[which]) if self._of else None
        other._delta = self._delta if isinstance(self._delta, int) else self._delta[which]
        other._at = self._at[which]
        other._layout()
        return other

    def _head(self, name: str, shift: Numbers | int = 0) -> Numbers:
        """A number of the head.

        :param shift: bytes by which longer hosts before it move it.
        """
        if isinstance(shift, int):
            found: Numbers = self._heads[name].astype(np.int64)
            return found
        at, width = _PLACES[name]
        return self._ints(self._at + at + shift, width)

    def _ints(self, at: Numbers, width: int) -> Numbers:
        """The big-endian numbers at places of the buffer, which need not be aligned."""
        every: Any = np.ndarray((len(self._buffer) - width + 1,), f">i{width}", self._buffer, 0, (1,))
        try:
            found: Numbers = every[at].astype(np.int64)
        except IndexError:
            raise self._cut_off() from None
        return found

    # -- columns ------------------------------------------------------------------------------------------------------

    def values(self) -> Any:
        """Bodies, decompressed.

        :raises TooMuch: several records are more than :data:`MOST_PLAIN` bytes together.
        """
        bodies = cut(self._buffer, self._body_at, self._body_end, pa.binary())
        packed = np.flatnonzero(self._sys_flags & COMPRESSED)
        if not len(packed):
            return bodies
        plain = bodies.to_pylist()
        size = 0
        for number in packed.tolist():
            try:
                plain[number] = decompress(plain[number], int(self._sys_flags[number]))
            except ProtocolError as error:
                queue = self.queue if self._of is None else self._of.queues[self._of.which[number]]
                where = f"{queue} offset {self.offsets[number]}"
                raise ProtocolError(f"{where}: the body cannot be decompressed: {error}") from None
            size += len(plain[number])
            if size > MOST_PLAIN and len(plain) > 1:
                raise TooMuch
        return pa.array(plain, pa.binary())

    def properties(self) -> PropertyColumns:
        at = self._body_end + 1 + (self._ints(self._body_end, 1) & 0xFF)
        if self._second.any():
            long = self._body_end + 2 + (self._ints(self._body_end, 2) & 0xFFFF)
            at = np.where(self._second, long, at)
        if (at + 2 > self._ends).any() or (at + 2 + self._ints(at, 2) != self._ends).any():
            raise self._cut_off()
        return PropertyColumns(cut(self._buffer, at + 1, self._ends, pa.binary()))

    def number(self, name: str) -> Numbers:
        """A number of each, by its name in the head."""
        return self._head(name)

    def reconsume_times(self) -> Numbers:
        return self._head("reconsume_times", self._born6 + self._store6)

    def born_times(self) -> Any:
        return _timestamps(self._head("born_timestamp"))

    def store_times(self) -> Any:
        return _timestamps(self._head("store_timestamp", self._born6))

    def of_queue(self, what: Callable[[MessageQueue], Any], kind: pa.DataType) -> Any:
        """What is the same for all records of a queue."""
        if self._of is None:
            return pa.repeat(pa.scalar(what(self.queue), kind), len(self))
        return pa.array([what(queue) for queue in self._of.queues], kind).take(pa.array(self._of.which))

    def hosts(self, *, store: bool) -> Any:
        """``address:port`` of who stored them, or who sent them."""
        texts = []
        packed = self._packed_hosts(store=store)
        for each in packed.dictionary.to_pylist():
            host, port = ids.unpack_host(each)
            texts.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return pa.array(texts, pa.string()).take(packed.indices)

    def _packed_hosts(self, *, store: bool) -> Any:
        """The hosts as records hold them, each different one once: they are few."""
        begin = self._at + (64 + self._born6 if store else 48)
        end = begin + (8 + (self._store6 if store else self._born6))
        return cut(self._buffer, begin, end, pa.binary()).dictionary_encode()

    def offset_ids(self) -> Any:
        """The ids that say where records are stored."""
        hosts = self._packed_hosts(store=True)
        prefixes = pa.array([each.hex().upper() for each in hosts.dictionary.to_pylist()], pa.string())
        digits = _HEX[np.frombuffer(self._heads["physical_offset"].tobytes(), np.uint8)]
        edges = np.arange(0, 16 * len(self) + 1, 16, dtype=np.int32)
        offsets = pa.StringArray.from_buffers(len(self), pa.py_buffer(edges), pa.py_buffer(digits))
        return pc.binary_join_element_wise(prefixes.take(hosts.indices), offsets, "")


def _timestamps(milliseconds: Numbers) -> Any:
    return pa.array(milliseconds * 1000).view(_UTC_MICROSECONDS)


def _message_ids(records: Records, properties: PropertyColumns) -> Any:
    """The producer's id; the offset id where there is none, as clients do."""
    found = properties.value(property_string.UNIQ_KEY)
    return pc.coalesce(found, records.offset_ids()) if found.null_count else found


def _ints32(numbers: Numbers) -> Any:
    return pa.array(numbers.astype(np.int32))


_PLAIN: dict[str, Callable[[Records], Any]] = {
    "topic": lambda records: records.of_queue(lambda queue: queue.topic, pa.string()),
    "brokerName": lambda records: records.of_queue(lambda queue: queue.broker_name, pa.string()),
    "queueId": lambda records: records.of_queue(lambda queue: queue.queue_id, pa.int32()),
    "offset": lambda records: pa.array(records.offsets),
    "queueOffset": lambda records: pa.array(records.offsets),
    "value": Records.values,
    "body": Records.values,
    "bornTimestamp": Records.born_times,
    "timestamp": Records.store_times,
    "storeTimestamp": Records.store_times,
    "flag": lambda records: _ints32(records.number("flag")),
    "sysFlag": lambda records: _ints32(records.number("sys_flag")),
    "physicalOffset": lambda records: pa.array(records.number("physical_offset")),
    "bornHost": lambda records: records.hosts(store=False),
    "storeHost": lambda records: records.hosts(store=True),
    "offsetMsgId": Records.offset_ids,
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
    arrays: dict[str, Any] = {}
    for column in schema:
        make = _PLAIN.get(column.name)
        if make is not None:
            array = make(records)
        else:
            assert properties is not None
            array = _OF_PROPERTIES[column.name](records, properties)
            if column.name == "properties" and column.type == pa.string():
                array = pa.array([orjson.dumps(dict(each)).decode() for each in array.to_pylist()], column.type)
        arrays[column.name] = array
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
