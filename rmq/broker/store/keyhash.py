"""Hashes of index keys: Java's hash of ``topic#key``, cheap enough for every message.

The hash of a text is a polynomial in 31, so the hash of ``topic#`` and of the part of a unique key that does not change
between the messages of a producer are computed once and shifted (store-and-broker.md 4.2).
"""

from __future__ import annotations

from operator import mul

from rmq.protocol.tags import string_hash

__all__ = ["KeyHasher"]

_MASK = 0xFFFFFFFF
_LONGEST = 256
_POWERS = [1]
for _ in range(_LONGEST):
    _POWERS.append(_POWERS[-1] * 31 & _MASK)
#: For a text of n units: the factor of each of them.
_FACTORS = [tuple(_POWERS[n - 1 - i] for i in range(n)) for n in range(_LONGEST)]

#: Characters of a unique key that stay the same for a producer: address, pid and class loader (protocol.md 5.6).
_FIXED = 20
_CACHE_LIMIT = 4096


class KeyHasher:
    """Hashes keys of one topic. Bounded: the cache of key beginnings is dropped when it is full."""

    __slots__ = ("_cache", "_prefix", "_prefix_text")

    def __init__(self, topic: str) -> None:
        self._prefix_text = topic + "#"
        self._prefix = string_hash(self._prefix_text) & _MASK
        self._cache: dict[str, int] = {}

    def __call__(self, key: str) -> int:
        """The non-negative hash that slots and index entries hold."""
        n = len(key)
        if n >= _LONGEST or not key.isascii():
            value = string_hash(self._prefix_text + key) & _MASK
        elif n > _FIXED:
            head = key[:_FIXED]
            start = self._cache.get(head)
            if start is None:
                if len(self._cache) >= _CACHE_LIMIT:
                    self._cache.clear()
                start = string_hash(self._prefix_text + head) & _MASK
                self._cache[head] = start
            rest = n - _FIXED
            value = (start * _POWERS[rest] + sum(map(mul, key[_FIXED:].encode(), _FACTORS[rest]))) & _MASK
        else:
            value = (self._prefix * _POWERS[n] + sum(map(mul, key.encode(), _FACTORS[n]))) & _MASK
        if value >= 0x80000000:
            # Java: abs() of a negative int; Integer.MIN_VALUE has none and becomes 0.
            value = (0x100000000 - value) & 0x7FFFFFFF
        return value
