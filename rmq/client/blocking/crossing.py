"""What the blocking clients' methods are given, made plain on the caller's thread: no code of an application's classes
runs on the loop, which other clients have, too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from datetime import UTC, datetime
from typing import Any, TypeVar

from rmq.client.checks import milliseconds, seconds
from rmq.client.message import Message, MessageExt, body_bytes, check_properties, join_keys
from rmq.protocol.keywords import no_such
from rmq.protocol.plain import plain

__all__ = ["crosses", "plain_message"]

T = TypeVar("T")
_Taken = Callable[[Any, str], Any]


def crosses(cls: type[T]) -> type[T]:
    """Have the public methods of a class hand on plain arguments only.

    What is of a wrong type is handed on as it is: the method refuses it.
    """
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            taken = {one.name: _taken(str(one.annotation)) for one in inspect.signature(method).parameters.values()}
            del taken["self"]
            if taken:
                setattr(cls, name, _crossing(method, taken))
    return cls


def _crossing(method: Callable[..., Any], taken: dict[str, _Taken]) -> Callable[..., Any]:
    in_order = list(taken.items())
    method.__qualname__ = method.__qualname__.replace("Mirror.", ".")  # as Python's own errors name it

    @functools.wraps(method)
    def call(self: object, *given: object, **named: object) -> Any:
        if not taken.keys() >= named.keys():
            raise no_such(method, named.keys() - taken.keys())
        values = [take(value, name) for (name, take), value in zip(in_order, given, strict=False)]
        values += given[len(values) :]  # too many: the method says so
        return method(self, *values, **{name: taken[name](value, name) for name, value in named.items()})

    return call


def _taken(annotation: str) -> _Taken:
    """How an argument that is declared so is taken."""
    kind = annotation.removesuffix(" | None")
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    return next((take for start, take in _BY_START.items() if kind.startswith(start)), plain)


def _as_it_is(value: object, name: str) -> object:
    return value


def _duration(value: Any, name: str) -> object:
    return None if value is None else seconds(value, name)


def _moment(value: Any, name: str) -> object:
    return None if value is None else milliseconds(value, name)


def _several(value: Any, name: str) -> object:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return value
    return [plain(one, f"one of {name}") for one in value]


def _mapping(value: Any, name: str) -> object:
    return {plain(key, name): plain(one, name) for key, one in value.items()} if isinstance(value, Mapping) else value


def _keys(value: Any, name: str) -> object:
    return None if value is None else join_keys(value)


def plain_message(value: Any, name: str = "the message") -> Any:
    """The same message, or one like it with plain attributes; what is none stays what it is."""
    if isinstance(value, MessageExt):
        if type(value) is MessageExt and _is_plain(value.properties):
            return value
        made: Message | MessageExt = _copy(value, MessageExt)
        made.properties = check_properties(value.properties)
        return made
    if not isinstance(value, Message):
        return value
    odd = {name for name in Message.__slots__ if type(getattr(value, name)) not in _PLAIN}
    own = value._properties
    if type(value) is Message and odd <= {"_properties"} and (own is None or _is_plain(own)):
        return value
    made = _copy(value, Message)
    for name in odd - {"_properties"} | {"topic", "body", "keys", "properties"}:
        setattr(made, name, _ATTRIBUTES.get(name, plain)(getattr(value, name), name))
    return made


def _copy(value: T, kind: type[T]) -> T:
    if type(value) is kind:
        return copy(value)
    made = kind.__new__(kind)
    for name in kind.__slots__:  # type: ignore[attr-defined]
        if hasattr(value, name):
            setattr(made, name, getattr(value, name))
    return made


def _is_plain(properties: object) -> bool:
    return type(properties) is dict and all(type(name) is type(value) is str for name, value in properties.items())


def _body(value: Any, name: str) -> object:
    return body_bytes(value)


def _properties(value: Any, name: str) -> object:
    return check_properties(value)


def _delivery(value: Any, name: str) -> object:
    if not isinstance(value, datetime):
        return value
    return datetime.fromtimestamp(milliseconds(value, name) / 1000, UTC)


#: Classes of attributes that are as they go out.
_PLAIN = frozenset({str, int, float, bytes, bool, type(None)})
_ATTRIBUTES: dict[str, _Taken] = {
    "body": _body, "keys": _keys, "properties": _properties, "delay": _duration, "deliver_at": _delivery,
}  # fmt: skip
_BY_KIND: dict[str, _Taken] = {
    "object": _as_it_is, "Duration": _duration, "int | datetime": _moment, "str | Iterable[str]": _keys,
    "Message": plain_message, "Message | MessageExt": plain_message, "MessageExt": plain_message,
}  # fmt: skip
_BY_START: dict[str, _Taken] = {"Collection[": _several, "Iterable[": _several, "Mapping[": _mapping}
