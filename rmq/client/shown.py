"""What an application gave, as text for an error, without calling any code of the application's.

The text of an object is its class's to make, which may ask a database for that, fail, or never return; and errors are
also made on the loop that everybody shares.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from enum import Enum
from types import BuiltinFunctionType, FunctionType

from rmq.protocol.queue import MessageQueue

__all__ = ["shown", "told"]

#: Classes whose text Python makes.
_PLAIN = (
    str, bytes, int, float, complex, bool, type(None), type(...), type, object, date, timedelta,
    timezone, range, FunctionType, BuiltinFunctionType, MessageQueue,
)  # fmt: skip
#: What makes the texts of Python's own errors.
_ERRORS = (BaseException.__str__, OSError.__str__, KeyError.__str__)
_MOST_SAID = 500
#: Of a collection so many values are looked at, and so deep.
_MOST, _DEPTH = 8, 3


def shown(value: object, most: int = 60) -> str:
    """The text of a value, ``most`` letters of it; of objects of an application's classes their class alone."""
    return _text(value, most, _DEPTH)[:most]


def told(error: BaseException) -> str:
    """What was raised, and why where the text of that is Python's to make."""
    kind = type(error)
    plain = kind.__str__ in _ERRORS and all(type(one) in _PLAIN for one in error.args)
    return f"{kind.__name__}: {error}"[:_MOST_SAID] if plain and error.args else kind.__name__


def _text(value: object, most: int, depth: int) -> str:
    kind = type(value)
    if isinstance(value, (str, bytes)) and kind in (str, bytes):
        return repr(value[slice(most)])  # it may be long
    if isinstance(value, int) and kind is int and value.bit_length() > 4_096:  # Python makes no text of very long ones
        return f"a number of {value.bit_length()} bits"
    if kind in _PLAIN or (issubclass(kind, Enum) and kind.__module__.startswith("rmq.")):
        return repr(value)
    if isinstance(value, datetime) and kind is datetime and type(value.tzinfo) in (type(None), timezone):
        return repr(value)
    if depth and isinstance(value, (list, tuple, set, frozenset)) and kind in (list, tuple, set, frozenset):
        parts = [_text(one, most, depth - 1) for one in list(value)[:_MOST]]
        more = ", ..." if len(value) > _MOST else "," if kind is tuple and len(parts) == 1 else ""
        begin, end = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}")}.get(kind, ("frozenset({", "})"))
        return f"{begin}{', '.join(parts)}{more}{end}" if parts else repr(value)
    if depth and isinstance(value, dict) and kind is dict:
        items = list(value.items())[:_MOST]
        pairs = [f"{_text(key, most, depth - 1)}: {_text(one, most, depth - 1)}" for key, one in items]
        return f"{{{', '.join(pairs)}{', ...' if len(value) > _MOST else ''}}}"
    return f"<{kind.__qualname__} object>"
