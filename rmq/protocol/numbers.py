"""Numbers in the texts of messages and files, where anybody may have written anything: the one rule for them."""

from __future__ import annotations

__all__ = ["INT_MAX", "LONG_MAX", "is_whole", "whole"]

#: The largest number that Java's long, and a record's field, holds.
LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
#: A sign and the digits of the longest long: the length is looked at before the number is made.
_MOST_CHARACTERS = 20


def whole(text: str | bytes | None, most: int = LONG_MAX, least: int = 0) -> int | None:
    """A decimal number between two bounds; None for whatever else a text may be, and for no text.

    :param text: ASCII digits, with or without a sign.
    :param most: the largest and
    :param least: the smallest number that is one.
    """
    if text is None or not 0 < len(text) <= _MOST_CHARACTERS:
        return None
    digits = text[1:] if text[:1] in ("+", "-", b"+", b"-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    value = int(text)
    return value if least <= value <= most else None


def is_whole(value: object, most: int = LONG_MAX, least: int = 0) -> bool:
    """Whether a value read from JSON is an integer between two bounds."""
    return type(value) is int and least <= value <= most
