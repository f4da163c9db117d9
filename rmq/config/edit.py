"""Change keys in a .properties text and leave the rest as it is: comments, order, unknown keys (field case B117)."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping

import javaproperties

from rmq.config.sources import LARGEST
from rmq.runtime.world import Files

__all__ = ["edit", "edit_file"]

_MARK = BOM_UTF8.decode("iso-8859-1")


def edit(content: str, changes: Mapping[str, str]) -> str:
    """The text with each key of ``changes`` set: where it stands already, else at the end.

    A key that stands more than once counts by its last place, as in Java: that one is changed.

    :param content: .properties text, as read from the file (ISO-8859-1).
    """
    mark = _MARK if content.startswith(_MARK) else ""
    parts = list(javaproperties.parse(content.removeprefix(mark)))
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
    return mark + "".join(lines + added)


def edit_file(files: Files, path: str, changes: Mapping[str, str]) -> None:
    """Set keys in a .properties file, which is made when it is not there. Blocks.

    What it was before stands in ``path + '.bak'``, unless it was emptied by a fault: that takes no good backup's place.

    :raises OSError: it cannot be read or written.
    :raises ValueError: it is no .properties file.
    """
    before = files.read(path, LARGEST) if files.exists(path) else b""
    if not before and (folder := path.rpartition("/")[0]):
        files.mkdir(folder)
    after = edit(before.decode("iso-8859-1"), changes).encode("iso-8859-1")
    files.write_atomic(path, after, backup=bool(before.strip(b"\0 \t\r\n")))
