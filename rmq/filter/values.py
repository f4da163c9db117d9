"""How SQL92 filters compare: the typing rules of the Java broker (store-and-broker.md 7.9).

Properties are texts; constants are Integer, Long, Double, text or boolean. A text that meets a number is read as that
kind of number, and an error if it is none: an expression that ends in an error matches nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

__all__ = ["Long", "Value", "compare", "equal", "order", "to_double"]


class Long(int):
    """A 64-bit constant; plain int is a 32-bit one."""

    __slots__ = ()


Value = str | bool | int | float | None

_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)\Z", re.ASCII)


def _to_int(text: str, bits: int) -> int:
    if not _INTEGER.match(text):
        raise ValueError(f"{text!r} is no integer")
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{text!r} does not fit into {bits} bits")
    return value


def to_double(text: str) -> float:
    """A text as Java's Double.valueOf reads it."""
    text = text.strip()
    if not _DOUBLE.match(text):
        raise ValueError(f"{text!r} is no number")
    return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)


def _as_kind_of(other: bool | int | float, text: str) -> bool | int | float:
    if isinstance(other, bool):
        return text.lower() == "true"
    if isinstance(other, Long):
        return _to_int(text, 64)
    if isinstance(other, int):
        return _to_int(text, 32)
    return to_double(text)


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1 for two values that are not None; -1 also for kinds that cannot be compared.

    :raises ValueError: a text that is not the number it meets.
    :raises TypeError: a boolean constant left of a text.
    """
    if isinstance(left, str):
        if not isinstance(right, str):
            left = _as_kind_of(right, left)
    elif isinstance(right, str):
        if isinstance(left, bool):
            raise TypeError("a boolean constant on the left of a text")
        right = _as_kind_of(left, right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) and math.isnan(left):
        # Java orders NaN behind every number, and equal to itself.
        return 0 if isinstance(right, float) and math.isnan(right) else 1
    if isinstance(right, float) and math.isnan(right):
        return -1
    return int(left > right) - int(left < right)


def equal(left: Value, right: Value) -> bool | None:
    """``left = right`` with missing properties as None: three-valued, and two missing ones are equal."""
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if type(left) is type(right) and left == right:
        return True
    return compare(left, right) == 0


def order(test: Callable[[int], bool]) -> Callable[[Value, Value], bool | None]:
    """An ordering operator; two texts are compared as numbers."""

    def operator(left: Value, right: Value) -> bool | None:
        if left is None or right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            return test(compare(to_double(left), to_double(right)))
        return test(compare(left, right))

    return operator
