"""The only append: builds records, writes them with one write a file, and hands out what is derived from them.

The lane, the delay schedule, send-back and the broker's own events all come through :class:`Appender`. Record layout:
store-and-broker.md 2.1; queue entry: 3.1; the roll at a file's end: 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from rmq.broker.store.index.keyhash import KeyHasher
from rmq.broker.store.state import Put, Queue, Span
from rmq.protocol.errors import StoreError
from rmq.protocol.properties import MAX_BYTES

if TYPE_CHECKING:
    from rmq.broker.store.index.index import Index
    from rmq.broker.store.log.commit_log import CommitLog

__all__ = ["Appender", "PartlyAppended", "RecordTooLarge"]

_MAGIC = -626843481
_FIXED = 91
_HEADS = {
    (8, 8): Struct(">iiIiiqqiq8sq8siqi").pack,
    (20, 8): Struct(">iiIiiqqiq20sq8siqi").pack,
    (8, 20): Struct(">iiIiiqqiq8sq20siqi").pack,
    (20, 20): Struct(">iiIiiqqiq20sq20siqi").pack,
}
_entry = Struct(">qiq").pack
#: The two length bytes of every possible property string.
_LENGTHS = tuple(n.to_bytes(2, "big") for n in range(32768))


def _no_hash(key: bytes) -> int:
    raise AssertionError("no topic was looked at yet")


class RecordTooLarge(StoreError):
    """A record that fits in no commit-log file, or whose properties fit in no record."""


class PartlyAppended(StoreError):
    """The first messages of an append are stored, those behind ``span.offsets`` are not, for ``reason``."""

    def __init__(self, span: Span, reason: Exception) -> None:
        super().__init__(f"{len(span.offsets)} messages are stored, the next ones are not: {reason}")
        self.span = span
        self.reason = reason


class Appender:
    """Appends messages to the commit log and to the tails of their queues.

    :param log: where records go.
    :param index: gets the key hashes, or None when ``messageIndexEnable`` is off.
    """

    def __init__(self, log: CommitLog, index: Index | None) -> None:
        self._log = log
        self._index = index
        self._hashers: dict[str, KeyHasher] = {}

    def hasher(self, topic: str) -> KeyHasher:
        """The key hasher of a topic; shared with queries."""
        hasher = self._hashers.get(topic)
        if hasher is None:
            hasher = self._hashers[topic] = KeyHasher(topic)
        return hasher

    def use_index(self, index: Index | None) -> None:
        """Put keys into ``index`` from the next append on; into none while one is built from the log."""
        self._index = index

    def forget(self, topic: str) -> None:
        """Drop what is cached for a deleted topic."""
        self._hashers.pop(topic, None)

    def append(self, puts: Sequence[Put], stamp: int, *, together: bool = False) -> Span:
        """Append messages in order; all of one file in one write.

        :param puts: at least one message.
        :param stamp: their store time, ms.
        :param together: a batch: all records land in one file (store-and-broker.md 2.5).
        :raises StoreError: the log's gate is closed, or a record fits in no file.
        :raises OSError: a write failed; what was not written has left no trace in the queues.
        """
        log = self._log
        if log.gate:
            raise StoreError(f"the store takes no messages: {log.gate_reason()}")
        if together:
            whole = sum(
                _FIXED - 16 + len(p.born_host) + len(p.store_host) + len(p.body) + len(p.properties)
                + len(p.queue.topic_field) - 1 for p in puts
            )  # fmt: skip
            if whole > log.room:
                if whole + 8 > log.file_size:
                    raise RecordTooLarge(f"a batch of {whole} bytes fits in no commit-log file of {log.file_size}")
                log.roll()
        prefix = log.prefix
        start = -1
        offsets: list[tuple[int, int]] = []
        touched: list[Queue] = []
        # What an open write has changed, to be undone when it fails.
        marks: list[tuple[Queue, int, int, int, int]] = []
        parts: list[bytes] = []
        hashes: list[tuple[int, int]] = []
        hasher_topic: str | None = None
        unique = other = _no_hash
        indexed = self._index is not None
        room = log.room
        physical = log.end + prefix
        pack4 = _HEADS[8, 8]
        entry = _entry
        lengths = _LENGTHS
        longest = MAX_BYTES
        try:
            for (
                queue, body, properties, flag, sys_flag, born_timestamp, born_host, store_host,
                reconsume_times, prepared_offset, tags_code, keys,
            ) in puts:  # fmt: skip
                body_size = len(body)
                properties_size = len(properties)
                size = queue.overhead + body_size + properties_size
                if sys_flag & 0x30:
                    size += len(born_host) + len(store_host) - 16
                    pack = _HEADS[len(born_host), len(store_host)]
                else:
                    pack = pack4
                if properties_size > longest:
                    raise RecordTooLarge(
                        f"a property string of {properties_size} bytes: at most {MAX_BYTES} are allowed"
                    )
                if size + prefix > room:
                    if size + prefix + 8 > log.file_size:
                        raise RecordTooLarge(f"a record of {size} bytes fits in no commit-log file of {log.file_size}")
                    if parts:
                        log.write(b"".join(parts))
                        parts.clear()
                        if hashes and self._index is not None:
                            self._index.put_many(hashes, stamp)
                            hashes = []
                        marks = [(q, q.next, len(q.tail), q.max_phys, q.bytes_put) for q in touched]
                    log.roll()
                    room = log.room
                    physical = log.end + prefix
                if start < 0:
                    start = physical - prefix
                index = queue.next
                if not queue.touched:
                    queue.touched = True
                    touched.append(queue)
                    marks.append((queue, index, len(queue.tail), queue.max_phys, queue.bytes_put))
                parts += (
                    pack(
                        size, _MAGIC, crc32(body) & 0x7FFFFFFF if body_size else 0, queue.id, flag, index, physical,
                        sys_flag, born_timestamp, born_host, stamp, store_host, reconsume_times, prepared_offset,
                        body_size,
                    ),
                    body,
                    queue.topic_field,
                    lengths[properties_size],
                    properties,
                )  # fmt: skip
                queue.tail += entry(physical, size, tags_code)
                queue.next = index + 1
                offsets.append((index, physical))
                if indexed and keys:
                    topic = queue.topic
                    if topic != hasher_topic:
                        hasher = self.hasher(topic)
                        hasher_topic = topic
                        unique = hasher.unique
                        other = hasher.of
                    hashes.append((unique(keys[0]), physical))
                    if len(keys) == 2:
                        hashes.append((other(keys[1]), physical))
                    else:
                        hashes += [(other(key), physical) for key in keys[1:]]
                queue.bytes_put += size
                queue.max_phys = physical + size
                physical += size + prefix
                room -= size + prefix
            log.write(b"".join(parts))
        except BaseException:
            for queue, index, tail, max_phys, bytes_put in marks:
                del queue.tail[tail:]
                queue.next = index
                queue.max_phys = max_phys
                queue.bytes_put = bytes_put
            for queue in touched:
                queue.touched = False
            raise
        # The bytes are in the file: the index may have their keys.
        if hashes and self._index is not None:
            self._index.put_many(hashes, stamp)
        for queue in touched:
            queue.touched = False
        return Span(start, log.end, offsets, touched)
