"""The kinds of values a job file may hold: each says in words what is allowed, and reads it or refuses.

The JSON Schema of a kind is for editors, which complete and mark while a file is written: it never refuses what
:meth:`Kind.read` takes, and leaves rules that it cannot say to ``rmq pipeline check``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from rmq.spark.options.values import duration
from rmq.spark.pipeline.document import Listing, Node, Problem, Scalar, Table

__all__ = [
    "Choice",
    "Duration",
    "Flag",
    "Kind",
    "Many",
    "Mapped",
    "Moment",
    "Size",
    "Text",
    "Whole",
    "nearest",
    "pattern_fault",
]

T = TypeVar("T")

_SHOWN = 60
_SIZES = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_SIZE = re.compile(r"(\d{1,15})\s*([KMG]?B?)", re.IGNORECASE)
#: Spark's own words for durations are taken as well.
_LONG_UNITS = re.compile(r"(\d)\s*(milliseconds?|seconds?|minutes?|hours?|days?)$")
#: Durations and values of the environment in a schema, whose regular expressions are JavaScript's.
_DURATIONS = r"^\s*\d+(\.\d+)?\s*(ms|[smhd]|milliseconds?|seconds?|minutes?|hours?|days?)\s*$"
_FROM_ENVIRONMENT = {"type": "string", "pattern": r"\$\{\w+\}"}
_SHORT = {"milliseconds": "ms", "seconds": "s", "minutes": "m", "hours": "h", "days": "d"}


def nearest(word: str, known: Sequence[str]) -> str:
    """``: did you mean X?`` when one is near, else nothing."""
    lowered = {one.lower(): one for one in known}
    near = difflib.get_close_matches(word.lower(), lowered, 1, 0.6)
    return f": did you mean {lowered[near[0]]}?" if near else ""


class Kind(Generic[T]):
    """Base of the kinds.

    :param words: what is allowed, for messages: ``a whole number from 1 to 9``.
    """

    def __init__(self, words: str) -> None:
        self.words = words

    def read(self, node: Node, key: str, problems: list[Problem]) -> T | None:
        """The value; None after a problem was noted.

        :param key: the path of the key, such as ``source.topics``.
        """
        if not isinstance(node, Scalar) or node.text is None:
            problems.append(Problem(node.line, f"{key}: {self.words} is expected"))
            return None
        try:
            return self.value(node.text)
        except ValueError as error:
            shown = node.text if len(node.text) <= _SHOWN else node.text[: _SHOWN - 3] + "..."
            problems.append(Problem(node.line, f"{key}: {shown!r}: {str(error) or self.words + ' is expected'}"))
            return None

    def value(self, text: str) -> T:
        """:raises ValueError: not of this kind; with a text when there is more to say than :attr:`words`."""
        raise ValueError

    def schema(self) -> dict[str, Any]:
        """JSON Schema (draft 2020-12) of the values."""
        return {"anyOf": [self.plain(), _FROM_ENVIRONMENT]}

    def plain(self) -> dict[str, Any]:
        """JSON Schema of a value that is not taken from the environment."""
        return {"type": ["string", "number", "boolean"]}


class Text(Kind[str]):
    """
    :param fault: says what is wrong with a text, or None.
    """

    def __init__(self, words: str = "a text", fault: Callable[[str], str | None] | None = None) -> None:
        super().__init__(words)
        self._fault = fault

    def value(self, text: str) -> str:
        if not text.strip():
            raise ValueError
        if self._fault and (wrong := self._fault(text)):
            raise ValueError(wrong)
        return text


def pattern_fault(address: str) -> str | None:
    """What is wrong with the address of a folder whose files Spark is to read, or None: it takes some for patterns."""
    found = next((each for each in address if each in "*?[]{}\\"), None)
    return found and f"{found!r} makes it a pattern for Spark, which would read other files: give a path without it"


class Whole(Kind[int]):
    def __init__(self, least: int, most: int) -> None:
        super().__init__(f"a whole number from {least} to {most}")
        self._range = range(least, most + 1)

    def value(self, text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text) or int(text) not in self._range:
            raise ValueError
        return int(text)

    def plain(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self._range[0], "maximum": self._range[-1]}


class Flag(Kind[bool]):
    def __init__(self) -> None:
        super().__init__("true or false")

    def value(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"

    def plain(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Choice(Kind[str]):
    def __init__(self, *names: str) -> None:
        super().__init__("one of " + ", ".join(names))
        self.names = names

    def value(self, text: str) -> str:
        if text not in self.names:
            near = nearest(text, self.names)
            raise ValueError(f"{self.words} is expected{near}" if near else "")
        return text

    def plain(self) -> dict[str, Any]:
        return {"enum": list(self.names)}


class Duration(Kind[float]):
    """Seconds, out of ``500ms``, ``10s``, ``5m``, ``1h``, ``7d`` or ``10 minutes``.

    :param least: seconds.
    """

    def __init__(self, least: float = 0.0) -> None:
        super().__init__("a duration (a number with ms, s, m, h or d, such as 10s)")
        self._least = least

    def value(self, text: str) -> float:
        try:
            seconds = duration(_LONG_UNITS.sub(lambda found: found[1] + _SHORT[found[2].rstrip("s") + "s"], text))
        except ValueError as error:
            raise ValueError(f"{error} is expected" if str(error).startswith("at most") else "") from None
        if seconds < self._least:
            raise ValueError(f"at least {self._least:g} s is expected")
        return seconds

    def plain(self) -> dict[str, Any]:
        return {"type": "string", "pattern": _DURATIONS}


class Size(Kind[int]):
    """Bytes, out of ``128MB``."""

    def __init__(self, least: int = 1) -> None:
        super().__init__("a size (a number with KB, MB or GB, such as 128MB)")
        self._least = least

    def value(self, text: str) -> int:
        found = _SIZE.fullmatch(text.strip())
        unit = found[2].upper() if found else "?"
        size = int(found[1]) * _SIZES[unit if unit in _SIZES else unit + "B"] if found else 0
        if size < self._least:
            raise ValueError
        return size

    def plain(self) -> dict[str, Any]:
        return {"type": ["string", "integer"], "pattern": r"^\s*\d{1,15}\s*[kKmMgG]?[bB]?\s*$"}


class Moment(Kind[datetime]):
    """A time in UTC, out of ISO 8601 (UTC when it names no zone) or milliseconds since 1970.

    :param now: when given, a duration is taken as well: so long before now.
    """

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        ago = ", or a duration before now such as 7d" if now else ""
        super().__init__(f"a time such as 2026-03-01T12:00:00Z{ago}")
        self._now = now

    def value(self, text: str) -> datetime:
        if re.fullmatch(r"\d{11,15}", text):
            try:
                return datetime.fromtimestamp(int(text) / 1000, UTC)
            except (ValueError, OverflowError):
                raise ValueError from None
        if self._now is not None:
            try:
                return self._now() - timedelta(seconds=Duration().value(text))
            except ValueError:
                pass
        try:
            found = datetime.fromisoformat(text)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):  # no time, or none of the years 1 to 9999 once it is in UTC
            raise ValueError from None


class Many(Kind[tuple[T, ...]]):
    """A list, or one value in place of a list of one."""

    def __init__(self, item: Kind[T]) -> None:
        super().__init__(f"a list, each {item.words},")
        self._item = item

    def read(self, node: Node, key: str, problems: list[Problem]) -> tuple[T, ...] | None:
        if isinstance(node, Table) or (isinstance(node, Listing) and not node.items):
            problems.append(Problem(node.line, f"{key}: {self.words} is expected"))
            return None
        items = node.items if isinstance(node, Listing) else (node,)
        found = [self._item.read(item, key, problems) for item in items]
        return tuple(one for one in found if one is not None)

    def schema(self) -> dict[str, Any]:
        item = self._item.schema()
        return {"anyOf": [{"type": "array", "items": item, "minItems": 1}, item]}


class Mapped(Kind[dict[str, T]]):
    """A mapping whose keys are free.

    :param name: says what is wrong with a key, or None.
    """

    def __init__(self, item: Kind[T], name: Callable[[str], str | None] | None = None) -> None:
        super().__init__(f"a mapping of names to values, each {item.words},")
        self._item = item
        self._name = name

    def read(self, node: Node, key: str, problems: list[Problem]) -> dict[str, T] | None:
        if not isinstance(node, Table) or not node.entries:
            problems.append(Problem(node.line, f"{key}: {self.words} is expected"))
            return None
        found: dict[str, Any] = {}
        for entry in node.entries:
            wrong = self._name(entry.key) if self._name else None
            if wrong:
                problems.append(Problem(entry.line, f"{key}.{entry.key}: {wrong}"))
            found[entry.key] = self._item.read(entry.value, f"{key}.{entry.key}", problems)
        return {name: value for name, value in found.items() if value is not None}

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self._item.schema(), "minProperties": 1}
