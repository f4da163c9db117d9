"""How far each delay level has been delivered (delayOffset.json)."""

from __future__ import annotations

from collections.abc import Mapping

from rmq.broker.delays import DelayLevels

__all__ = ["DelayLevels", "DelayOffsets"]


class DelayOffsets:
    """The next entry of each level's queue to look at; what delayOffset.json holds.

    A level that never ran is absent, as in Java.
    """

    __slots__ = ("aside", "changed", "table")

    def __init__(self) -> None:
        self.table: dict[int, int] = {}
        #: Entries before a level's offset that are still to be delivered: (level, index).
        self.aside: set[tuple[int, int]] = set()
        self.changed = False

    def get(self, level: int) -> int:
        return self.table.get(level, 0)

    def set(self, level: int, offset: int) -> None:
        if self.table.get(level) != offset:
            self.table[level] = offset
            self.changed = True

    def correct(self, level: int, minimum: int, maximum: int) -> int:
        """Bring a level's offset into what its queue holds, and return it.

        :param minimum: first readable index of the level's queue.
        :param maximum: one beyond its last index.
        """
        offset = self.get(level)
        fixed = min(max(offset, minimum), maximum)
        if level in self.table or fixed != 0:
            self.set(level, fixed)
        return fixed

    def load(self, table: Mapping[int, int]) -> None:
        self.table = {level: offset for level, offset in table.items() if level > 0}
        self.changed = False

    def render(self) -> bytes:
        """The file's text, as Java prints it (store-and-broker.md 1.4); what is set aside is a member it ignores."""
        text = render_offsets(self.table)
        if not self.aside:
            return text
        by_level: dict[int, list[int]] = {}
        for level, index in sorted(self.aside):
            by_level.setdefault(level, []).append(index)
        members = ",".join(f'"{level}":{indexes}' for level, indexes in by_level.items())
        return b'{\n\t"aside":{%s},' % members.encode() + text[1:]

    def encode(self) -> bytes:
        """The body of an answer to 45."""
        return b'{"offsetTable":{%s}}' % _pairs(self.table)


def _pairs(table: Mapping[int, int]) -> bytes:
    return ",".join(f"{level}:{table[level]}" for level in sorted(table)).encode()


def render_offsets(table: Mapping[int, int]) -> bytes:
    """Pretty text of a level table: unquoted keys on one line, the brace on its own line when there are any."""
    if not table:
        return b'{\n\t"offsetTable":{}\n}'
    return b'{\n\t"offsetTable":{%s\n\t}\n}' % _pairs(table)
