"""How far each delay level has been delivered (delayOffset.json)."""

from __future__ import annotations

from collections.abc import Mapping

from rmq.broker.delays import DelayLevels
from rmq.protocol import fastjson
from rmq.protocol.numbers import INT_MAX, LONG_MAX, is_whole, whole

__all__ = ["DelayLevels", "DelayOffsets"]


class DelayOffsets:
    """The next entry of each level's queue to look at; what delayOffset.json holds.

    A level that never ran is absent, as in Java.
    """

    __slots__ = ("aside", "changed", "table")

    def __init__(self) -> None:
        self.table: dict[int, int] = {}
        #: Entries before a level's offset that are still to be delivered: (level, index). One object for good.
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

    def merge(self, other: DelayOffsets) -> int:
        """Take over what another broker of the same log knows of levels where it is further on, or as far.

        :returns: of how many levels the offset moved.
        """
        moved = 0
        for level, offset in other.table.items():
            if offset < self.get(level):
                continue
            if offset > self.get(level):
                moved += 1
                self.set(level, offset)
                self.aside -= {one for one in self.aside if one[0] == level}
            self.aside |= {one for one in other.aside if one[0] == level}
        return moved

    def parse(self, data: bytes) -> None:
        """Have what the file, or an answer to 45, holds.

        :raises ValueError: it is no such file.
        :raises ProtocolError: it is no JSON.
        """
        content = fastjson.loads(data)
        if not isinstance(content, dict) or not isinstance(table := content.get("offsetTable"), dict):
            raise ValueError("no offsetTable in it")
        if any(isinstance(offset, dict) for offset in table.values()):
            raise ValueError("it holds the offsets of consumer groups")
        offsets = {whole(str(level), INT_MAX): whole(str(offset), least=-LONG_MAX) for level, offset in table.items()}
        # A level whose offset is none goes on from where it was: from 0 on, all of it would be delivered again.
        known = self.table
        found = {
            level: known.get(level, at) if at is None or at < 0 else at
            for level, at in offsets.items()
            if level is not None
        }
        self.load({level: at for level, at in found.items() if at is not None})
        self.aside.clear()
        aside = content.get("aside")
        for level, indexes in aside.items() if isinstance(aside, dict) else ():
            number = whole(str(level), INT_MAX)
            if number is not None and isinstance(indexes, list):
                self.aside |= {(number, index) for index in indexes if is_whole(index)}

    def render(self) -> bytes:
        """The file's text, as Java prints it (store-and-broker.md 1.4); what is set aside is a member it ignores."""
        text = render_offsets(self.table)
        return b"{\n\t%b" % self._aside_member() + text[1:] if self.aside else text

    def encode(self) -> bytes:
        """The body of an answer to 45; Java ignores what is set aside here, too."""
        return b'{%s"offsetTable":{%s}}' % (self._aside_member(), _pairs(self.table))

    def _aside_member(self) -> bytes:
        if not self.aside:
            return b""
        by_level: dict[int, list[int]] = {}
        for level, index in sorted(self.aside):
            by_level.setdefault(level, []).append(index)
        members = ",".join(f'"{level}":{indexes}' for level, indexes in by_level.items())
        return b'"aside":{%s},' % members.encode()


def _pairs(table: Mapping[int, int]) -> bytes:
    return ",".join(f"{level}:{table[level]}" for level in sorted(table)).encode()


def render_offsets(table: Mapping[int, int]) -> bytes:
    """Pretty text of a level table: unquoted keys on one line, the brace on its own line when there are any."""
    if not table:
        return b'{\n\t"offsetTable":{}\n}'
    return b'{\n\t"offsetTable":{%s\n\t}\n}' % _pairs(table)
