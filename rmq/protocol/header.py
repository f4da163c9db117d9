"""Typed custom headers: the ext fields of a command as a class.

A header is declared once, with the Java name of each field as metadata::

    @wire_header
    class GetRouteInfoRequest(Header):
        topic: str = wire("topic")
        accept_standard_json_only: bool | None = wire("acceptStandardJsonOnly", default=None)

Text forms are Java's (protocol.md 1.8): ints decimal, booleans ``true``/``false``, None left out. A field without a
wire name, or of a type that has no text form, is an error when the class is defined.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from rmq.protocol.errors import HeaderError

__all__ = ["Header", "wire", "wire_header"]

H = TypeVar("H", bound="type[Header]")
_NO_DEFAULT = dataclasses.MISSING
_INT64 = range(-(1 << 63), 1 << 63)


def wire(name: str, *, default: Any = _NO_DEFAULT, also: tuple[str, ...] = ()) -> Any:
    """A header field.

    :param name: the field's name on the wire.
    :param default: what an absent field reads as; without one the field is required.
    :param also: other wire names accepted on reading (releases that renamed a field).
    """
    return dataclasses.field(default=default, metadata={"wire": name, "also": also}, kw_only=True)


def _read_int(text: str) -> int:
    if not text.lstrip("+-").isdecimal() or len(text) > 20:
        raise ValueError(text)
    value = int(text)
    if value not in _INT64:
        raise ValueError(text)
    return value


def _read_bool(text: str) -> bool:
    return text.lower() == "true"


_READERS: dict[type, Callable[[str], Any]] = {str: str, int: _read_int, bool: _read_bool, float: float}


def _text(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


class Header:
    """Base of the typed headers; see the module's docstring."""

    __slots__ = ()

    #: (attribute, wire name, other names, reader, required)
    _plan: ClassVar[tuple[tuple[str, str, tuple[str, ...], Callable[[str], Any], bool], ...]]

    def encode(self) -> dict[str, str | None]:
        """The ext fields, None left out."""
        ext: dict[str, str | None] = {}
        for attribute, name, _, _, _ in self._plan:
            value = getattr(self, attribute)
            if value is not None:
                ext[name] = value if type(value) is str else _text(value)
        return ext

    @classmethod
    def decode(cls, ext: Mapping[str, str | None]) -> Self:
        """Read ext fields; unknown ones are ignored.

        :raises HeaderError: names the field that is missing or does not parse.
        """
        values: dict[str, Any] = {}
        for attribute, name, also, reader, required in cls._plan:
            text = ext.get(name)
            if text is None:
                for other in also:
                    text = ext.get(other)
                    if text is not None:
                        break
                else:
                    if required:
                        raise HeaderError(f"{cls.__name__}: the field {name} is missing")
                    continue
            try:
                values[attribute] = reader(text)
            except ValueError:
                raise HeaderError(f"{cls.__name__}: {name}={text[:64]!r} is not a number") from None
        return cls(**values)


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def wire_header(cls: H) -> H:
    """Make a header class; refuses one that is incomplete."""
    made = dataclasses.dataclass(slots=True, kw_only=True)(cls)
    hints = typing.get_type_hints(made)
    plan = []
    for field in dataclasses.fields(typing.cast(Any, made)):
        if "wire" not in field.metadata:
            raise TypeError(f"{cls.__name__}.{field.name} has no wire name: declare it with wire(...)")
        kind = hints[field.name]
        if typing.get_origin(kind) in (types.UnionType, typing.Union):
            kind = next(arg for arg in typing.get_args(kind) if arg is not type(None))
        reader = _READERS.get(kind)
        if reader is None:
            raise TypeError(f"{cls.__name__}.{field.name}: {kind!r} has no text form on the wire")
        required = field.default is dataclasses.MISSING
        plan.append((field.name, field.metadata["wire"], field.metadata["also"], reader, required))
    made._plan = tuple(plan)
    return typing.cast(H, made)
