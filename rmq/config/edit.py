"""Change keys in a .properties text and leave the rest as it is: comments, order, unknown keys (field case B117)."""

from __future__ import annotations

from collections.abc import Mapping

import javaproperties

__all__ = ["edit"]


def edit(content: str, changes: Mapping[str, str]) -> str:
    """The text with each key of ``changes`` set: where it stands already, else at the end.

    A key that stands more than once counts by its last place, as in Java: that one is changed.

    :param content: .properties text, as read from the file (ISO-8859-1).
    """
    parts = list(javaproperties.parse(content))
    last = {part.key: at for at, part in enumerate(parts) if isinstance(part, javaproperties.KeyValue)}
    lines = [part.source for part in parts]
    added = []
    for key, value in changes.items():
        line = javaproperties.join_key_value(key, value) + "\n"
        if key in last:
            lines[last[key]] = line
        else:
            added.append(line)
    if added and lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += "\n"
    return "".join(lines + added)
