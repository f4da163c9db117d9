"""How bodies are declared: a class names its members once, reading and writing follow from the types.

::

    @body
    class KVTable(Body):
        table: dict[str, str] = member("table", factory=dict)

Reading converts as fastjson does (protocol.md 4.1, A1 to A11): numbers and booleans as texts, enums by ordinal, unknown
members ignored, a null collection as an empty one. Writing puts the members in Java's order and leaves None out.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import orjson

from rmq.protocol import fastjson
from rmq.protocol.dicts import dict_of
from rmq.protocol.errors import BodyError, ProtocolError
from rmq.protocol.fastjson import ObjectKey
from rmq.protocol.names import LONGEST
from rmq.protocol.queue import MessageQueue

__all__ = ["Body", "body", "member", "queue_from", "queue_object", "read_json"]

B = TypeVar("B", bound="type[Body]")
Reader = Callable[[Any], Any]

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_PLAIN = frozenset({str, int, bool, float})
#: Bytes of a body that is read by the slow parser, which takes what is neither strict JSON nor Java's usual dialect.
LENIENT_BYTES = 65_536
#: Characters of a MessageQueue in a text, each of its names being written with escapes.
_LONGEST_QUEUE = 4_096
_TEXT = rb'[^"\\]*(?:\\.[^"\\]*)*'
#: A text, which is passed over, one without end, too: or each quote of such a one would be read on from. Or a number or
#: a MessageQueue as key, after what stands before it.
_BARE_KEY = re.compile(
    rb'"' + _TEXT + rb'"?|([{,]\s*)(?:(-?\d+)|(\{"brokerName":"' + _TEXT + rb'","queueId":-?\d+,'
    rb'"topic":"' + _TEXT + rb'"\}))(?=\s*:)',
    re.DOTALL,
)


def member(
    name: str,
    *,
    default: Any = dataclasses.MISSING,
    factory: Callable[[], Any] | None = None,
    also: tuple[str, ...] = (),
    values: tuple[str, ...] = (),
    written: bool = True,
) -> Any:
    """A body's member.

    :param name: its name in JSON.
    :param default: what an absent one reads as; ``factory`` makes one for collections.
    :param also: other names accepted on reading.
    :param values: the names of a Java enum in ordinal order; anything else reads as None.
    :param written: False for what Java accepts but never writes.
    """
    metadata = {"json": name, "also": also, "values": values, "written": written}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _read_text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, (bool, int, float)):
        return fastjson.dumps(value).decode()
    raise ValueError("no text")


def _read_int(value: Any) -> int:
    if type(value) is not int:
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, float) and -9.3e18 < value < 9.3e18:
            value = int(value)
        elif isinstance(value, str):
            text = value.strip().partition(".")[0]
            if not text.lstrip("+-").isdecimal() or len(text) > 20:
                raise ValueError("no number")
            value = int(text)
        else:
            raise ValueError("no number")
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise ValueError("no 64-bit number")
    return int(value)


def _read_float(value: Any) -> float:
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("no double") from None
    if isinstance(value, str) and len(value) < 64:
        return float(value)
    raise ValueError("no number")


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value == 1
    if isinstance(value, str):
        return value.lower() in ("true", "1", "y", "t")
    raise ValueError("no boolean")


def _bounded(reader: Reader, most: int) -> Reader:
    """The same for a name, which is not taken when it is too long."""

    def read(value: Any) -> Any:
        text = reader(value)
        if text is not None and len(text) > most:
            raise ValueError(f"{len(text)} characters: at most {most} are taken")
        return text

    return read


_name = _bounded(_read_text, LONGEST["topic"])


def queue_from(value: Any) -> MessageQueue:
    """A MessageQueue from its JSON object, from an object key, or from a text that holds one (A3).

    :raises ValueError: none of these.
    """
    if isinstance(value, str):
        if len(value) > _LONGEST_QUEUE:
            raise ValueError("no message queue")
        try:
            value = fastjson.loads(value)
        except ProtocolError:
            raise ValueError("no message queue") from None
    if isinstance(value, ObjectKey):
        value = value.members
    if not isinstance(value, dict):
        raise ValueError("no message queue")
    topic, broker = _name(value.get("topic")), _name(value.get("brokerName"))
    number = value.get("queueId")
    return MessageQueue(topic or "", broker or "", 0 if number is None else _read_int(number))


def queue_object(queue: MessageQueue) -> dict[str, object]:
    """A MessageQueue as Java writes it where it is a value."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def _enum_reader(values: tuple[str, ...]) -> Reader:
    def read(value: Any) -> str | None:
        if isinstance(value, str):
            name = value.upper() if value not in values else value
            return name if name in values else None
        if isinstance(value, int) and 0 <= value < len(values):
            return values[value]
        return None

    return read


