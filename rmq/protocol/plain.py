"""Values of Python's own classes, of those derived from them: enumerations of texts, marked texts, and so on.

An application's class may have another hash and another text than what it is derived from; and making them may be
slow, fail, or never return. What is kept in tables and what goes to a broker is plain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmq.protocol.errors import WrongType

__all__ = ["plain", "plain_number", "plain_text"]


def plain_text(value: str) -> str:
    """The same text, as a str; none of its own methods is called."""
    return value if type(value) is str else str.__str__(value)


def plain_number(value: int) -> int:
    """The same number, as an int; none of its own methods is called."""
    return value if type(value) is int else int.__int__(value)


def plain(value: Any, name: str) -> Any:
    """The same text, number or bytes, of Python's own class; anything else as it is.

    :param name: what it is, for the error.
    :raises WrongType: it says that it is one, and is none, as a mock does.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    for own, made in _OWN:
        if isinstance(value, own):
            if not issubclass(kind, own):
                raise WrongType(
                    f"{name} is an object of {kind.__qualname__}, which only says that it is a {own.__name__}"
                )
            return made(value)
    return value


_AS_THEY_ARE = frozenset({str, int, float, bytes, bool, type(None)})
_OWN: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
)
