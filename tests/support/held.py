"""What a broker holds: the sizes of all containers that can be reached from it, and of the files it has made."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rmq.runtime.world import Files

__all__ = ["files_below", "held_by"]

_CONTAINERS = (dict, MappingProxyType, list, tuple, set, frozenset, deque)
_NOT_FOLLOWED = (str, bytes, bytearray, memoryview, int, float, bool, type(None), type, asyncio.AbstractEventLoop)


def held_by(root: object) -> Counter[str]:
    """How many items each container has, by the class and attribute that hold it; equal ones are added up."""
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [("", root)]
    while waiting:
        name, found = waiting.pop()
        if isinstance(found, _NOT_FOLLOWED) or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, _CONTAINERS):
            if not isinstance(found, tuple) and found:
                sizes[name] += len(found)
            items: Any = [*found.keys(), *found.values()] if isinstance(found, Mapping) else found
            waiting += [(f"{name}[]", item) for item in items]
        elif type(found).__module__.startswith("rmq.") and not type(found).__module__.startswith("rmq.testing."):
            owner = type(found).__name__
            sizes[f"({owner})"] += 1
            waiting += [(f"{owner}.{attribute}", value) for attribute, value in _attributes(found)]
    return sizes


def _attributes(owner: object) -> list[tuple[str, object]]:
    found = list(getattr(owner, "__dict__", {}).items())
    for base in type(owner).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{base.__name__.lstrip('_')}{slot}" if slot.startswith("__") and not slot.endswith("__") else slot
            if hasattr(owner, name):
                found.append((name, getattr(owner, name)))
    return found


def files_below(files: Files, root: str) -> dict[str, int]:
    """Bytes of each JSON file without its digits, and the numbers of files and folders in each part of a store."""
    counted: Counter[str] = Counter()
    folders = [root]
    while folders:
        folder = folders.pop()
        for name in files.list(folder):
            path = os.path.join(folder, name)
            part = path[len(root) + 1 :].partition("/")[0]
            if files.is_dir(path):
                counted[f"folders in {part}"] += 1
                folders.append(path)
            elif not name.endswith(".bak"):  # the second write of a file makes it
                counted[f"files in {part}"] += 1
                if name.endswith(".json"):
                    # Offsets and versions grow by digits.
                    counted[path] = len(files.read(path).translate(None, b"0123456789"))
    return dict(counted)
