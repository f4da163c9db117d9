"""Long bodies made piece by piece: whoever makes one can do something else in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["AT_ONCE", "pieces"]

T = TypeVar("T")

#: Items of a piece: a few milliseconds at most.
AT_ONCE = 250


def pieces(items: Sequence[T], encode: Callable[[Sequence[T]], bytes]) -> Iterator[bytes]:
    """The pieces of the body ``{name: [item, ...]}``.

    :param encode: gives the body of some of the items, of none, too; it ends with ``]}``.
    """
    empty = encode(())
    yield empty[:-2]
    for at in range(0, len(items), AT_ONCE):
        body = encode(items[at : at + AT_ONCE])
        yield body[len(empty) - 2 : -2] if not at else b"," + body[len(empty) - 2 : -2]
    yield empty[-2:]
