"""The hot state of the store: one queue, and one message to append.

These classes are read and written by the lane, the append, the dispatcher and delivery on every message. Nobody
subclasses or patches them, so that they can be compiled as they are.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ENTRY", "ENTRY_SIZE", "PLACE", "Delta", "Put", "Queue", "Span"]

#: One consume-queue entry (store-and-broker.md 3.1): commit-log offset and size of a record, and the tags code;
ENTRY = Struct(">qiq")
#: and of these the two that say where the record is.
PLACE = Struct(">qi8x")
ENTRY_SIZE = 20


class Queue:
    """One consume queue, with its two ends.

    ``next`` is the index the next message gets; ``visible`` is the end that consumers are told: a message lies between
    the two while it is not yet as durable as the broker promises. Indexes count messages, not bytes.
    """

    __slots__ = (
        "bytes_put",
        "files",
        "holds",
        "id",
        "max_phys",
        "min",
        "next",
        "overhead",
        "tail",
        "tail_from",
        "topic",
        "topic_field",
        "visible",
    )

    def __init__(self, topic: str, queue_id: int) -> None:
        encoded = topic.encode()
        self.topic = topic
        #: Topic length byte and topic, as a record holds them.
        self.topic_field = bytes((len(encoded),)) + encoded if len(encoded) < 128 else b""
        #: Bytes of a record with IPv4 hosts besides its body and properties.
        self.overhead = 90 + len(self.topic_field)
        self.id = queue_id
        self.next = 0
        self.visible = 0
        #: First readable index.
        self.min = 0
        #: Entries that are not on disk yet; the first of them has index ``tail_from``.
        self.tail = bytearray()
        self.tail_from = 0
        #: Commit-log offset behind the newest entry's record: dispatch is idempotent by it.
        self.max_phys = 0
        #: Bytes of records appended since start, for the statistics.
        self.bytes_put = 0
        #: Parked pulls, or None (owned by delivery).
        self.holds: list[Any] | None = None
        #: The file set behind it (owned by the queue table).
        self.files: Any = None

    def __repr__(self) -> str:
        return f"<queue {self.topic}-{self.id} min={self.min} visible={self.visible} next={self.next}>"


#: What an append adds to a queue: the queue, its new entries, how many they are, bytes of records that count for its
#: statistics, and the commit-log offset behind the last record.
Delta = tuple[Queue, bytes, int, int, int]


class Put(NamedTuple):
    """One message to append. Everything but ``queue`` goes into the record as it is (store-and-broker.md 2.1).

    The lane gives plain tuples of this shape for plain sends, which are most of all messages: they are made in a
    fraction of the time. What all appends go through reads by position, or unpacks.
    """

    queue: Queue
    #: As stored, after any compression.
    body: bytes
    #: The property string in UTF-8, at most 32,767 bytes; it does not end in a zero byte.
    properties: bytes
    flag: int
    #: With the IPv6 bits set as ``born_host`` and ``store_host`` need them.
    sys_flag: int
    #: Client clock, ms.
    born_timestamp: int
    #: Address (4 or 16 bytes) and port (4 bytes).
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    #: Hash of the tag, or the delivery time of a delayed message.
    tags_code: int
    #: Index keys in UTF-8, none empty: the unique key first, then the tokens of KEYS.
    keys: Sequence[bytes]


class Span(NamedTuple):
    """What one append wrote: commit-log bytes ``start`` to ``end``."""

    start: int
    end: int
    #: One (queue index, commit-log offset) a message, in the order given.
    offsets: list[tuple[int, int]]
    #: Every queue that got an entry, once.
    touched: list[Queue]
