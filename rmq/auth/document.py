"""YAML as plain_acl.yml needs it: maps, lists and texts, each with its place in the file.

Scalars stay the texts that they are in the file (a secret of digits is a text), a repeated key is an error, there are
no anchors, and depth and size are bounded before anything is built. It reads the parser's events, which do not recurse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from rmq.protocol.errors import ConfigError

__all__ = ["MOST_BYTES", "Mapping", "Node", "Place", "Scalar", "Sequence", "parse_document"]

#: Bytes of one file.
MOST_BYTES = 512 << 10
_MOST_DEPTH = 8

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node begins or ends: line and column, from 0."""

    line: int
    column: int


@dataclass(slots=True)
class Node:
    start: Place
    end: Place

    @property
    def line(self) -> int:
        """The number of its first line as editors count."""
        return self.start.line + 1


@dataclass(slots=True)
class Scalar(Node):
    """A text; None of an empty or a null one."""

    text: str | None


@dataclass(slots=True)
class Sequence(Node):
    items: list[Node] = field(default_factory=list)
    #: Written with brackets.
    flow: bool = False


@dataclass(slots=True)
class Mapping(Node):
    """In order of the file; keys are texts."""

    keys: dict[str, Scalar] = field(default_factory=dict)
    values: dict[str, Node] = field(default_factory=dict)
    flow: bool = False


def parse_document(path: str, data: bytes, most: int = MOST_BYTES) -> Mapping | None:
    """Read a file; None when nothing is in it.

    :param path: for errors. :param most: bytes that are read.
    :raises ConfigError: names the file, the line and what is wrong there.
    """
    if len(data) > most:
        raise ConfigError(f"{path}: it is too long: at most {most} bytes are read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: this is no UTF-8: save the file in UTF-8") from None
    try:
        events = yaml.parse(text, Loader=_Loader)
        root = _document(path, events)
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        why = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{path}:{line}: this is no YAML: {why}") from None
    if root is None or (isinstance(root, Scalar) and root.text is None):
        return None
    if not isinstance(root, Mapping):
        raise ConfigError(f"{path}:{root.line}: keys with values are expected, such as `key: value`")
    return root


def _document(path: str, events: Iterator[Any]) -> Node | None:
    found: Node | None = None
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            if found is not None:
                raise ConfigError(
                    f"{path}:{_place(event.start_mark).line + 1}: a second document (---): one is expected"
                )
            found = _node(path, events, next(events), 0)
    return found


def _place(mark: Any) -> Place:
    return Place(mark.line, mark.column)


def _node(path: str, events: Iterator[Any], event: Any, depth: int) -> Node:
    start, end = _place(event.start_mark), _place(event.end_mark)
    where = f"{path}:{start.line + 1}"
    if depth > _MOST_DEPTH:
        raise ConfigError(f"{where}: lists and maps {depth} deep: at most {_MOST_DEPTH} are read")
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise ConfigError(f"{where}: an anchor or an alias (& or *): write the value out, in quotes if it is a text")
    if isinstance(event, yaml.ScalarEvent):
        plain = event.style is None or event.style == ""
        empty = plain and event.value in ("", "~", "null", "Null", "NULL")
        return Scalar(start, end, None if empty else event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        sequence = Sequence(start, end, flow=bool(event.flow_style))
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            sequence.items.append(_node(path, events, inner, depth + 1))
        sequence.end = _place(inner.end_mark)
        return sequence
    if not isinstance(event, yaml.MappingStartEvent):
        raise ConfigError(f"{where}: a value is expected here")
    mapping = Mapping(start, end, flow=bool(event.flow_style))
    while not isinstance(inner := next(events), yaml.MappingEndEvent):
        key = _node(path, events, inner, depth + 1)
        if not isinstance(key, Scalar) or key.text is None:
            raise ConfigError(f"{path}:{key.line}: a key is a text")
        if key.text in mapping.keys:
            raise ConfigError(
                f"{path}:{key.line}: {key.text} is here twice, the first is in line {mapping.keys[key.text].line}: "
                "remove one"
            )
        mapping.keys[key.text] = key
        mapping.values[key.text] = _node(path, events, next(events), depth + 1)
    mapping.end = _place(inner.end_mark)
    return mapping