def _list_reader(item: Reader, *, objects: bool) -> Reader:
    """:param objects: the items are bodies of their own: none of them may be null."""

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError("no array")
        if objects and None in value:
            raise ValueError("null among the objects of an array")
        return [None if one is None else item(one) for one in value]

    return read


def _key_reader(kind: Any) -> Reader:
    if kind is str:
        return lambda key: "null" if key is None else str(key) if isinstance(key, int) else _read_text(key)
    if kind is int:
        return _read_int
    return queue_from


def _map_reader(key: Reader, item: Reader) -> Reader:
    def read(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise ValueError("no object")
        return {key(name): item(one) for name, one in value.items() if one is not None}

    return read


def _is_body(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Body)


def _reader(kind: Any) -> Reader:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _reader(next(arg for arg in args if arg is not type(None)))
    if origin is list:
        return _list_reader(_reader(args[0]), objects=_is_body(args[0]))
    if origin is dict:
        return _map_reader(_key_reader(args[0]), _reader(args[1]))
    if kind is MessageQueue:
        return queue_from
    if _is_body(kind):
        return typing.cast(type[Body], kind).from_object
    readers: dict[Any, Reader] = {
        str: _read_text,
        int: _read_int,
        float: _read_float,
        bool: _read_bool,
        object: lambda value: value,
    }
    return readers[kind]


def to_object(value: Any) -> Any:
    """A member's value as the JSON writer takes it."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Body):
        return value.to_object()
    if isinstance(value, MessageQueue):
        return queue_object(value)
    if isinstance(value, Mapping):
        return {k.key if isinstance(k, MessageQueue) else k: to_object(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)) and not isinstance(value, ObjectKey):
        return [to_object(item) for item in value]
    return value


def read_json(data: bytes, name: str, limit: int | None, *, bare: bool = True) -> object:
    """Read a body's JSON, the usual forms of Java fast and the others up to a limit.

    :param name: the body's, for the error.
    :param bare: it has tables by number or by queue, whose keys Java writes bare; others are not searched for them.
    :raises BodyError: not readable, or odd and longer than ``limit``.
    """
    try:
        return orjson.loads(data) if b'"$ref"' not in data else fastjson.loads(data, limit=limit)
    except orjson.JSONDecodeError:
        pass
    except ProtocolError as error:
        raise BodyError(f"{name}: {error}") from None
    if bare:
        # Tables by number or by queue can be long. With texts as keys they are strict JSON, read many times faster.
        try:
            return orjson.loads(_BARE_KEY.sub(_quoted_key, data))
        except orjson.JSONDecodeError:
            pass
    try:
        return fastjson.loads(data, limit=limit)
    except ProtocolError as error:
        raise BodyError(f"{name}: {error}") from None


def _quoted_key(match: re.Match[bytes]) -> bytes:
    before, number, queue = match.groups()
    if before is None:
        return match[0]
    if number is not None:
        return b'%b"%b"' % (before, number)
    return b'%b"%b"' % (before, queue.replace(b"\\", b"\\\\").replace(b'"', b'\\"'))


class Body:
    """Base of the typed bodies; see the module's docstring."""

    __slots__ = ()

    #: (attribute, JSON name, other names, reader, required), sorted by JSON name
    _plan: ClassVar[tuple[tuple[str, str, tuple[str, ...], Reader, bool], ...]]
    #: (attribute, JSON name) of what is written
    _written: ClassVar[tuple[tuple[str, str], ...]]
    #: It holds a table by number or by queue, itself or in a member.
    _bare: ClassVar[bool]
    #: JSON names of its tables.
    _tables: ClassVar[frozenset[str]]

    def to_object(self) -> dict[str, Any]:
        """The members that are not None, in Java's order."""
        members: dict[str, Any] = {}
        for attribute, name in self._written:
            value = getattr(self, attribute)
            if value is not None:
                members[name] = to_object(value)
        return members

    def as_dict(self) -> dict[str, Any]:
        """Its attributes by name, and those of what is in it; queues that are keys as Java's text of them."""
        return dict_of(self)

    def encode(self) -> bytes:
        """The JSON that Java writes."""
        return fastjson.dumps(self.to_object())

    @classmethod
    def names(cls) -> frozenset[str]:
        """What its members are called in JSON, other names that are read included."""
        return frozenset(name for _, json, others, _, _ in cls._plan for name in (json, *others))

    @classmethod
    def from_object(cls, value: Any) -> Self:
        """Read a parsed JSON value.

        :raises BodyError: names the member that is missing or wrong.
        """
        if not isinstance(value, dict):
            raise BodyError(f"{cls.__name__}: no object but {type(value).__name__}")
        found: dict[str, Any] = {}
        for attribute, name, also, reader, required in cls._plan:
            item = value.get(name)
            if item is None:
                item = next((value[other] for other in also if value.get(other) is not None), None)
                if item is None:
                    if required:
                        raise BodyError(f"{cls.__name__}: the member {name} is missing")
                    continue
            try:
                found[attribute] = reader(item)
            except ValueError as error:
                raise BodyError(f"{cls.__name__}.{name}: {error}") from None
        return cls(**found)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, *, limit: int | None = LENIENT_BYTES) -> Self:
        """Read a body as it came.

        :param limit: bytes up to which odd JSON is read, too; a server must not be stalled with more. None: no limit.
        :raises BodyError: empty, not JSON, or with a member that is wrong.
        """
        if not data:
            raise BodyError(f"{cls.__name__}: the body is empty")
        return cls.from_object(read_json(bytes(data), cls.__name__, limit, bare=cls._bare))

    @classmethod
    def of_file(cls, data: bytes) -> Self:
        """Read the body that a file holds, which may have been overwritten by one of another kind.

        :raises BodyError: as of :meth:`decode`, or it has members, and none of them is a table of this body.
        """
        return cls.from_object(cls.file_object(data))

    @classmethod
    def file_object(cls, data: bytes) -> object:
        """The JSON of such a file, for those who look at its entries before they are read.

        :raises BodyError: it is no JSON, or that of another kind of file.
        """
        value = read_json(data, cls.__name__, LENIENT_BYTES, bare=cls._bare)
        if isinstance(value, dict) and value and cls._tables.isdisjoint(value):
            raise BodyError(f"{cls.__name__}: it is a file of another kind, without {' or '.join(sorted(cls._tables))}")
        return value


