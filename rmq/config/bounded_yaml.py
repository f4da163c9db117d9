"""What a YAML text may become is bounded before anything is built of it.

A few hundred bytes of anchors and aliases (``a: &a [x, x]``, ``b: &b [*a, *a]``, ...) are billions of values once they
are put in, and a thousand brackets are a recursion a thousand deep. The parser's events are neither.
"""

from __future__ import annotations

from typing import Any

import yaml

from rmq.protocol.errors import ConfigError

__all__ = ["bound_yaml"]

_MOST_DEPTH = 64
#: Values with aliases put in; a long text counts for more than one.
_MOST_VALUES = 100_000
_CHARACTERS = 100
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def bound_yaml(path: str, text: str | bytes) -> None:
    """:raises ConfigError: too much, or too deep; names the line. :raises yaml.YAMLError: it is no YAML."""
    total = 0
    open_: list[tuple[str | None, int]] = []
    anchored: dict[str, int] = {}
    for event in yaml.parse(text, Loader=_Loader):
        anchor: str | None = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            total += anchored.get(anchor or "", 0)
        elif isinstance(event, yaml.ScalarEvent):
            weight = 1 + len(event.value) // _CHARACTERS
            total += weight
            if anchor:
                anchored[anchor] = weight
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            named, before = open_.pop()
            if named:
                anchored[named] = total - before
        mark: Any = event.start_mark
        where = f"{path} line {mark.line + 1}"
        if len(open_) > _MOST_DEPTH:
            raise ConfigError(f"{where}: lists and mappings {len(open_)} deep: at most {_MOST_DEPTH} are read")
        if total > _MOST_VALUES:
            raise ConfigError(f"{where}: more than {_MOST_VALUES:,} values, with aliases put in")
