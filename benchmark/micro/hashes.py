"""(c) Java's string hash of ``topic#key``, as the index wants it, modulo 2**32.

The hash is a number written in base 31, and ``int(text, 31)`` reads such numbers in C: a translation table makes
digits of the characters. A digit is at most 30 and a character at most 127, so the general form takes two numbers,
``c = 31 * q + r``; upper-case hex digits, less 48, fit in one.
"""

from __future__ import annotations

from operator import mul

from benchmark.micro.messages import COUNT, TOPIC, unique_key, user_key
from benchmark.micro.timing import compare

MASK = 0xFFFFFFFF
POWERS = [pow(31, n, 1 << 32) for n in range(128)]
DESCENDING = [tuple(reversed(POWERS[:n])) for n in range(128)]
DIGITS = b"0123456789abcdefghijklmnopqrstu"
NO_DIGIT = ord("~")
LOW = bytes(DIGITS[c % 31] if c < 128 else NO_DIGIT for c in range(256))
HIGH = bytes(DIGITS[c // 31] if c < 128 else NO_DIGIT for c in range(256))
HEX = bytes(DIGITS[c - 48] if 0 <= c - 48 < 31 else NO_DIGIT for c in range(256))


def looped(data: bytes, start: int = 0) -> int:
    for byte in data:
        start = (31 * start + byte) & MASK
    return start


PREFIX = f"{TOPIC}#".encode()
START = looped(PREFIX)
MOVED = [START * power & MASK for power in POWERS]
MOVED_HEX: list[int] = [(START * 31**n + 48 * ((31**n - 1) // 30)) & MASK for n in range(128)]


def whole_loop(key: bytes) -> int:
    return looped(PREFIX + key)


def late_loop(key: bytes) -> int:
    value = START
    for byte in key:
        value = 31 * value + byte
    return value & MASK


def dot(key: bytes) -> int:
    size = len(key)
    value: int = sum(map(mul, key, DESCENDING[size]), MOVED[size])
    return value & MASK


def base31(key: bytes) -> int:
    return (int(key.translate(LOW), 31) + 31 * int(key.translate(HIGH), 31) + MOVED[len(key)]) & MASK


def base31_hex(key: bytes) -> int:
    return (int(key.translate(HEX), 31) + MOVED_HEX[len(key)]) & MASK


known: dict[bytes, int] = {}


def head28(key: bytes) -> int:
    """The first 28 digits change once in a millisecond and connection."""
    head = key[:28]
    value = known.get(head)
    if value is None:
        value = known[head] = looped(head, START) * POWERS[4]
    a, b, c, d = key[28:]
    return (value + 29791 * a + 961 * b + 31 * c + d) & MASK


def run() -> None:
    compare(
        "(c) hash of topic#UNIQ_KEY, 32 upper-case hex digits",
        [unique_key(i).encode() for i in range(COUNT)],
        [
            ("loop over topic#key", whole_loop),
            ("loop from the topic's hash, masked at the end", late_loop),
            ("sum(map(mul, key, powers))", dot),
            ("first 28 digits remembered, four unrolled", head28),
            ("int(.., 31) twice, any ASCII", base31),
            ("int(.., 31) once, hex digits", base31_hex),
        ],
    )
    compare(
        "(c) hash of topic#KEY, 16 characters",
        [user_key(i).encode() for i in range(COUNT)],
        [
            ("loop from the topic's hash, masked at the end", late_loop),
            ("sum(map(mul, key, powers))", dot),
            ("int(.., 31) twice, any ASCII", base31),
        ],
    )
