"""Hashes of index keys: Java's hash of ``topic#key``, cheap enough for every message.

The hash of a text is its units as the digits of a number in base 31 (store-and-broker.md 4.2), and ``int(text, 31)``
reads such numbers in C. Units are no digits, so they are mapped: 48 is taken off (unique keys are upper-case hex, whose
units less 48 are all below 31), or a unit is split into its remainder and its quotient by 31, each of which is a digit.
What was taken off, and the topic in front, is a constant for each length of a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmq.broker.store.state import Put
from rmq.protocol.tags import string_hash

__all__ = ["KeyHasher", "KeyHashers"]

_MASK, _SIGN, _LARGEST = 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF
_DIGITS = b"0123456789abcdefghijklmnopqrstu"
_NO_DIGIT = ord("~")
_LESS_48 = bytes(_DIGITS[c - 48] if 0 <= c - 48 < 31 else _NO_DIGIT for c in range(256))
_REMAINDER = bytes(_DIGITS[c % 31] if c < 128 else _NO_DIGIT for c in range(256))
_QUOTIENT = bytes(_DIGITS[c // 31] if c < 128 else _NO_DIGIT for c in range(256))
#: Longer keys are hashed unit by unit: the tables stay small.
_LONGEST = 256
#: What is remembered of so many keys of a topic, which have digits and letters at different places.
_MOST_SHARES = 32
_POWERS = [1]
for _ in range(_LONGEST):
    _POWERS.append(_POWERS[-1] * 31 & _MASK)


class KeyHasher:
    """Hashes keys of one topic."""

    __slots__ = ("_less_48", "_prefix", "_shares", "_shifted")

    def __init__(self, topic: str) -> None:
        self._prefix = topic + "#"
        start = string_hash(self._prefix) & _MASK
        #: The topic's share of the hash, by the length of the key.
        self._shifted = [start * power & _MASK for power in _POWERS]
        #: The share of topic and quotients, by the quotients: keys that differ in their digits alone have the same.
        self._shares: dict[bytes, int] = {}
        #: The topic's share with the 48 that was taken off every unit.
        total = 0
        self._less_48 = []
        for length, shifted in enumerate(self._shifted):
            self._less_48.append((shifted + 48 * total) & _MASK)
            total = (total + _POWERS[length]) & _MASK

    def unique(self, key: bytes) -> int:
        """The hash of a key that is probably a unique key; right for any other, too.

        :param key: not empty, UTF-8.
        """
        try:
            value = (int(key.translate(_LESS_48), 31) + self._less_48[len(key)]) & _MASK
        except (ValueError, IndexError):
            return self.of(key)
        return value if value < _SIGN else -value & _LARGEST

    def uniques(self, keys: Iterable[bytes]) -> list[int]:
        """:meth:`unique` of each: quicker where none of them is anything else."""
        shares = self._less_48
        try:
            return [
                value
                if (value := int(key.translate(_LESS_48), 31) + shares[len(key)] & _MASK) < _SIGN
                else -value & _LARGEST
                for key in keys
            ]
        except (ValueError, IndexError):
            return [self.unique(key) for key in keys]

    def of(self, key: bytes) -> int:
        """The non-negative hash that slots and index entries hold.

        :param key: not empty, UTF-8.
        """
        quotients = key.translate(_QUOTIENT)
        share = self._shares.get(quotients)
        if share is None and len(key) <= _LONGEST and key.isascii():
            share = 31 * int(quotients, 31) + self._shifted[len(key)] & _MASK
            if len(self._shares) < _MOST_SHARES:
                self._shares[quotients] = share
        if share is None:
            value = string_hash(self._prefix + key.decode("utf-8", "replace")) & _MASK
        else:
            value = (int(key.translate(_REMAINDER), 31) + share) & _MASK
        # Java: abs() of a negative int; Integer.MIN_VALUE has none and becomes 0.
        return value if value < _SIGN else -value & _LARGEST

    def each(self, keys: Iterable[bytes]) -> list[int]:
        """:meth:`of` each: quicker where they are alike."""
        shares = self._shares
        try:
            return [
                value
                if (value := int(key.translate(_REMAINDER), 31) + shares[key.translate(_QUOTIENT)] & _MASK) < _SIGN
                else -value & _LARGEST
                for key in keys
            ]
        except (KeyError, ValueError):
            return [self.of(key) for key in keys]

    __call__ = of


class KeyHashers:
    """The hashers of all topics that messages or queries had keys for."""

    def __init__(self) -> None:
        self._known: dict[str, KeyHasher] = {}

    def of(self, topic: str) -> KeyHasher:
        """The hasher of a topic."""
        hasher = self._known.get(topic)
        if hasher is None:
            hasher = self._known[topic] = KeyHasher(topic)
        return hasher

    def forget(self, topic: str) -> None:
        """Drop what is cached for a deleted topic."""
        self._known.pop(topic, None)

    def of_puts(self, puts: Sequence[Put], offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """What goes into the index: (hash, commit-log offset) of each key of some messages, in their order.

        :param offsets: one (queue index, commit-log offset) a message.
        """
        hashes: list[tuple[int, int]] = []
        topic: str | None = None
        unique = other = _no_hash
        for put, (_, physical) in zip(puts, offsets, strict=True):
            keys = put[11]
            if keys:
                name = put[0].topic
                if name != topic:
                    topic = name
                    hasher = self._known.get(name) or self.of(name)
                    unique = hasher.unique
                    other = hasher.of
                hashes.append((unique(keys[0]), physical))
                if len(keys) == 2:
                    hashes.append((other(keys[1]), physical))
                else:
                    hashes += [(other(key), physical) for key in keys[1:]]
        return hashes

    def columns(self, puts: Sequence[Put], offsets: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]] | None:
        """The same as two lists, hashes and offsets: quicker, where there are many messages.

        :returns: None where they are not all of one topic, with as many keys each.
        """
        topics = {put[0].topic for put in puts}
        keys = [put[11] for put in puts]
        each = len(keys[0])
        if len(topics) > 1 or not each or len(set(map(len, keys))) > 1:
            return None
        hasher = self.of(topics.pop())
        hashes = [0] * (each * len(puts))
        places = hashes[:]
        physical = [offset for _, offset in offsets]
        for number, column in enumerate(zip(*keys, strict=True)):
            hashes[number::each] = hasher.each(column) if number else hasher.uniques(column)
            places[number::each] = physical
        return hashes, places


def _no_hash(key: bytes) -> int:
    raise AssertionError("no topic was looked at yet")
