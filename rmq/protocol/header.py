"""Typed custom headers: the ext fields of a command as a class.

A header is declared once, with the Java name of each field as metadata::

    @wire_header
    class GetRouteInfoRequest(Header):
        topic: str = wire("topic")
        accept_standard_json_only: bool | None = wire("acceptStandardJsonOnly", default=None)

Text forms are Java's (protocol.md 1.8): ints decimal, booleans ``true``/``false``, None left out. A field without a
wire name, or of a type that has no text form, is an error when the class is defined. A number that does not parse
counts as absent where the field is optional, as in Java.

Reading and writing headers is on the warm path of everything, so each class gets functions made for it, as dataclasses
themselves do: straight code without a loop over fields, made when a header of the class is first read or written.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from rmq.protocol.errors import HeaderError
from rmq.protocol.names import LONGEST

__all__ = ["Header", "wire", "wire_header"]

H = TypeVar("H", bound="type[Header]")
_NO_DEFAULT = dataclasses.MISSING
_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)


def wire(name: str, *, default: Any = _NO_DEFAULT, also: tuple[str, ...] = (), long: bool = False) -> Any:
    """A header field.

    :param name: the field's name on the wire.
    :param default: what an absent field reads as; without one the field is required.
    :param also: other wire names accepted on reading (releases that renamed a field).
    :param long: an int field is a Java long; otherwise what does not fit 32 bits is refused.
    """
    return dataclasses.field(default=default, metadata={"wire": name, "also": also, "long": long}, kw_only=True)


class Header:
    """Base of the typed headers; see the module's docstring."""

    __slots__ = ()

    #: Attribute to wire name, in order of declaration.
    wire_names: ClassVar[Mapping[str, str]]
    #: Wire names of what must be there.
    required: ClassVar[frozenset[str]]

    _fields: ClassVar[list[_Field]]
    _defaults: ClassVar[dict[str, Any]]
    _encode: ClassVar[Callable[[Any], dict[str, str | None]]]
    _decode: ClassVar[Callable[[Any, Mapping[str, str | None]], Any]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.wire_names)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.wire_names)
        return f"{type(self).__name__}({values})"

    def encode(self) -> dict[str, str | None]:
        """The ext fields, None left out."""
        return self._encode()

    @classmethod
    def decode(cls, ext: Mapping[str, str | None]) -> Self:
        """Read ext fields; unknown ones are ignored.

        :raises HeaderError: names the field that is missing or does not parse.
        """
        return typing.cast(Self, cls._decode(cls, ext))


def _missing(header: str, name: str) -> HeaderError:
    return HeaderError(f"{header}: the field {name} is missing")


def _too_long(header: str, name: str, size: int, most: int) -> HeaderError:
    return HeaderError(f"{header}: the field {name} has {size} characters: at most {most} are taken")


