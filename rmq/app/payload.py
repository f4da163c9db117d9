"""Bodies and the values an application works with: a codec for each type that a topic may carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, is_typeddict

import msgspec

from rmq.protocol.errors import ClientError, WrongType

__all__ = ["Codec", "PayloadError", "codec_of", "is_class"]

T = TypeVar("T")


class PayloadError(ClientError):
    """A body that is not what the type of its topic says, or a value that cannot be made a body."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How values of one type become bodies and come out of them.

    :param name: of the type, for messages to people.
    :param decode: of a body; may raise anything.
    :param encode: of a value; may raise anything.
    """

    name: str
    decode: Callable[[bytes], T]
    encode: Callable[[T], bytes]

    def load(self, body: bytes) -> T:
        """:raises PayloadError: the body is no such value."""
        try:
            return self.decode(body)
        except Exception as error:
            raise PayloadError(f"the body is no {self.name}: {_why(error)}") from error

    def dump(self, value: T) -> bytes:
        """:raises PayloadError: the value is no such value, or none that has a form as bytes."""
        try:
            body = self.encode(value)
        except Exception as error:
            raise PayloadError(f"{type(value).__name__} cannot be sent as {self.name}: {_why(error)}") from error
        if type(body) is not bytes:
            raise PayloadError(f"encoding a {self.name} made {type(body).__name__}, not bytes")
        return body


def _why(error: Exception) -> str:
    """What an error says, on one line and bounded: a validator may quote the whole body."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.300}"


def _kept(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError("bytes are sent as they are")


def _text(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    raise TypeError("a text is sent as UTF-8")


def is_class(kind: object) -> bool:
    """A type whose values ``isinstance`` knows: no Any, no union, no TypedDict."""
    return isinstance(kind, type) and not is_typeddict(kind) and kind is not Any


def _is_model(kind: object) -> bool:
    """A pydantic model, without a need for pydantic."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump_json")


def _from_json(kind: Any, value: Any) -> Any:
    if _is_model(kind):
        return kind.model_validate(value)
    raise TypeError(f"no value of {getattr(kind, '__name__', kind)} is made from JSON")


def _to_json(value: Any) -> Any:
    if _is_model(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no form as JSON")


def codec_of(kind: Any) -> Codec[Any]:
    """The codec of a type.

    ``bytes`` is the body as it is, ``str`` UTF-8; a pydantic model validates itself; everything else is JSON as msgspec
    reads and writes it: dataclasses, ``msgspec.Struct``, ``TypedDict``, ``dict``, lists, numbers, datetimes, unions of
    them, and ``Any``.

    :raises ClientError: values of this type have no form as bytes.
    """
    name = getattr(kind, "__name__", None) or str(kind)
    if kind is bytes:
        return Codec("bytes", bytes, _kept)
    if kind is str:
        return Codec("text", lambda body: body.decode(), _text)
    if _is_model(kind):
        return Codec(name, kind.model_validate_json, lambda value: _model_body(kind, value))
    try:
        unknown = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
        decoder = msgspec.json.Decoder(kind, dec_hook=_from_json)
    except (TypeError, NameError) as error:
        raise WrongType(f"the payload type {name} cannot be used: {error}") from error
    if unknown:
        raise ClientError(
            f"the payload type {name} has no form as JSON: use a dataclass, a msgspec.Struct or a pydantic model, or "
            "give decode= and encode="
        )
    return Codec(name, decoder.decode, lambda value: _json_body(kind, value))


def _model_body(kind: Any, value: Any) -> bytes:
    if not isinstance(value, kind):
        raise TypeError(f"not a {kind.__name__}")
    return cast(str, value.model_dump_json()).encode()


def _json_body(kind: Any, value: Any) -> bytes:
    if is_class(kind) and not isinstance(value, (int, float) if kind is float else kind):
        raise TypeError(f"not a {kind.__name__}")
    return msgspec.json.encode(value, enc_hook=_to_json)
