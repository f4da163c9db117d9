"""A message as a line of JSON: `rmq tap` writes it, `rmq replay` and `rmq produce -F json` read it.

============  ========================================================================================
topic         text
body          text where the body is UTF-8, else ``body64`` in its place: base64
tags, keys    text; absent where there are none
properties    the application's own, an object of texts; absent where there are none
flag          number; absent where it is 0
broker, queue, offset, id, born, stored, reconsumed    where it was and when, milliseconds; not read back but for
              ``queue`` and ``stored``, which keep order and timing of a replay
============  ========================================================================================
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import orjson

from rmq.client.message import Message, MessageExt
from rmq.protocol.properties import RESERVED

__all__ = ["Captured", "captured", "line_of"]


def line_of(message: MessageExt) -> bytes:
    """One line, with its end."""
    record: dict[str, Any] = {"topic": message.topic}
    try:
        record["body"] = message.body.decode()
    except UnicodeDecodeError:
        record["body64"] = base64.b64encode(message.body).decode()
    own = {name: value for name, value in message.properties.items() if name not in RESERVED}
    for name, value in (("tags", message.tags), ("keys", message.keys), ("properties", own), ("flag", message.flag)):
        if value:
            record[name] = value
    record |= {
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": message.msg_id,
        "born": message.born_timestamp,
        "stored": message.store_timestamp,
    }
    if message.reconsume_times:
        record["reconsumed"] = message.reconsume_times
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


@dataclass(slots=True)
class Captured:
    """A line read back: the message to send, and what is left of where and when it was."""

    message: Message
    queue: int | None
    stored: int | None


def captured(line: bytes, topic: str | None = None) -> Captured:
    """Read a line.

    :param topic: where it goes in place of the topic that it names.
    :raises ValueError: what is wrong with it.
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    where = topic or _text(record, "topic")
    if where is None:
        raise ValueError("it has no topic, and none was given")
    message = Message(
        where,
        _body(record),
        tags=_text(record, "tags"),
        keys=_text(record, "keys"),
        flag=_number(record, "flag") or 0,
        properties=_properties(record),
    )
    return Captured(message, _number(record, "queue"), _number(record, "stored"))


def _body(record: dict[str, Any]) -> bytes:
    if ("body" in record) == ("body64" in record):
        raise ValueError("it needs body or body64, and not both")
    if (text := _text(record, "body64")) is not None:
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError(f"body64 is no base64: {error}") from None
    body = record.get("body")
    # An object in place of a text is what people have in their files.
    return body.encode() if isinstance(body, str) else orjson.dumps(body)


def _text(record: dict[str, Any], name: str) -> str | None:
    value = record.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.40}: give a text")
    return value


def _number(record: dict[str, Any], name: str) -> int | None:
    value = record.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{name} is {value!r:.40}: give a whole number")
    return value


def _properties(record: dict[str, Any]) -> dict[str, str]:
    value = record.get("properties", {})
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError("properties is no object of texts")
    return value
