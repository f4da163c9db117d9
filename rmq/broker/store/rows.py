"""Rows of one format, packed many at once: a call for each of them is most of what packing costs."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

__all__ = ["MOST_ROWS", "Rows"]

#: Rows that are packed with one call.
MOST_ROWS: Final = 64


class Rows:
    """Packs rows, big-endian.

    :param row: the format of one row (:mod:`struct`), a letter a field.
    """

    __slots__ = ("_width", "packs")

    def __init__(self, row: str) -> None:
        self._width = len(row)
        #: By the number of rows, up to ``MOST_ROWS``: packs so many, given field by field.
        self.packs = [Struct(">" + row * count).pack for count in range(MOST_ROWS + 1)]

    def pack(self, fields: Sequence[int]) -> bytes:
        """Any number of rows, field by field."""
        width, packs = self._width, self.packs
        count = len(fields) // width
        if count <= MOST_ROWS:
            return packs[count](*fields)
        step = MOST_ROWS * width
        pieces = [fields[at : at + step] for at in range(0, count * width, step)]
        return b"".join([packs[len(piece) // width](*piece) for piece in pieces])
