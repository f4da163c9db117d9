"""Values of settings as text: reading and writing, by type, in Java's forms."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

__all__ = ["expected", "parse", "text"]

_INT64 = range(-(1 << 63), 1 << 63)


def parse(kind: type, value: str) -> Any:
    """Read a value; blanks around anything but a string do not matter (Java would ignore such a value in silence).

    :raises ValueError: the text is no value of that type.
    """
    if kind is str:
        return value
    bare = value.strip()
    if kind is bool:
        lowered = bare.lower()
        if lowered in ("true", "false"):
            return lowered == "true"
        raise ValueError(value)
    if kind is int:
        if not bare.lstrip("+-").isdecimal() or len(bare) > 20 or int(bare) not in _INT64:
            raise ValueError(value)
        return int(bare)
    if kind is float:
        number = float(bare)
        if not math.isfinite(number):
            raise ValueError(value)
        return number
    if issubclass(kind, Enum):
        for member in kind:
            if bare in (member.name, member.value):
                return member
        raise ValueError(value)
    raise TypeError(kind)


def text(value: object) -> str:
    """Write a value as Java prints it."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, Enum):
        return value.name
    return str(value)


def expected(kind: type) -> str:
    """The words for an error message."""
    if issubclass(kind, Enum):
        return "one of " + ", ".join(member.name for member in kind)
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[kind]
