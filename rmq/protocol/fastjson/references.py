"""Putting ``$ref`` right: fastjson writes an object instance once and then its path (protocol.md 4.1, E5, E6).

Paths::

    $              the whole document
    $.a.b[0]       from the root; special characters of a name are written with a backslash
    @ and ..       the object itself and its parent: no bean of RocketMQ can hold these, they become None

A reference used as a map key points at ``$.table.null``, which names the table but not which of its keys. It can be
told only when the table has as many object keys as there are such references: then they are taken in order.
"""

from __future__ import annotations

import re
from collections import Counter

from rmq.protocol.errors import ProtocolError
from rmq.protocol.fastjson.keys import ObjectKey

__all__ = ["MAX_DEPTH", "resolve"]

#: Nesting that no body of RocketMQ comes near; a bound for the recursion of all who read.
MAX_DEPTH = 64
#: Values that references may add to a document: Java writes one for each object that it has written before.
_MOST_SHARED = 100_000

_SEGMENT = re.compile(r"\.((?:\\.|[^.\\\[])+)|\[(\d+)\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MISSING = object()


def _path(value: object) -> str | None:
    """Where a value refers to, when it is a reference."""
    if isinstance(value, dict) and len(value) == 1:
        path = value.get("$ref")
        return path if isinstance(path, str) else None
    return None


def _key_path(key: object) -> str | None:
    if isinstance(key, ObjectKey) and len(key) == 1:
        path = key.get("$ref")
        return path if isinstance(path, str) else None
    return None


class _Resolver:
    """Replaces references in place; values are shared with what they refer to, not copied.

    Linear: every path is followed once, and a table is looked through once for keys that are no text.
    """

    __slots__ = ("keys", "names", "root", "targets", "used", "within")

    def __init__(self, root: object) -> None:
        self.root = root
        #: What paths point at.
        self.targets: dict[str, object] = {}
        #: Tables by identity: their keys that are no text, by what paths call them.
        self.names: dict[int, dict[str, object]] = {}
        #: What holds the value that is looked at, by identity.
        self.within: set[int] = set()
        #: Path of a key reference to the keys that it may mean, and how many of them were given out.
        self.keys: dict[str, list[ObjectKey]] = {}
        self.used: dict[str, int] = {}

    def target(self, path: str) -> object:
        """What a path points at, through references to references; None when it is nowhere."""
        seen: dict[str, None] = {}
        value: object = None
        further: str | None = path
        while further is not None:
            if further in self.targets:
                value = self.targets[further]
                break
            if further in seen:
                value = None
                break
            seen[further] = None
            value = self.find(further)
            further = _path(value)
        if value is _MISSING:
            value = None
        for known in seen:
            self.targets[known] = value
        return value

    def find(self, path: str) -> object:
        """What a path names, be that a reference."""
        at, value = 1, self.root
        if not path.startswith("$"):
            return _MISSING
        while at < len(path):
            match = _SEGMENT.match(path, at)
            if match is None:
                return _MISSING
            at = match.end()
            if match[2] is not None:
                index = int(match[2]) if len(match[2]) < 10 else -1
                if not isinstance(value, list) or not 0 <= index < len(value):
                    return _MISSING
                value = value[index]
                continue
            if not isinstance(value, dict):
                return _MISSING
            value = self.member(value, _ESCAPED.sub(r"\1", match[1]))
            if value is _MISSING:
                return _MISSING
        return value

    def member(self, table: dict[object, object], name: str) -> object:
        if name in table:
            return table[name]
        names = self.names.get(id(table))
        if names is None:
            names = self.names[id(table)] = {}
            for key in table:
                if isinstance(key, ObjectKey):
                    names.setdefault(key.java_text, key)
                elif isinstance(key, int):
                    names.setdefault(str(key), key)
        return table.get(names[name], _MISSING) if name in names else _MISSING

    def replaced(self, value: object, depth: int = 0) -> object:
        path = _path(value)
        if path is not None:
            target = self.target(path)
            # What holds the reference itself would make a circle, which no reader of bodies expects.
            return None if id(target) in self.within else target
        if depth > MAX_DEPTH:
            raise ProtocolError(f"nested deeper than {MAX_DEPTH}")
        if not isinstance(value, (list, dict)):
            return value
        self.within.add(id(value))
        if isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, (list, dict)):
                    value[index] = self.replaced(item, depth + 1)
        else:
            for key, item in value.items():
                if isinstance(item, (list, dict)):
                    value[key] = self.replaced(item, depth + 1)
            if any(_key_path(key) is not None for key in value):
                self.rename(value)
        self.within.discard(id(value))
        return value

    def rename(self, table: dict[object, object]) -> None:
        items = list(table.items())
        asked = Counter(path for key, _ in items if (path := _key_path(key)) is not None)
        self.names.pop(id(table), None)
        table.clear()
        for key, item in items:
            path = _key_path(key)
            if path is not None:
                meant = self.meant(path, asked[path])
                nth = self.used.get(path, 0)
                self.used[path] = nth + 1
                if nth < len(meant):
                    key = meant[nth]
                elif meant:
                    key = meant[-1]
            table[key] = item

    def meant(self, path: str, asked: int) -> list[ObjectKey]:
        if path not in self.keys:
            table = self.find(path.removesuffix(".null")) if path.endswith(".null") else None
            keys = [k for k in table if isinstance(k, ObjectKey)] if isinstance(table, dict) else []
            self.keys[path] = keys if len(keys) in (1, asked) else []
        return self.keys[path]


def resolve(root: object) -> object:
    """The document with every reference replaced by what it points at; None when that is nowhere.

    :raises ProtocolError: nested too deep, or who reads it would have far more to read than there is.
    """
    if _path(root) is not None:
        return None
    resolver = _Resolver(root)
    found = resolver.replaced(root)
    if resolver.targets:
        _Weight().of(found)
    return found


class _Weight:
    """How many values a document has for who walks through it: what is shared counts wherever it is."""

    __slots__ = ("known", "shared")

    def __init__(self) -> None:
        #: Of lists and tables by identity; 0 while one is looked at.
        self.known: dict[int, int] = {}
        #: Values that came again.
        self.shared = 0

    def of(self, value: object, depth: int = 0) -> int:
        if not isinstance(value, (list, dict)):
            return 1
        weight = self.known.get(id(value))
        if weight is not None:
            self.shared += weight
            if weight == 0 or self.shared > _MOST_SHARED:
                raise ProtocolError("references that refer to one another, or to far too much")
            return weight
        if depth > 2 * MAX_DEPTH:
            raise ProtocolError(f"nested deeper than {2 * MAX_DEPTH} with what it refers to")
        self.known[id(value)] = 0
        weight = 1
        for item in value if isinstance(value, list) else value.values():
            weight += self.of(item, depth + 1)
        self.known[id(value)] = weight
        return weight
