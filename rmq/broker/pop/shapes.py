"""Whether what the journal of POP holds is an event at all: it is looked at whole before any of it counts.

A store may hold records in the journal's topic that this broker has not written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmq.protocol.numbers import INT_MAX, is_whole

__all__ = ["check_event"]

#: Messages of one checkpoint or batch: pops give out 32.
_MOST_MESSAGES = 4096
_HEX = frozenset("0123456789abcdef")


def _text(value: object) -> bool:
    return isinstance(value, str)


def _queue(value: object) -> bool:
    return is_whole(value, INT_MAX)


def _numbers(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_MESSAGES and all(map(is_whole, value))


def _bits(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MOST_MESSAGES // 4 and _HEX.issuperset(value)


_Test = Callable[[object], bool]
_PLACE: tuple[_Test, ...] = (_text, _text, _queue)
_KEY = (*_PLACE, is_whole, is_whole)
_SHAPES: dict[str, tuple[_Test, ...]] = {
    "p": (*_KEY, is_whole, _numbers, _bits),
    "n": (*_PLACE, is_whole),
    "x": _PLACE,
    "a": (*_KEY, _numbers),
    "d": (*_KEY, _numbers),
    "c": (*_KEY, is_whole, is_whole, is_whole),
    "o": (*_PLACE, _text, _numbers, _numbers, _numbers, _numbers, _bits),
    "s": (),
}


def check_event(event: Any) -> None:
    """Refuse what is no event.

    :param event: as JSON gave it.
    :raises ValueError: says so.
    """
    shape = _SHAPES.get(event[0]) if isinstance(event, list) and event and isinstance(event[0], str) else None
    if (
        shape is None
        or len(event) != len(shape) + 1
        or not all(test(value) for test, value in zip(shape, event[1:], strict=True))
        or not _agrees(event)
    ):
        raise ValueError(f"{str(event)[:80]!r} is no event")


def _agrees(event: list[Any]) -> bool:
    """Whether the lists and bits of an event are about the same messages."""
    kind = event[0]
    if kind == "p":
        return int(event[8], 16) >> len(event[7]) == 0
    if kind == "o":
        offsets = event[5]
        return (
            bool(offsets)
            and all(len(numbers) == len(offsets) for numbers in event[6:9])
            and int(event[9], 16) >> len(offsets) == 0
        )
    return True
