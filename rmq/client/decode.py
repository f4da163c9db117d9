"""Records as brokers send them, to the messages an application gets.

Nearly all records are of version 1 with IPv4 hosts: those are read here in one go, straight into the message. Others
go through the general codec of :mod:`rmq.protocol.message`.
"""

from __future__ import annotations

from rmq.client.message import MessageExt, MessageQueue
from rmq.protocol import addresses
from rmq.protocol import message as codec
from rmq.protocol import properties as property_string
from rmq.protocol.crc import crc32
from rmq.protocol.errors import ConfigError, ProtocolError
from rmq.protocol.headers.reply import ReplyMessageRequest
from rmq.protocol.ids import host_text
from rmq.protocol.message import MessageRecord
from rmq.protocol.properties import ARRIVE_TIME
from rmq.protocol.record import FIELDS, HEAD_SIZE, MAGIC_V1, fields
from rmq.protocol.sysflags import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from rmq.runtime.aside import logger

__all__ = ["decode_messages", "decode_pulled", "pushed", "received"]

log = logger(__name__)

#: A version 1 record with IPv4 hosts, up to the length of its body.
_head = fields(*FIELDS)
#: Without its constructor: what is read sets all there is.
_new = MessageExt.__new__
_NOT_PLAIN = BORN_HOST_V6 | STORE_HOST_V6


def decode_messages(body: bytes, broker_name: str) -> list[MessageExt]:
    """The records of a query, up to the first that is damaged or cut off; empty for an empty body."""
    messages: list[MessageExt] = []
    why = _decode(body, broker_name, messages)
    if why is not None:
        log.error("%s sent a record that cannot be read: %s", broker_name or "a broker", why)
    return messages


def decode_pulled(body: bytes, queue: MessageQueue, begin: int, end: int) -> tuple[list[MessageExt], str | None]:
    """The records of a pull, up to the first that is not what was asked for.

    Each is compared with its checksum and its place: what a broker reads from its disk may have changed there. Where
    the places of two do not go together, either may be the wrong one, and none is good.

    :param begin: the offset that was asked for. :param end: where the broker says that the next pull begins.
    :returns: the good ones, and what is wrong with the one behind them; None: they are all there is.
    """
    messages: list[MessageExt] = []
    why = _decode(body, queue.broker_name, messages)
    for message in messages:
        at = message.queue_offset
        if not begin <= at < end or message.queue_id != queue.queue_id or message.topic != queue.topic:
            place = f"offset {at} of queue {message.queue_id} of {message.topic:.300}"
            return [], f"a record of {place} where one of {begin} to {end - 1} of {queue} was asked for"
        begin = at + 1
    return messages, why


def _decode(body: bytes, broker_name: str, messages: list[MessageExt]) -> str | None:
    """Add the good records to ``messages``; what is wrong with the first that is not."""
    position, size = 0, len(body)
    while position < size:
        message = _plain(body, position, size) if size - position > HEAD_SIZE else None
        if message is None:
            try:
                message = _given(codec.decode_record(body, position))
            except ProtocolError as error:
                return str(error)
        if message.body_crc and crc32(message.body) & 0x7FFFFFFF != message.body_crc:
            return f"a message record at byte {position} whose body does not match its CRC"
        message.broker_name = broker_name
        if message.sys_flag & COMPRESSED:
            _decompress(message)
        messages.append(message)
        position += message.store_size
    return None


def _plain(body: bytes, position: int, size: int) -> MessageExt | None:
    """The record at ``position`` when it is of the common form and whole; its body as stored."""
    message = _new(MessageExt)
    (
        length,
        magic,
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.commit_log_offset,
        sys_flag,
        message.born_timestamp,
        born_ip,
        born_port,
        message.store_timestamp,
        store_ip,
        store_port,
        message.reconsume_times,
        message.prepared_transaction_offset,
        body_size,
    ) = _head(body, position)
    end = position + length
    at = position + HEAD_SIZE + body_size
    if magic != MAGIC_V1 or sys_flag & _NOT_PLAIN or body_size < 0 or end > size or at + 3 > end:
        return None
    topic_end = at + 1 + body[at]
    if topic_end + 2 + (body[topic_end] << 8 | body[topic_end + 1] if topic_end + 2 <= end else -1) != end:
        return None
    message.sys_flag = sys_flag
    message.store_size = length
    message.born_host = (host_text(born_ip), born_port)
    message.store_host = (host_text(store_ip), store_port)
    message.body = body[at - body_size : at]
    message.topic = str(body[at + 1 : topic_end], "utf-8", "replace")
    message.properties = property_string.decode(str(body[topic_end + 2 : end], "utf-8", "replace"))
    return message


def received(record: MessageRecord, broker_name: str) -> MessageExt:
    """One record as a message; its body is decompressed."""
    message = _given(record)
    message.broker_name = broker_name
    if message.sys_flag & COMPRESSED:
        _decompress(message)
    return message


def pushed(header: ReplyMessageRequest, body: bytes, now_ms: int) -> MessageExt:
    """A reply as a broker hands it over (326): whether and where it was stored, it does not say."""
    message = _new(MessageExt)
    message.topic = header.topic
    message.body = body
    message.sys_flag = header.sys_flag
    message.flag = header.flag
    message.properties = property_string.decode(header.properties or "")
    message.properties[ARRIVE_TIME] = str(now_ms)
    message.broker_name = ""
    message.queue_id = header.queue_id
    message.born_timestamp = header.born_timestamp
    message.born_host = _host(header.born_host)
    message.store_timestamp = header.store_timestamp
    message.store_host = _host(header.store_host)
    message.reconsume_times = header.reconsume_times or 0
    message.queue_offset = message.commit_log_offset = message.store_size = 0
    message.body_crc = message.prepared_transaction_offset = 0
    if message.sys_flag & COMPRESSED:
        _decompress(message)
    return message


def _host(text: str) -> tuple[str, int]:
    """A host as headers have it; no reply is lost for one that is none."""
    try:
        return addresses.parse(text.lstrip("/"))
    except ConfigError:
        return "0.0.0.0", 0


def _given(record: MessageRecord) -> MessageExt:
    """A message as it is stored."""
    message = _new(MessageExt)
    message.topic = record.topic
    message.body = record.body
    message.sys_flag = record.sys_flag
    message.flag = record.flag
    message.properties = record.properties
    message.queue_id = record.queue_id
    message.queue_offset = record.queue_offset
    message.commit_log_offset = record.physical_offset
    message.born_timestamp = record.born_timestamp
    message.born_host = record.born_host
    message.store_timestamp = record.store_timestamp
    message.store_host = record.store_host
    message.store_size = record.size
    message.body_crc = record.body_crc or 0
    message.reconsume_times = record.reconsume_times
    message.prepared_transaction_offset = record.prepared_transaction_offset
    return message


def _decompress(message: MessageExt) -> None:
    """A body that cannot be decompressed is given as it was stored, with a line in the log: the application decides."""
    try:
        message.body = codec.decompress(message.body, message.sys_flag)
        message.sys_flag &= ~COMPRESSED
    except ProtocolError as error:
        log.error("%s offset %d: the body cannot be decompressed: %s", message.topic, message.queue_offset, error)
