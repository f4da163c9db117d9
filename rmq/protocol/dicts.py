"""What calls return as dicts, of which ``json.dumps`` makes a text but for bodies, which are bytes."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

__all__ = ["dict_of"]


def dict_of(result: Any) -> dict[str, Any]:
    """The attributes of a dataclass by name, and of what is in it: enumerations as their names, errors as their texts,
    and queues that are keys as Java's text of them."""
    return {one.name: _of(getattr(result, one.name)) for one in fields(result)}


def _of(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if isinstance(value, dict):
        return {str(key) if hasattr(key, "as_dict") else key: _of(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_of(each) for each in value]
    return str(value) if isinstance(value, Exception) else value
