"""Java's string hash, by which the broker filters tags (protocol.md 5.7)."""

from __future__ import annotations

import sys
from operator import mul

__all__ = ["string_hash", "tags_code"]

_MASK = 0xFFFFFFFF
_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def _powers(count: int) -> tuple[int, ...]:
    powers, power = [], 1
    for _ in range(count):
        powers.append(power)
        power = power * 31 & _MASK
    return tuple(powers)


_CHUNK = 256
_POWERS = _powers(_CHUNK)
_CHUNK_POWER = pow(31, _CHUNK, 1 << 32)


def _horner(units: bytes | memoryview) -> int:
    # 31^n grows from the last unit backwards; longer texts go chunk by chunk.
    size = len(units)
    if size <= _CHUNK:
        return int(sum(map(mul, units[::-1], _POWERS)))
    head = size % _CHUNK
    value: int = sum(map(mul, units[:head][::-1], _POWERS))
    for at in range(head, size, _CHUNK):
        value = (value * _CHUNK_POWER + sum(map(mul, units[at : at + _CHUNK][::-1], _POWERS))) & _MASK
    return value


def string_hash(text: str) -> int:
    """``String.hashCode()`` of Java: over UTF-16 code units, as a signed 32-bit number."""
    if text.isascii():
        if len(text) <= _CHUNK:  # nearly always: a tag, or topic and key
            value: int = sum(map(mul, text[::-1].encode(), _POWERS)) & _MASK
            return value - 0x100000000 if value > 0x7FFFFFFF else value
        value = _horner(text.encode()) & _MASK
    else:
        value = _horner(memoryview(text.encode(_UTF16, "surrogatepass")).cast("H")) & _MASK
    return value - 0x100000000 if value > 0x7FFFFFFF else value


def tags_code(tag: str | None) -> int:
    """What a consume-queue entry holds for a message's tag: 0 without one."""
    return string_hash(tag) if tag else 0
