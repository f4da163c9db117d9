"""Message ids (protocol.md 5.6), upper-case hexadecimal.

::

    offset id    ip(4|16) port(int32) physicalOffset(int64)                              32 or 56 characters
    UNIQ_KEY     ip(4|16) pid(int16) seed(int32) milliseconds into the month(int32) counter(int16)
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address

from rmq.protocol.errors import ProtocolError

__all__ = [
    "UniqueIds",
    "decode_offset_msg_id",
    "host_text",
    "offset_msg_id",
    "pack_host",
    "unique_id_time",
    "unpack_host",
]


@lru_cache(maxsize=4096)
def host_text(packed: bytes) -> str:
    """The text of an address of 4 or 16 bytes."""
    if len(packed) == 4:
        return f"{packed[0]}.{packed[1]}.{packed[2]}.{packed[3]}"
    return str(ip_address(packed))


@lru_cache(maxsize=4096)
def pack_ip(host: str) -> bytes:
    """The 4 or 16 bytes of an address's text (a zone after % is dropped).

    :raises ProtocolError: no address.
    """
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        raise ProtocolError(f"{host!r} is no IP address") from None


def pack_host(host: str, port: int) -> bytes:
    """An address as records hold it: 4 or 16 bytes and the port as int32."""
    return pack_ip(host) + (port & 0xFFFFFFFF).to_bytes(4, "big")


def unpack_host(packed: bytes) -> tuple[str, int]:
    """The text and port of an address as records hold it."""
    return host_text(packed[:-4]), int.from_bytes(packed[-4:], "big", signed=True)


def offset_msg_id(host: str, port: int, offset: int) -> str:
    """The offset id of the record at a physical offset on a broker."""
    return (pack_host(host, port) + (offset & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")).hex().upper()


def decode_offset_msg_id(msg_id: str) -> tuple[str, int, int]:
    """Broker address, port and physical offset of an offset id.

    :raises ProtocolError: not one.
    """
    if len(msg_id) not in (32, 56):
        raise ProtocolError(f"{msg_id[:64]!r} is no offset message id: 32 or 56 hexadecimal digits are needed")
    try:
        raw = bytes.fromhex(msg_id)
    except ValueError:
        raw = b""
    if len(raw) * 2 != len(msg_id):
        raise ProtocolError(f"{msg_id!r} is no offset message id: it holds something that is no hexadecimal digit")
    host, port = unpack_host(raw[:-8])
    return host, port, int.from_bytes(raw[-8:], "big", signed=True)


def _month_start_ms(now_ms: int) -> int:
    now = datetime.fromtimestamp(now_ms / 1000)
    return int(datetime(now.year, now.month, 1).timestamp() * 1000)


def _next_month_start_ms(now_ms: int) -> int:
    now = datetime.fromtimestamp(now_ms / 1000)
    year, month = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
    return int(datetime(year, month, 1).timestamp() * 1000)


class UniqueIds:
    """Makes client message ids (Java: MessageClientIDSetter).

    :param ip: 4 or 16 bytes of the own address.
    :param pid: process id; its low 16 bits are used.
    :param seed: what tells two generators of one process apart, 32 bits (in Java a class loader's hash).
    :param now_ms: the time of the first id, milliseconds.
    """

    __slots__ = ("_counter", "_fixed", "_from", "_until")

    def __init__(self, ip: bytes, pid: int, seed: int, now_ms: int) -> None:
        if len(ip) not in (4, 16):
            raise ValueError(f"an address has 4 or 16 bytes, not {len(ip)}")
        fixed = ip + (pid & 0xFFFF).to_bytes(2, "big") + (seed & 0xFFFFFFFF).to_bytes(4, "big")
        self._fixed = fixed.hex().upper()
        self._counter = 0
        self._from = 0
        self._until = 0
        self._month(now_ms)

    def _month(self, now_ms: int) -> None:
        self._from = _month_start_ms(now_ms)
        self._until = _next_month_start_ms(now_ms)

    def next(self, now_ms: int) -> str:
        """One id, unlike any other of this generator within 65,536 ids a millisecond."""
        if now_ms >= self._until or now_ms < self._from:
            self._month(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._fixed}{(now_ms - self._from) & 0xFFFFFFFF:08X}{counter:04X}"


def unique_id_time(unique_id: str, now_ms: int) -> int | None:
    """When a UNIQ_KEY was made, milliseconds; None when the text is not of that form.

    The id counts from the start of a month: this month, or the one before when that would lie in the future.
    """
    if len(unique_id) not in (32, 56):
        return None
    try:
        delta = int(unique_id[-12:-4], 16)
    except ValueError:
        return None
    start = _month_start_ms(now_ms)
    if start + delta > now_ms:
        start = _month_start_ms(start - 1)
    return start + delta
