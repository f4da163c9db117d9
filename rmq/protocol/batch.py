"""The body of a batch send (protocol.md 5.3): messages of one topic, one after the other.

::

    width   field
    4       size of this item
    4       magic: 0
    4       body CRC: 0
    4       user flag
    4 + n   body
    2 + n   property string
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct

from rmq.protocol import properties as property_string
from rmq.protocol.errors import ProtocolError

__all__ = ["ITEM_SIZE", "MESSAGE_WEIGHT", "add", "decode", "decode_raw", "encode", "holds_more_than", "read"]

_HEAD = Struct(">iiiii")
_SHORT = Struct(">h")
#: Bytes that a message takes besides its body and its properties.
ITEM_SIZE = 22
#: What a message without properties costs its reader, in bytes of properties.
MESSAGE_WEIGHT = 100


def add(parts: list[bytes], flag: int, body: bytes, tail: bytes) -> int:
    """Add a message to the parts of a batch, whose bytes are all parts joined.

    :param tail: its property string, at most 32,767 bytes.
    :returns: bytes that it takes.
    """
    size = ITEM_SIZE + len(body) + len(tail)
    parts += (_HEAD.pack(size, 0, 0, flag, len(body)), body, _SHORT.pack(len(tail)), tail)
    return size


def encode(messages: Iterable[tuple[int, bytes, Mapping[str, str]]]) -> bytes:
    """The batch of (flag, body, properties).

    :raises ProtocolError: properties that are too long.
    """
    parts: list[bytes] = []
    for flag, body, properties in messages:
        tail = property_string.encode(properties).encode()
        if len(tail) > property_string.MAX_BYTES:
            raise ProtocolError(f"properties of {len(tail)} bytes: at most {property_string.MAX_BYTES} are allowed")
        add(parts, flag, body, tail)
    return b"".join(parts)


def read(data: bytes | memoryview) -> Iterator[tuple[int, bytes, bytes]]:
    """The (flag, body, property string as bytes) of a batch, one by one.

    :raises ProtocolError: not a batch, or cut off: nothing of it is to be stored.
    """
    at, whole = 0, len(data)
    while at < whole:
        if at + ITEM_SIZE > whole:
            raise ProtocolError(f"a batch that ends within a message at byte {at}")
        size, _, _, flag, body_size = _HEAD.unpack_from(data, at)
        end = at + size
        body_at = at + 20
        tail_at = body_at + body_size
        if size < ITEM_SIZE or end > whole or body_size < 0 or tail_at + 2 > end:
            raise ProtocolError(f"a batch whose message at byte {at} has size {size} and a body of {body_size}")
        tail_size = _SHORT.unpack_from(data, tail_at)[0]
        if tail_size < 0 or tail_at + 2 + tail_size != end:
            raise ProtocolError(f"a batch whose message at byte {at} has properties of {tail_size} bytes")
        yield flag, bytes(data[body_at:tail_at]), bytes(data[tail_at + 2 : end])
        at = end


def decode_raw(data: bytes | memoryview) -> list[tuple[int, bytes, bytes]]:
    """All that :func:`read` gives, for a broker that stores the property strings as they are."""
    return list(read(data))


def holds_more_than(data: bytes, weight: int, shared: int = 0) -> bool:
    """Whether a batch takes longer to read than that, by its sizes; of what is no batch: whether it may.

    :param weight: bytes of properties; a message counts as :data:`MESSAGE_WEIGHT` more.
    :param shared: bytes of properties that are added to each message.
    """
    at, whole = 0, len(data)
    shared += MESSAGE_WEIGHT - ITEM_SIZE
    while at < whole and weight >= 0:
        size = max(int.from_bytes(data[at : at + 4], "big"), ITEM_SIZE)
        weight -= max(size - int.from_bytes(data[at + 16 : at + 20], "big"), 0) + shared
        at += size
    return weight < 0


def decode(data: bytes | memoryview) -> list[tuple[int, bytes, dict[str, str]]]:
    """The (flag, body, properties) of a batch.

    :raises ProtocolError: not a batch, or cut off.
    """
    return [
        (flag, body, property_string.decode(str(tail, "utf-8", "replace"))) for flag, body, tail in decode_raw(data)
    ]
