"""A delayed record made into the message that is delivered.

Of a record only the fields that the delivered message keeps are cut out, as bytes: the
property string in particular stays exactly as stored, so DELAY, REAL_TOPIC and REAL_QID remain visible, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from rmq.broker.store.index.words import keys_to_index
from rmq.broker.store.state import Put, Queue
from rmq.protocol import properties
from rmq.protocol.errors import ProtocolError
from rmq.protocol.names import HALF_TOPIC, is_broker_topic
from rmq.protocol.numbers import INT_MAX, whole
from rmq.protocol.record import FIXED_SIZE, MAGIC_V1, fields, fitted, host_places, store_time
from rmq.protocol.tags import string_hash

__all__ = ["BATCH_PROPERTIES", "HalfMessageParked", "rebuild"]

#: Bytes of properties that are delivered before the loop gets its turn, besides any number of bytes of bodies: what has
#: to be read of a message, and takes some milliseconds.
BATCH_PROPERTIES = 64 << 10

_head = fields("size", "magic", "flag", "sys_flag", "born_timestamp")
_int = Struct(">i").unpack_from


class HalfMessageParked(ValueError):
    """A half message with a delay: its own topic is lost, it is not delivered (store-and-broker.md 7.1)."""


def rebuild(
    record: bytes,
    queue_of: Callable[[str, int], Queue],
    change: Callable[[dict[str, str], int], None] | None = None,
) -> Put:
    """The message to append for a due record.

    Kept: body, flag, properties, sysFlag, born time and host, store host, reconsume times. The store stamp is new.

    :param record: one whole record of the commit log.
    :param queue_of: finds the queue of a topic and queue id.
    :param change: given the properties and the store time, ms; what it makes of them is what is delivered.
    :raises ValueError: it is no record, or it does not say where to go.
    """
    if len(record) < FIXED_SIZE:
        raise ValueError(f"{len(record)} bytes are no record")
    size, magic, flag, sys_flag, born_timestamp = _head(record, 0)
    if magic != MAGIC_V1 or size != len(record):
        raise ValueError(f"no record of {len(record)} bytes: size {size}, magic {magic & 0xFFFFFFFF:08X}")
    try:
        body_at, topic_at, _, behind = fitted(record, 0, size)
    except ProtocolError as error:
        raise ValueError(str(error)) from None
    born_at, born_end, store_at, store_end = host_places(sys_flag)
    raw = record[behind + 2 :]
    held = properties.decode(raw.decode())
    if change is not None:
        change(held, store_time(record))
        raw = properties.encode(held).encode()
    topic, queue_id = held.get("REAL_TOPIC"), whole(held.get("REAL_QID"), INT_MAX)
    if not topic or queue_id is None:
        raise ValueError("it has no REAL_TOPIC, or no REAL_QID that is a queue's")
    if topic == HALF_TOPIC:
        raise HalfMessageParked(f"its unique key is {held.get('UNIQ_KEY')}")
    if is_broker_topic(topic):
        raise ValueError(f"it is for {topic}, to which only the broker itself writes")
    queue = queue_of(topic, queue_id)
    if not queue.topic_field:
        raise ValueError(f"{len(topic)} characters are too many for a topic's name")
    tags = held.get("TAGS")
    return Put(
        queue=queue,
        body=record[body_at:topic_at],
        properties=raw,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=record[born_at:born_end],
        store_host=record[store_at:store_end],
        reconsume_times=_int(record, store_end)[0],
        prepared_offset=0,
        tags_code=string_hash(tags) if tags else 0,
        keys=keys_to_index(held),
    )
