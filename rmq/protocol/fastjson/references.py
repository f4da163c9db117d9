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

from rmq.protocol.fastjson.keys import ObjectKey

__all__ = ["resolve"]

_SEGMENT = re.compile(r"\.((?:\\.|[^.\\\[])+)|\[(\d+)\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MISSING = object()


def _find(root: object, path: str) -> object:
    at, value = 1, root
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
        name = _ESCAPED.sub(r"\1", match[1])
        if not isinstance(value, dict):
            return _MISSING
        value = _member(value, name)
        if value is _MISSING:
            return _MISSING
    return value


def _member(table: dict[object, object], name: str) -> object:
    if name in table:
        return table[name]
    for key, value in table.items():
        if isinstance(key, ObjectKey) and key.java_text == name:
            return value
        if isinstance(key, int) and str(key) == name:
            return value
    return _MISSING


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
    """Replaces references in place; values are shared with what they refer to, not copied."""

    __slots__ = ("keys", "root", "used")

    def __init__(self, root: object) -> None:
        self.root = root
        #: Path of a key reference to the keys that it may mean, and how many of them were given out.
        self.keys: dict[str, list[ObjectKey]] = {}
        self.used: dict[str, int] = {}

    def target(self, path: str) -> object:
        """What a path points at, through references to references; None when it is nowhere."""
        value = _find(self.root, path)
        seen = {path}
        while (further := _path(value)) is not None:
            if further in seen:
                return None
            seen.add(further)
            value = _find(self.root, further)
        return None if value is _MISSING else value

    def replaced(self, value: object, within: frozenset[int]) -> object:
        path = _path(value)
        if path is not None:
            target = self.target(path)
            # What holds the reference itself would make a circle, which no reader of bodies expects.
            return None if id(target) in within else target
        if isinstance(value, list):
            inside = within | {id(value)}
            for index, item in enumerate(value):
                if isinstance(item, (list, dict)):
                    value[index] = self.replaced(item, inside)
        elif isinstance(value, dict):
            inside = within | {id(value)}
            for key, item in value.items():
                if isinstance(item, (list, dict)):
                    value[key] = self.replaced(item, inside)
            if any(_key_path(key) is not None for key in value):
                self.rename(value)
        return value

    def rename(self, table: dict[object, object]) -> None:
        items = list(table.items())
        asked = [path for key, _ in items if (path := _key_path(key)) is not None]
        table.clear()
        for key, item in items:
            path = _key_path(key)
            if path is not None:
                meant = self.meant(path, asked.count(path))
                nth = self.used.get(path, 0)
                self.used[path] = nth + 1
                if nth < len(meant):
                    key = meant[nth]
                elif meant:
                    key = meant[-1]
            table[key] = item

    def meant(self, path: str, asked: int) -> list[ObjectKey]:
        if path not in self.keys:
            table = _find(self.root, path.removesuffix(".null")) if path.endswith(".null") else None
            keys = [k for k in table if isinstance(k, ObjectKey)] if isinstance(table, dict) else []
            self.keys[path] = keys if len(keys) in (1, asked) else []
        return self.keys[path]


def resolve(root: object) -> object:
    """The document with every reference replaced by what it points at; None when that is nowhere."""
    if _path(root) is not None:
        return None
    return _Resolver(root).replaced(root, frozenset())
