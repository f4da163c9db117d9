"""Records as brokers send them, to the messages an application gets."""

from __future__ import annotations

import logging

from rmq.client.message import MessageExt
from rmq.protocol import message as codec
from rmq.protocol.errors import ProtocolError
from rmq.protocol.message import MessageRecord

__all__ = ["decode_messages", "received"]

log = logging.getLogger(__name__)

_COMPRESSED = 1


def received(record: MessageRecord, broker_name: str) -> MessageExt:
    """One record as a message; its body is decompressed.

    A body that cannot be decompressed is given as it was stored, with a line in the log: the application decides.
    """
    message = MessageExt()
    message.topic = record.topic
    sys_flag = record.sys_flag
    body = record.body
    if sys_flag & _COMPRESSED:
        try:
            body = codec.decompress(body, sys_flag)
            sys_flag &= ~_COMPRESSED
        except (ProtocolError, ImportError, ValueError) as error:
            log.error("%s offset %d: the body cannot be decompressed: %s", record.topic, record.queue_offset, error)
    message.body = body
    message.sys_flag = sys_flag
    message.flag = record.flag
    message.properties = record.properties
    message.broker_name = broker_name
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


def decode_messages(body: bytes, broker_name: str) -> list[MessageExt]:
    """The records of a pull or a query; empty for an empty body."""
    return [received(record, broker_name) for record in codec.decode_records(body)]
