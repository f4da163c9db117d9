"""Bodies of long answers, as JSON text that is put together in slices: others are served in between.

Text is made into bytes at 64 KiB a time. What no frame has room for is refused: at once where it can be told from the
number of items, and else as soon as it is too long, not when all of it has been made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from rmq.protocol.bodies.pieces import AT_ONCE, pieces
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.protocol.frame import MAX_FRAME

__all__ = ["LongBody", "check_length", "in_pieces"]

T = TypeVar("T")

_PIECE = 64 << 10
#: Bytes of an answer besides its body: a header without remark or large fields.
_REST = 4096
_MOST = MAX_FRAME - _REST


def check_length(items: int, least: int, what: str) -> None:
    """Refuse an answer that no frame has room for, before it is made.

    :param items: how many items it has.
    :param least: bytes that one of them has at least, without what is between two.
    :param what: the items, in a word.
    :raises ResponseError: with code 1.
    """
    if items * (least + 1) > _MOST:
        raise ResponseError(
            ResponseCode.SYSTEM_ERROR,
            f"the answer for {items} {what} would have {items * (least + 1)} bytes at least, and a frame has room for "
            f"{_MOST}: ask for less at a time",
        )


async def in_pieces(items: Sequence[T], encode: Callable[[Sequence[T]], bytes]) -> bytes:
    """The body ``{name: [item, ...]}`` of very many items, some of them a turn.

    :param encode: gives the body of some of the items (:func:`~rmq.protocol.bodies.pieces.pieces`).
    """
    made: list[bytes] = []
    for piece in pieces(items, encode):
        made.append(piece)
        if len(items) > AT_ONCE:
            await asyncio.sleep(0)
    return b"".join(made)


class LongBody:
    """A body that grows from its front to its end."""

    __slots__ = ("_done", "_first", "_parts", "_size", "_waiting")

    def __init__(self, head: str) -> None:
        self._done: list[bytes] = []
        self._size = 0
        self._parts: list[str] = [head]
        self._waiting = len(head)
        self._first = True

    async def item(self, text: str) -> None:
        """The next item of a list or of an object: a comma is between it and the one before."""
        parts = self._parts
        if self._first:
            self._first = False
        else:
            parts.append(",")
        parts.append(text)
        self._waiting += len(text)
        if self._waiting >= _PIECE:
            self._encode()
            await asyncio.sleep(0)

    def text(self, text: str) -> None:
        """What is between two lists; an item that follows is the first of its own."""
        self._parts.append(text)
        self._waiting += len(text)
        self._first = True

    def _encode(self) -> None:
        piece = "".join(self._parts).encode()
        self._parts.clear()
        self._waiting = 0
        self._done.append(piece)
        self._size += len(piece)
        if self._size > _MOST:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"the answer has more than the {_MOST} bytes that a frame has room for: ask for less at a time",
            )

    async def end(self, tail: str) -> bytes:
        """The whole of it.

        :raises ResponseError: no frame has room for it.
        """
        self._parts.append(tail)
        self._encode()
        if len(self._done) == 1:
            return self._done[0]
        # Each copy of ten megabytes takes some milliseconds: one a turn.
        await asyncio.sleep(0)
        whole = b"".join(self._done)
        await asyncio.sleep(0)
        return whole
