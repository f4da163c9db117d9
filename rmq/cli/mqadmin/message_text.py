"""A message as Java's tools write it: a sheet of its fields, one line of them all, and as JSON."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

from rmq.cli.mqadmin.text import address, plain, stamp
from rmq.client.message import MessageExt
from rmq.protocol.sysflags import COMPRESSED
from rmq.protocol.tags import string_hash

__all__ = ["as_json", "in_one_line", "in_table", "sheet"]


def sheet(message: MessageExt, *, offset_id: bool = True) -> Iterator[str]:
    """A line a field; the body is written to a file, which is named."""
    try:
        path = _keep_body(message)
    except OSError as error:  # a disk without room: the rest is what was asked for
        path = f"none: it cannot be written: {error.strerror or error}"
    properties = _properties(message)
    for name, value in (
        *((("OffsetID:", message.offset_msg_id),) if offset_id else ()),
        ("Topic:", message.topic),
        ("Tags:", f"[{message.properties.get('TAGS', 'null')}]"),
        ("Keys:", f"[{message.properties.get('KEYS', 'null')}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.commit_log_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", stamp(message.born_timestamp)),
        ("Store Timestamp:", stamp(message.store_timestamp)),
        ("Born Host:", address(message.born_host)),
        ("Store Host:", address(message.store_host)),
        ("System Flag:", _flag(message)),
        ("Properties:", f"{{{properties}}}"),
        ("Message Body Path:", path),
    ):
        yield f"{name:<20} {value}"


def in_one_line(message: MessageExt, *, body: bool, charset: str = "UTF-8") -> str:
    """``MSGID: ... BODY: ...``; the bytes of the body stand in it either way, as in Java's."""
    properties = _properties(message)
    signed = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in message.body)
    text = (
        f"MessageExt [brokerName={message.broker_name}, queueId={message.queue_id}, storeSize={message.store_size}, "
        f"queueOffset={message.queue_offset}, sysFlag={_flag(message)}, bornTimestamp={message.born_timestamp}, "
        f"bornHost=/{address(message.born_host)}, storeTimestamp={message.store_timestamp}, "
        f"storeHost=/{address(message.store_host)}, msgId={message.offset_msg_id}, "
        f"commitLogOffset={message.commit_log_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={message.flag}, properties={{{properties}}}, "
        f"body=[{signed}], transactionId='{message.transaction_id or 'null'}'}}]"
    )
    shown = message.body.decode(charset, "replace") if body else "NOT PRINT BODY"
    return f"MSGID: {plain(message.msg_id)} {plain(text)} BODY: {plain(shown)}"


def _properties(message: MessageExt) -> str:
    """``name=value, ...`` in the order in which Java's hash table has them."""
    slots = 16
    while len(message.properties) * 4 > slots * 3:
        slots *= 2
    names = sorted(message.properties, key=lambda name: _slot(name) & slots - 1)
    return ", ".join(f"{name}={message.properties[name]}" for name in names)


def _flag(message: MessageExt) -> int:
    """As it is stored: the SDK takes the mark of a compressed body away with the compression."""
    return message.sys_flag | (COMPRESSED if message.store_size < len(message.body) else 0)


def _slot(name: str) -> int:
    code = string_hash(name) & 0xFFFFFFFF
    return code ^ code >> 16


def _keep_body(message: MessageExt) -> str:
    """Write the body where Java's tool does, readable by this user alone."""
    folder = os.path.join(tempfile.gettempdir(), "rocketmq", "msgbodys")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    # A producer chooses the unique id: it names a file only when it cannot be a path.
    path = os.path.join(folder, message.msg_id if message.msg_id.isalnum() else message.offset_msg_id)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(file, "wb") as target:
        target.write(message.body)
    return path


def as_json(message: MessageExt) -> dict[str, object]:
    return {
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.commit_log_offset,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "bornHost": address(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": address(message.store_host),
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "properties": message.properties,
        "body": message.body.decode("utf-8", "backslashreplace"),
    }


def in_table(row: dict[str, object]) -> dict[str, object]:
    """What of :func:`as_json` fits on a line of a terminal."""
    properties = row["properties"]
    assert isinstance(properties, dict)
    return {
        "msgId": row["msgId"],
        "queue": f"{row['brokerName']}/{row['queueId']}",
        "offset": row["queueOffset"],
        "storeTimestamp": row["storeTimestamp"],
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "body": row["body"],
    }
