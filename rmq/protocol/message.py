"""The message record: what the commit log holds and pull answers carry (:mod:`rmq.protocol.record` has the layout)."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from struct import error as struct_error

from rmq.protocol import ids, sysflags
from rmq.protocol import properties as property_string
from rmq.protocol.compression import compress, decompress
from rmq.protocol.crc import crc32
from rmq.protocol.errors import ProtocolError
from rmq.protocol.record import FIELDS, FIXED_SIZE, HEADS, MAGIC_V1, MAGIC_V2, fields, fitted, host_places

__all__ = [
    "MessageRecord",
    "body_crc",
    "compress",
    "decode_record",
    "decode_records",
    "decompress",
    "encode_record",
    "record_size",
]

_SHORT = Struct(">h")
_head = fields(*FIELDS)
_V6 = sysflags.BORN_HOST_V6 | sysflags.STORE_HOST_V6


@dataclass(slots=True)
class MessageRecord:
    """One stored message (Java: MessageExt as decoded from a record).

    ``body`` is as stored, possibly compressed (:meth:`content` gives the plain one); hosts are (address text, port);
    timestamps are milliseconds. ``size`` and ``body_crc`` are computed when a record is encoded with 0 and None.
    """

    topic: str
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: tuple[str, int] = ("0.0.0.0", 0)
    store_timestamp: int = 0
    store_host: tuple[str, int] = ("0.0.0.0", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body: bytes = b""
    properties: dict[str, str] = field(default_factory=dict)
    body_crc: int | None = None
    size: int = 0
    magic: int = MAGIC_V1
    #: The property string as it stood in the record; written back as it is while ``properties`` still says the same.
    property_text: str | None = None

    @property
    def offset_msg_id(self) -> str:
        """The id that names this record's place: store host and physical offset."""
        return ids.offset_msg_id(*self.store_host, self.physical_offset)

    @property
    def msg_id(self) -> str:
        """The client's id where there is one, else the offset id."""
        return self.properties.get(property_string.UNIQ_KEY) or self.offset_msg_id

    def content(self) -> bytes:
        """The body as its sender gave it.

        :raises ProtocolError: it is compressed in a way that cannot be undone here.
        """
        return decompress(self.body, self.sys_flag)


def body_crc(body: bytes) -> int:
    """The CRC that records carry of their stored body."""
    return crc32(body) & 0x7FFFFFFF


def record_size(sys_flag: int, body: int, topic: int, property_bytes: int, magic: int = MAGIC_V1) -> int:
    """Bytes of a record, given the bytes of its variable parts."""
    size = FIXED_SIZE + body + topic + property_bytes + (magic == MAGIC_V2)
    if sys_flag & sysflags.BORN_HOST_V6:
        size += 12
    if sys_flag & sysflags.STORE_HOST_V6:
        size += 12
    return size


def encode_record(record: MessageRecord) -> bytes:
    """A record's bytes. Host lengths follow the addresses given; the two sysFlag bits for IPv6 are set to match.

    :raises ProtocolError: a topic or property string too long for its length field, or a host that is no address.
    """
    topic = record.topic.encode()
    text = record.property_text
    if text is None or property_string.decode(text) != record.properties:
        text = property_string.encode(record.properties)
    tail = text.encode()
    born, store = ids.pack_host(*record.born_host), ids.pack_host(*record.store_host)
    sys_flag = record.sys_flag & ~(sysflags.BORN_HOST_V6 | sysflags.STORE_HOST_V6)
    if len(born) == 20:
        sys_flag |= sysflags.BORN_HOST_V6
    if len(store) == 20:
        sys_flag |= sysflags.STORE_HOST_V6
    if len(topic) > (127 if record.magic == MAGIC_V1 else 32_767):
        raise ProtocolError(f"a topic of {len(topic)} bytes does not fit the record")
    if len(tail) > property_string.MAX_BYTES:
        raise ProtocolError(f"properties of {len(tail)} bytes: at most {property_string.MAX_BYTES} fit the record")
    body = record.body
    size = record_size(sys_flag, len(body), len(topic), len(tail), record.magic)
    crc = body_crc(body) if record.body_crc is None else record.body_crc
    return b"".join(
        (
            HEADS[len(born), len(store)].pack(
                size,
                record.magic,
                crc,
                record.queue_id,
                record.flag,
                record.queue_offset,
                record.physical_offset,
                sys_flag,
                record.born_timestamp,
                born,
                record.store_timestamp,
                store,
                record.reconsume_times,
                record.prepared_transaction_offset,
                len(body),
            ),
            body,
            len(topic).to_bytes(1 if record.magic == MAGIC_V1 else 2, "big"),
            topic,
            _SHORT.pack(len(tail)),
            tail,
        )
    )


def decode_record(buf: bytes | bytearray | memoryview, pos: int = 0, *, check_crc: bool = False) -> MessageRecord:
    """Read the record at ``pos``; its size tells where the next one starts.

    :param check_crc: compare the body with its CRC (a CRC of 0 counts as unknown).
    :raises ProtocolError: damaged or cut off.
    """
    try:
        return _decode(buf, pos, check_crc)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a damaged message record at byte {pos}: {error}") from None


def _decode(buf: bytes | bytearray | memoryview, pos: int, check_crc: bool) -> MessageRecord:
    (
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_ip,
        born_port,
        store_timestamp,
        store_ip,
        store_port,
        reconsume_times,
        prepared,
        _,
    ) = _head(buf, pos)
    end = pos + size
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise ProtocolError(f"no message record at byte {pos}: magic {magic & 0xFFFFFFFF:08X}")
    if size < FIXED_SIZE or end > len(buf):
        raise ProtocolError(f"a message record of {size} bytes at byte {pos}, where {len(buf) - pos} are left")
    body_at, topic_at, name_at, behind = fitted(buf, pos, size)
    body = bytes(buf[body_at:topic_at])
    if check_crc and crc and crc != body_crc(body):
        raise ProtocolError(f"a message record at byte {pos} whose body does not match its CRC")
    if sys_flag & _V6:
        born_at, born_end, store_at, store_end = host_places(sys_flag)
        born_host = ids.unpack_host(bytes(buf[pos + born_at : pos + born_end]))
        store_host = ids.unpack_host(bytes(buf[pos + store_at : pos + store_end]))
        *_, store_timestamp, _, reconsume_times, prepared, _ = HEADS[
            born_end - born_at, store_end - store_at
        ].unpack_from(buf, pos)
    else:
        born_host = ids.host_text(born_ip), born_port
        store_host = ids.host_text(store_ip), store_port
    topic = str(buf[name_at:behind], "utf-8")
    text = str(buf[behind + 2 : end], "utf-8", "replace")
    return MessageRecord(
        topic,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared,
        body,
        property_string.decode(text),
        crc,
        size,
        magic,
        text,
    )


def decode_records(buf: bytes | bytearray | memoryview, *, check_crc: bool = False) -> list[MessageRecord]:
    """Read records that follow each other, up to the first that is damaged or cut off, as Java's client does."""
    records: list[MessageRecord] = []
    pos, end = 0, len(buf)
    while pos < end:
        try:
            record = decode_record(buf, pos, check_crc=check_crc)
        except ProtocolError:
            break
        records.append(record)
        pos += record.size
    return records
