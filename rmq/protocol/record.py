"""Where the fields of a stored message record lie (protocol.md 5.1): whoever reads one asks here.

::

    at           width        field
    0            4            total size, itself included
    4            4            magic: DAA320A7 (V1) or DAA320AB (V2: topics over 127 bytes)
    8            4            body CRC: CRC-32 & 0x7FFFFFFF of the stored body
    12           4            queue id
    16           4            user flag
    20           8            queue offset
    28           8            physical offset
    36           4            sysFlag
    40           8            born timestamp, ms
    48           4|16 + 4     born host, port (16 when sysFlag 0x10)
    56           8            store timestamp, ms
    64           4|16 + 4     store host, port (16 when sysFlag 0x20)
    72           4            reconsume times
    76           8            prepared transaction offset
    84           4 + n        body
                 1 + n        topic (V2: 2 + n)
                 2 + n        properties

What lies behind an IPv6 host is 12 bytes further on than it says here.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, calcsize
from typing import Any, Final

from rmq.protocol.errors import ProtocolError

__all__ = [
    "BLANK_MAGIC",
    "FIELDS",
    "FIXED_SIZE",
    "HEADS",
    "HEAD_SIZE",
    "MAGIC_V1",
    "MAGIC_V2",
    "fields",
    "fitted",
    "form",
    "host_places",
    "is_blank",
    "places",
    "store_time",
    "topic_of",
]

MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
#: The filler at the end of a commit-log file.
BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
#: Bytes in front of the body of a record with IPv4 hosts.
HEAD_SIZE: Final = 88
#: Fixed bytes of a V1 record with IPv4 hosts: no record is smaller.
FIXED_SIZE: Final = 91

Buffer = bytes | bytearray | memoryview
#: Place and type, as of :mod:`struct`, of each field in front of the body of a record with IPv4 hosts.
FIELDS: Final = {
    "size": (0, "i"),
    "magic": (4, "i"),
    "body_crc": (8, "I"),
    "queue_id": (12, "i"),
    "flag": (16, "i"),
    "queue_offset": (20, "q"),
    "physical_offset": (28, "q"),
    "sys_flag": (36, "i"),
    "born_timestamp": (40, "q"),
    "born_ip": (48, "4s"),
    "born_port": (52, "i"),
    "store_timestamp": (56, "q"),
    "store_ip": (64, "4s"),
    "store_port": (68, "i"),
    "reconsume_times": (72, "i"),
    "prepared_transaction_offset": (76, "q"),
    "body_size": (84, "i"),
}
#: Position of the byte of sysFlag that tells of IPv6 hosts.
_HOSTS_AT = 39

_pair = Struct(">ii").unpack_from
_int = Struct(">i").unpack_from
_short = Struct(">h").unpack_from
_long = Struct(">q").unpack_from


def form(*names: str) -> str:
    """Some fields of a record, and the bytes between them, as :mod:`struct` writes a layout.

    :param names: of :data:`FIELDS`, in their order.
    """
    form, end = ">", 0
    for name in names:
        at, letter = FIELDS[name]
        if at < end:
            raise ValueError(f"{name} lies before the field that is named before it")
        form += f"{at - end}x{letter}"
        end = at + calcsize(f">{letter}")
    return form


def fields(*names: str) -> Callable[[Buffer, int], tuple[Any, ...]]:
    """What reads some fields of the record at a position of some bytes in one go; for module level.

    :param names: as of :func:`form`.
    """
    return Struct(form(*names)).unpack_from


def _whole_head(born: int, store: int) -> Struct:
    hosts = {"born_ip": f"{born}s", "born_port": "", "store_ip": f"{store}s", "store_port": ""}
    return Struct(">" + "".join(hosts.get(name, letter) for name, (_, letter) in FIELDS.items()))


#: All that lies in front of the body, a host one field, by the bytes of born host and store host: 8, or 20 of IPv6.
HEADS: Final = {(born, store): _whole_head(born, store) for born in (8, 20) for store in (8, 20)}


def host_places(sys_flag: int) -> tuple[int, int, int, int]:
    """Where born host and store host begin and end, from the beginning of the record on.

    The store timestamp lies between them, the reconsume times lie behind.
    """
    born_end = 56 + 12 * (sys_flag >> 4 & 1)
    return 48, born_end, born_end + 8, born_end + 16 + 12 * (sys_flag >> 5 & 1)


_shape = fields("magic", "sys_flag", "body_size")


def places(data: Buffer, at: int = 0) -> tuple[int, int, int, int]:
    """Where body, topic field, topic and the length of the properties of the good record at ``at`` begin."""
    magic, hosts, body_size = _shape(data, at)
    body_at = at + 88
    if hosts & 0x30:
        body_at += 12 * (hosts >> 4 & 1) + 12 * (hosts >> 5 & 1)
        body_size = _int(data, body_at - 4)[0]
    topic_at = body_at + body_size
    if magic == MAGIC_V1:
        return body_at, topic_at, topic_at + 1, topic_at + 1 + data[topic_at]
    return body_at, topic_at, topic_at + 2, topic_at + 2 + (data[topic_at] << 8 | data[topic_at + 1])


def fitted(data: Buffer, at: int, size: int) -> tuple[int, int, int, int]:
    """:func:`places` of a record whose lengths may be wrong.

    :param size: bytes of the record, all of which ``data`` has.
    :raises ProtocolError: the lengths do not add up to it.
    """
    end = at + size
    magic, hosts, body_size = _shape(data, at)
    body_at = at + 88
    if hosts & 0x30:
        body_at += 12 * (hosts >> 4 & 1) + 12 * (hosts >> 5 & 1)
        body_size = _int(data, body_at - 4)[0] if body_at <= end else -1
    topic_at = body_at + body_size
    name_at = topic_at + (1 if magic == MAGIC_V1 else 2)
    if body_size < 0 or name_at > end:
        raise ProtocolError(f"a message record at byte {at} with a body of {body_size} bytes, {size} in all")
    behind = name_at + (data[topic_at] if magic == MAGIC_V1 else data[topic_at] << 8 | data[topic_at + 1])
    if behind + 2 > end:
        raise ProtocolError(f"a message record at byte {at} with a topic of {behind - name_at} bytes, {size} in all")
    property_size = _short(data, behind)[0]
    if behind + 2 + property_size != end:
        raise ProtocolError(f"a message record at byte {at} with properties of {property_size} bytes, {size} in all")
    return body_at, topic_at, name_at, behind


def store_time(data: Buffer, at: int = 0) -> int:
    """Store time of the record at ``at``, ms; its first 76 bytes suffice."""
    return int(_long(data, at + (68 if data[at + _HOSTS_AT] & 0x10 else 56))[0])


def topic_of(record: bytes) -> str:
    """The topic of a good record."""
    _, _, name_at, behind = places(record)
    return record[name_at:behind].decode(errors="replace")


def is_blank(data: Buffer, at: int, limit: int) -> bool:
    """Whether the rest of a commit-log file, ``limit`` bytes, is marked as blank at ``at``."""
    return len(data) - at >= 8 and _pair(data, at) == (limit, BLANK_MAGIC)
