"""Long answers built piece by piece, so that no request holds the loop (design.md section 2)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TypeVar

import orjson

from rmq.protocol.errors import BodyError

__all__ = ["Turns", "read_items", "read_list"]

T = TypeVar("T")

#: Bytes of a long array that are parsed at a time, and how far such a piece may grow.
_PIECE = 65_536
_LONGEST_PIECE = 8 * _PIECE
#: Places tried for the end of a piece, and how many of them one after the other.
_ATTEMPTS = 64
_NEAR = 16
#: Bytes of a list that is read at once.
_SHORT = 16_384
_BETWEEN = re.compile(rb"\}\s*,\s*\{")


class Turns:
    """Gives the loop a turn after so many steps.

    :param every: steps between turns; choose it so that they take a few milliseconds at most.
    """

    __slots__ = ("_every", "_left")

    def __init__(self, every: int = 250) -> None:
        self._every = every
        self._left = every

    async def step(self) -> None:
        """One more step is done."""
        self._left -= 1
        if self._left <= 0:
            self._left = self._every
            await asyncio.sleep(0)


async def read_list(
    data: bytes, name: str, most: int, whole: Callable[[bytes], list[T]], item: Callable[[object], T]
) -> list[T]:
    """The list in a body: a short one at once, a long one in turns.

    :param whole: reads a body. :param item: reads one of :func:`read_items`, which see for the others and for errors.
    """
    if len(data) <= _SHORT:
        return whole(data)
    turns = Turns()
    found = []
    for each in await read_items(data, name, most):
        found.append(item(each))
        await turns.step()
    return found


async def read_items(data: bytes, name: str, most: int) -> list[object]:
    """The items of a body ``{name: [{...}, ...]}``, parsed piece by piece.

    A piece ends between two objects. Where that was inside of one (an item with objects in an array, or braces in a
    text) it is no JSON, and the next place is tried.

    :param most: items that are taken.
    :raises BodyError: another form, or more items.
    """
    head = re.match(rb'\s*\{\s*"%b"\s*:\s*\[' % name.encode(), data)
    tail = re.search(rb"\]\s*\}\s*\Z", data[-64:])
    if head is None or tail is None:
        raise BodyError(f"a body of {len(data)} bytes: {name} alone is expected in it, as an array of objects")
    at, end = head.end(), max(len(data) - 64, 0) + tail.start()
    items: list[object] = []
    while at < end:
        begin = at + _PIECE
        for attempt in range(1, _ATTEMPTS + 1):
            between = _BETWEEN.search(data, begin, end)
            stop = end if between is None else between.start() + 1
            if stop - at > _LONGEST_PIECE:
                raise BodyError(f"{name}: an item of more than {_LONGEST_PIECE} bytes")
            try:
                items += orjson.loads(b"[%b]" % data[at:stop])
                break
            except orjson.JSONDecodeError as error:
                if between is None or attempt == _ATTEMPTS:
                    raise BodyError(f"{name}: no JSON array of objects: {error}") from None
            # The next place, and after some of them in vain one further away.
            begin = between.start() + 1 if attempt % _NEAR else begin + _PIECE
            await asyncio.sleep(0)
        if len(items) > most:
            raise BodyError(f"{name}: more than {most} at a time")
        at = end if between is None else between.end() - 1
        await asyncio.sleep(0)
    return items
