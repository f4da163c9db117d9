"""Many numbers side by side in one integer: they are added and compared in one go, whatever their number.

A lane has 32 bits; the number in it has 31, so that a sum or a difference of two lanes never touches the next one. The
first number is the most significant, as in a file, whose numbers are big-endian: :func:`lanes` of words that were taken
from there as they are. A message of many costs a few nanoseconds so, and not one object a number and step.
"""

from __future__ import annotations

import sys
from array import array
from typing import Final

__all__ = ["LANE", "are_in_order", "lanes", "numbers", "same", "small"]

#: Bits of a lane, and bytes.
LANE: Final = 32
_SIZE: Final = LANE // 8
_TOP: Final = b"\x80\0\0\0"


def lanes(words: array[int]) -> int:
    """Words of four bytes, as they lie in a file, side by side."""
    return int.from_bytes(words, "big")


def same(number: int, count: int) -> int:
    """The same number, of 32 bits, in so many lanes."""
    return int.from_bytes(number.to_bytes(_SIZE, "big") * count, "big")


def numbers(side_by_side: int, count: int) -> array[int]:
    """The numbers of so many lanes, in no order that can be relied on."""
    return array("I", side_by_side.to_bytes(_SIZE * count, sys.byteorder))


def small(side_by_side: int, count: int, least: int = 0) -> bool:
    """Whether none of so many numbers has more than 31 bits, or is less than ``least``."""
    tops = int.from_bytes(_TOP * count, "big")
    if side_by_side & tops:
        return False
    return not least or ((side_by_side | tops) - least * (tops >> LANE - 1)) & tops == tops


def are_in_order(side_by_side: int, count: int) -> bool:
    """Whether none of so many numbers of 31 bits is less than the one before it."""
    pairs = count - 1
    tops = int.from_bytes(_TOP * pairs, "big")
    behind = side_by_side & ((1 << LANE * pairs) - 1)
    return ((behind | tops) - (side_by_side >> LANE)) & tops == tops
