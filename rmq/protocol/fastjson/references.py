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

from rmq.protocol.fastjson.keys import ObjectKey, Reference

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


def _key_meanings(root: object, references: list[ObjectKey]) -> dict[ObjectKey, list[ObjectKey]]:
    meanings: dict[ObjectKey, list[ObjectKey]] = {}
    for reference in set(references):
        path = str(reference.get("$ref"))
        table = _find(root, path.removesuffix(".null")) if path.endswith(".null") else None
        keys = [k for k in table if isinstance(k, ObjectKey) and k not in references] if isinstance(table, dict) else []
        if len(keys) == 1 or (keys and len(keys) == references.count(reference)):
            meanings[reference] = keys
    return meanings


def resolve(root: object, references: list[Reference], key_references: list[ObjectKey]) -> object:
    """The document with every reference replaced by what it points at (shared, not copied); None when it is nowhere."""
    targets: dict[int, object] = {}
    for reference in references:
        seen = {id(reference)}
        target = _find(root, reference.path)
        while isinstance(target, Reference) and id(target) not in seen:
            seen.add(id(target))
            target = _find(root, target.path)
        # A reference to something that holds the reference would make a circle, which no decoder of bodies expects.
        targets[id(reference)] = None if target is _MISSING or isinstance(target, Reference) else target
    meanings = _key_meanings(root, key_references)
    used: dict[ObjectKey, int] = {}
    return _replaced(root, targets, meanings, used, frozenset())


def _replaced(
    value: object,
    targets: dict[int, object],
    meanings: dict[ObjectKey, list[ObjectKey]],
    used: dict[ObjectKey, int],
    within: frozenset[int],
) -> object:
    if isinstance(value, Reference):
        target = targets[id(value)]
        return None if id(target) in within else target
    if isinstance(value, list):
        inside = within | {id(value)}
        for index, item in enumerate(value):
            if isinstance(item, (Reference, list, dict)):
                value[index] = _replaced(item, targets, meanings, used, inside)
    elif isinstance(value, dict):
        inside = within | {id(value)}
        items = list(value.items())
        value.clear()
        for key, item in items:
            if isinstance(key, ObjectKey) and key in meanings:
                keys = meanings[key]
                nth = used.get(key, 0)
                used[key] = nth + 1
                key = keys[min(nth, len(keys) - 1)]
            value[key] = _replaced(item, targets, meanings, used, inside)
    return value
