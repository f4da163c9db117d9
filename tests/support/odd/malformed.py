"""Bytes that are nearly frames: lengths that lie, halves, splices, flipped bits, answers to nothing; from a seed.

Each is made of a request that is understood, or of one that is odd in its fields already.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.support.odd import requests

__all__ = ["head", "report", "volley"]

#: In place of a length.
_LENGTHS = (
    0,
    1,
    3,
    4,
    5,
    7,
    8,
    255,
    65_535,
    262_144,
    262_145,
    (1 << 24) - 4,
    1 << 24,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
)
_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x22, 0x2C, 0x5B, 0x5C, 0x7B, 0x7D)


def _length(data: bytearray, chance: random.Random) -> None:
    """The length of the whole."""
    data[0:4] = chance.choice((*_LENGTHS, len(data) - 4 + chance.randint(-9, 9))).to_bytes(5, "big")[-4:]


def _header_length(data: bytearray, chance: random.Random) -> None:
    data[5:8] = (chance.choice((*_LENGTHS, chance.randrange(1 << 24))) & 0xFFFFFF).to_bytes(3, "big")


def _serialize_type(data: bytearray, chance: random.Random) -> None:
    data[4] = chance.choice((0, 1, 2, 3, 127, 255))


def _flips(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        data[chance.randrange(4, len(data))] = chance.choice((*_BYTES, chance.randrange(256)))


def _number(data: bytearray, chance: random.Random) -> None:
    """Four bytes somewhere, where a binary header or a body may have a length."""
    at = chance.randrange(4, max(5, len(data) - 4))
    data[at : at + 4] = chance.choice(_LENGTHS).to_bytes(5, "big")[-4:]
    _close(data)


def _cut(data: bytearray, chance: random.Random) -> None:
    """Its end is missing, and its length says so, or does not."""
    del data[chance.randrange(5, len(data)) :]
    if chance.random() < 0.7:
        _close(data)


def _grown(data: bytearray, chance: random.Random) -> None:
    """A piece of it comes again, some times."""
    low = chance.randrange(4, len(data))
    piece = bytes(data[low : low + chance.randint(1, 200)])
    data[low:low] = piece * chance.choice((1, 3, 200))
    _close(data)


def _answer(data: bytearray, chance: random.Random) -> None:
    """It says that it answers something."""
    data[:] = data.replace(b'"flag":0', b'"flag":%d' % chance.choice((1, 3, 5, 9)))
    _close(data)


def _close(data: bytearray) -> None:
    data[0:4] = (max(0, len(data) - 4)).to_bytes(4, "big")


_CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _length, _header_length, _serialize_type, _flips, _flips, _number, _number, _cut, _grown, _answer,
)  # fmt: skip


def volley(chance: random.Random, codes: Sequence[int], most: int) -> tuple[list[bytes], int]:
    """What one connection sends, in the pieces in which it arrives; and how many frames that are."""
    count = chance.randint(1, most)
    frames = bytearray()
    for _ in range(count):
        data = bytearray(requests.drawn(chance, codes).data[:100_000])
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            if len(data) > 12:
                chance.choice(_CHANGES)(data, chance)
        frames += data
    pieces: list[bytes] = []
    at = 0
    while at < len(frames):
        size = len(frames) if chance.random() < 0.7 else chance.choice((1, 3, 7, 100, 1_460))
        pieces.append(bytes(frames[at : at + size]))
        at += size
        if len(pieces) == 40:
            pieces.append(bytes(frames[at:]))
            break
    return pieces, count


def report(chance: random.Random) -> bytes:
    """What nobody's slave says to a master: offsets of 8 bytes, TLS, frames, pieces of them."""
    kind = chance.random()
    if kind < 0.4:
        some = (0, 1, -1, 1 << 40, (1 << 63) - 1, -(1 << 63), chance.randrange(1 << 63))
        data = b"".join(chance.choice(some).to_bytes(8, "big", signed=True) for _ in range(chance.randint(1, 9)))
        return data[: chance.randint(1, len(data))]
    if kind < 0.5:
        return b"\x16\x03\x01" + chance.randbytes(chance.randint(0, 300))
    return chance.randbytes(chance.randint(1, 100))


def head(chance: random.Random) -> bytes:
    """What is no request of a web browser."""
    data = bytearray(b"GET /metrics?names=exporter HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n")
    for _ in range(chance.choice((1, 2, 8, 40))):
        what, at = chance.random(), chance.randrange(len(data))
        if what < 0.5:
            data[at] = chance.randrange(256)
        elif what < 0.7:
            data[at:at] = data[at : at + 30] * chance.choice((1, 3, 300))
        else:
            del data[at : at + chance.randint(1, 20)]
        if not data:
            return b"\n"
    return bytes(data)