@dataclass_transform(field_specifiers=(member,))
def body(cls: B) -> B:
    """Make a body class; refuses one whose members have no JSON name or a type without JSON form."""
    made = dataclasses.dataclass(slots=True)(cls)
    hints = typing.get_type_hints(made)
    plan = []
    written = []
    for field in dataclasses.fields(typing.cast(Any, made)):
        if "json" not in field.metadata:
            raise TypeError(f"{cls.__name__}.{field.name} has no JSON name: declare it with member(...)")
        values = field.metadata["values"]
        try:
            reader = _enum_reader(values) if values else _reader(hints[field.name])
        except KeyError:
            raise TypeError(f"{cls.__name__}.{field.name}: {hints[field.name]!r} has no JSON form") from None
        if field.metadata["json"] in LONGEST and reader is _read_text:
            reader = _bounded(reader, LONGEST[field.metadata["json"]])
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        plan.append((field.name, field.metadata["json"], field.metadata["also"], reader, required))
        if field.metadata["written"]:
            written.append((field.name, field.metadata["json"]))
    made._plan = tuple(plan)
    made._written = tuple(sorted(written, key=lambda pair: pair[1]))
    made._tables = frozenset(
        field.metadata["json"] for field in dataclasses.fields(typing.cast(Any, made))
        if typing.get_origin(hints[field.name]) is dict
    )  # fmt: skip
    made._bare = any(_has_bare_keys(hints[field.name]) for field in dataclasses.fields(typing.cast(Any, made)))
    return typing.cast(B, made)


def _has_bare_keys(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, Body):
        return hint._bare
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is dict and parts[0] is not str:
        return True
    return any(_has_bare_keys(part) for part in parts)
