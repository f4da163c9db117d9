"""The bloom filter of SQL92 subscriptions: which groups may want a message, in a few bits (store-and-broker.md 7.9).

Every group has ``k`` positions among ``m`` bits, from the Murmur3 hash of ``group#topic``. A message's bit map has the
positions of the groups whose expression is true of it; a group whose positions are not all set does not want it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Bloom", "murmur3"]

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class Bloom:
    """Sizes and positions (Java: BloomFilter).

    :param error_rate: percent of wrong hits, 1 to 99 (``maxErrorRateOfBloomFilter``).
    :param expected: groups expected on a topic (``expectConsumerNumUseFilter``).
    :raises ValueError: numbers that no filter can be made of.
    """

    error_rate: int = 20
    expected: int = 32
    #: Bits of a map, a multiple of 8.
    m: int = field(init=False)
    #: Positions of a group.
    k: int = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.error_rate < 100:
            raise ValueError(f"maxErrorRateOfBloomFilter={self.error_rate}: a percentage from 1 to 99")
        if self.expected < 1:
            raise ValueError(f"expectConsumerNumUseFilter={self.expected}: at least 1")
        rate = self.error_rate / 100
        # Logarithms divided as Java divides them: the last bit decides what is rounded up.
        bits = math.ceil(self.expected * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        object.__setattr__(self, "m", -(-bits // 8) * 8)
        object.__setattr__(self, "k", math.ceil(math.log(rate) / math.log(0.5)))

    def positions(self, text: str) -> tuple[int, ...]:
        """The positions of a text, in the order of its hash functions."""
        hashed = murmur3(text.encode())
        low, high = hashed & 0xFFFFFFFF, hashed >> 32
        found = []
        for number in range(1, self.k + 1):
            combined = (low + number * high) & 0xFFFFFFFF
            if combined >= 1 << 31:
                combined ^= 0xFFFFFFFF
            found.append(combined % self.m)
        return tuple(found)

    def bit_map(self, positions: Iterable[int]) -> bytes:
        """A map with these positions set: bit i is bit i % 8 of byte i // 8."""
        bits = 0
        for position in positions:
            bits |= 1 << position
        return bits.to_bytes(self.m // 8, "little")


def murmur3(data: bytes) -> int:
    """The lower half of the 128-bit Murmur3 hash (x64 variant, seed 0), unsigned."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _first(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _second(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    rest = data[whole:]
    h1 ^= _first(int.from_bytes(rest[:8], "little"))
    h2 ^= _second(int.from_bytes(rest[8:], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _mixed(h1) + _mixed(h2) & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _first(part: int) -> int:
    return _rotated(part * _C1 & _MASK, 31) * _C2 & _MASK


def _second(part: int) -> int:
    return _rotated(part * _C2 & _MASK, 33) * _C1 & _MASK


def _mixed(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
