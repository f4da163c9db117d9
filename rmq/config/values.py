"""Values of settings as text: reading and writing, by type, in Java's forms."""

from __future__ import annotations

import math
import unicodedata
from enum import Enum
from typing import Any

__all__ = ["LONGEST", "expected", "fault", "parse", "shown", "text"]

_INT64 = range(-(1 << 63), 1 << 63)
#: Bytes of UTF-8 that a text may have: as much as a path.
LONGEST = 4096


def parse(kind: type, value: str) -> Any:
    """Read a value. Blanks around it do not count, whatever its type: nobody sees them in a file. (Java ignores a
    number with a blank behind it in silence, and has directories whose names end in one.)

    :raises ValueError: the text is no value of that type.
    """
    bare = value.strip()
    if kind is str:
        return bare
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


def fault(value: str, longest: int = LONGEST) -> str | None:
    """What is wrong with a text as a setting, or None.

    It goes into UTF-8, JSON, a .properties file that escapes nothing (getBrokerConfig), headers, metric labels and
    paths: half a surrogate pair breaks the first two for good, a line end makes another key in the third, a NUL ends a
    path.

    :param longest: bytes of UTF-8.
    """
    if len(value) > longest:
        return f"at most {longest} bytes are expected"
    for char in value:
        match unicodedata.category(char):
            case "Cs":
                return f"\\u{ord(char):04X} is half a character and can be written nowhere"
            case "Cc" | "Zl" | "Zp":
                return "a text without line ends and control characters is expected"
    if len(value.encode()) > longest:
        return f"at most {longest} bytes are expected"
    return None


def shown(value: str | None) -> str:
    """A value in quotes for an error message: what cannot be printed is escaped, what is long is cut."""
    given = value or ""
    return repr(given if len(given) <= 80 else given[:77] + "...")


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