def _odd_int(header: str, name: str, text: str, numbers: range) -> int:
    """A number that is signed, long or wrong."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isdecimal() and len(text) <= 20:
        value = int(text)
        if value in numbers:
            return value
    raise HeaderError(f"{header}: {name}={text[:64]!r} is no number of {32 if numbers is _INT32 else 64} bits")


def _optional_int(text: str, numbers: range, default: int | None) -> int | None:
    """The same for an optional field, where what does not parse counts as absent."""
    try:
        return _odd_int("", "", text, numbers)
    except HeaderError:
        return default


def _odd_float(header: str, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise HeaderError(f"{header}: {name}={text[:64]!r} is no number") from None


@dataclasses.dataclass(slots=True, frozen=True)
class _Field:
    attribute: str
    name: str
    also: tuple[str, ...]
    kind: type
    required: bool
    long: bool

    def reading(self, header: str) -> list[str]:
        """Source that sets ``v`` to the field's value out of ``get``."""
        name = repr(self.name)
        lines = [f"v = get({name})"]
        lines += [f"if v is None: v = get({other!r})" for other in self.also]
        if self.kind is int:
            digits, numbers = (19, "_INT64") if self.long else (10, "_INT32")
            odd = f"_odd_int({header!r}, {name}, v, {numbers})"
            if not self.required:
                odd = f"_optional_int(v, {numbers}, d_{self.attribute})"
            parse = f"int(v) if len(v) < {digits} and v.isdecimal() else {odd}"
        elif self.kind is bool:
            parse = 'v == "true" or v.lower() == "true"'
        elif self.kind is float:
            parse = f"_odd_float({header!r}, {name}, v)"
        else:
            parse = "v"
        otherwise = f"raise _missing({header!r}, {name})" if self.required else f"{self.attribute} = d_{self.attribute}"
        lines += [f"if v is None: {otherwise}", f"else: {self.attribute} = {parse}"]
        if self.kind is str and (most := LONGEST.get(self.name)):
            lines.append(f"if v is not None and len(v) > {most}: raise _too_long({header!r}, {name}, len(v), {most})")
        return lines

    def writing(self) -> list[str]:
        """Source that puts the field into ``ext``."""
        text = "v"
        if self.kind is bool:
            text = '"true" if v else "false"'
        elif self.kind is not str:
            text = "str(v)"
        return [f"v = self.{self.attribute}", f"if v is not None: ext[{self.name!r}] = {text}"]


def _functions(header: str, fields: list[_Field], defaults: dict[str, Any]) -> tuple[Any, Any]:
    read = [line for field in fields for line in field.reading(header)]
    write = [line for field in fields for line in field.writing()]
    arguments = ", ".join(f"{field.attribute}={field.attribute}" for field in fields)
    source = "\n    ".join(["def decode(cls, ext):", "get = ext.get", *read, f"return cls({arguments})"])
    source += "\n" + "\n    ".join(["def encode(self):", "ext = {}", *write, "return ext"])
    scope: dict[str, Any] = {
        "_missing": _missing,
        "_too_long": _too_long,
        "_odd_int": _odd_int,
        "_optional_int": _optional_int,
        "_odd_float": _odd_float,
        "_INT32": _INT32,
        "_INT64": _INT64,
        **{f"d_{name}": value for name, value in defaults.items()},
    }
    exec(compile(source, f"<header {header}>", "exec"), scope)
    return scope["encode"], scope["decode"]


def _compile(cls: type[Header]) -> None:
    cls._encode, cls._decode = _functions(cls.__name__, cls._fields, cls._defaults)


def _first_encode(self: Header) -> dict[str, str | None]:
    _compile(type(self))
    return self._encode()


def _first_decode(cls: type[Header], ext: Mapping[str, str | None]) -> Any:
    _compile(cls)
    return cls._decode(cls, ext)


#: Annotations are texts here (``from __future__ import annotations``); evaluating them would double the import time.
_KINDS: dict[str, type] = {"str": str, "int": int, "bool": bool, "float": float}


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def wire_header(cls: H) -> H:
    """Make a header class; refuses one that is incomplete."""
    # One __eq__ and __repr__ for all classes: made for each, they are half of the time that importing them takes.
    made = dataclasses.dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls)
    fields: list[_Field] = []
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, made)):
        if "wire" not in field.metadata:
            raise TypeError(f"{cls.__name__}.{field.name} has no wire name: declare it with wire(...)")
        kind = _KINDS.get(str(field.type).removesuffix("| None").rstrip())
        if kind is None:
            raise TypeError(f"{cls.__name__}.{field.name}: {field.type!r} has no text form on the wire")
        required = field.default is dataclasses.MISSING
        if not required:
            defaults[field.name] = field.default
        data = field.metadata
        fields.append(_Field(field.name, data["wire"], data["also"], kind, required, data["long"]))
    made.wire_names = types.MappingProxyType({field.attribute: field.name for field in fields})
    made.required = frozenset(field.name for field in fields if field.required)
    made._fields, made._defaults = fields, defaults
    made._encode, made._decode = _first_encode, _first_decode
    return typing.cast(H, made)
