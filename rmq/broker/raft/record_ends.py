"""Where records end, in what was written of another member's log: a span may end inside one.

A byte of the leader's log may have changed on its disk, in a size, say. That costs the message that lies there, and no
member its place in the group: records go on where the next one says that it lies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from struct import Struct

from rmq.broker.store.log.records import LARGEST
from rmq.protocol.record import BLANK_MAGIC, FIXED_SIZE, MAGIC_V1, MAGIC_V2, fields

__all__ = ["RecordEnds"]

#: Size and magic.
_head = Struct(">ii").unpack_from
#: They, and where a record says that it lies.
_place = fields("size", "magic", "physical_offset")
_PLACE_SIZE = 36
_MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
#: Bytes that are looked through in one go.
_PIECE = 1 << 20


class RecordEnds:
    """The last end of a record of each span, from the newest that is committed on.

    :param read: bytes of the log, by offset and size, that were written just now.
    :param end: where the log ends, and a record.
    """

    def __init__(self, read: Callable[[int, int], bytes], file_size: int, end: int) -> None:
        self._read = read
        self._file_size = file_size
        self._ends = [end]
        #: From where on the next record is looked for, behind bytes that are none; -1 while there are no such.
        self._looked = -1

    @property
    def last(self) -> int:
        """Behind the last whole record."""
        return self._ends[-1]

    def before(self, offset: int) -> int:
        """The last end that is known and not behind ``offset``; -1 when all are."""
        known = bisect_right(self._ends, offset)
        return self._ends[known - 1] if known else -1

    def whole(self, end: int) -> None:
        """Whole records were appended up to ``end``."""
        self._ends.append(end)

    def written(self, end: int, data: bytes | memoryview = b"") -> None:
        """Bytes were written up to ``end``.

        :param data: the last of them, which need not be read again.
        """
        base = end - len(data)
        at, spoilt = (self._ends[-1], False) if self._looked < 0 else (self._looked, True)
        while True:
            if spoilt:
                at, spoilt = self._found(at, base, data)
                if spoilt:
                    break
            at, spoilt = self._walked(at, base, data)
            if at > self._ends[-1]:
                self._ends.append(at)
            if not spoilt:
                break
            at += 1
        self._looked = at if spoilt else -1

    def _walked(self, at: int, base: int, data: bytes | memoryview) -> tuple[int, bool]:
        """Behind the last whole record from ``at`` on, and whether what follows is none.

        :param base: commit-log offset of the first byte of ``data``.
        """
        end = base + len(data)
        while at < base and at + 8 <= end:
            size, magic = _head(self._read(at, 8))
            if not self._can_be(at, size, magic):
                return at, True
            if at + size > end:
                return at, False
            at += size
        return self._walked_in(data, at - base, base) if at >= base else (at, False)

    def _walked_in(self, data: bytes | memoryview, at: int, base: int) -> tuple[int, bool]:
        """The same where all of it is at hand, from a position of it on."""
        have = len(data)
        last = have - 8
        # Where a file ends, sizes are looked at closely.
        near = min(have, self._file_size - base % self._file_size - LARGEST)
        while at <= last:
            size, magic = _head(data, at)
            if at >= near or magic != MAGIC_V1 or not 8 <= size <= LARGEST:  # noqa: SIM102 - one is rare
                if not self._can_be(base + at, size, magic):
                    return base + at, True
            if at + size > have:
                break
            at += size
        return base + at, False

    def _can_be(self, at: int, size: int, magic: int) -> bool:
        """Whether a record can begin like this."""
        room = self._file_size - at % self._file_size
        if magic == BLANK_MAGIC:
            return 8 <= size <= room
        return magic in (MAGIC_V1, MAGIC_V2) and 8 <= size <= min(room, LARGEST)

    def _found(self, at: int, base: int, data: bytes | memoryview) -> tuple[int, bool]:
        """Where the next record begins, or from where on it is to be looked for in what comes next."""
        end = base + len(data)
        while at + _PLACE_SIZE <= end:
            behind = min(end, at + _PIECE)
            piece = self._read(at, min(behind, base) - at) if at < base else b""
            piece += bytes(data[max(at, base) - base : behind - base])
            found = [place for magic in _MAGICS for place in _places(piece, magic)]
            for place in sorted(found):
                size, magic, lies = _place(piece, place)
                if lies == at + place and size >= FIXED_SIZE and self._can_be(lies, size, magic):
                    return lies, False
            at = behind - _PLACE_SIZE + 1  # the head of a record may be cut off there
        return at, True

    def cut(self, to: int, known: int) -> None:
        """The log ends there now.

        :param known: where a record ends, at ``to`` or before.
        """
        self._looked = -1
        del self._ends[bisect_right(self._ends, to) :]
        if not self._ends:
            self._ends.append(known)
        self.written(to)

    def begin(self, at: int) -> None:
        """The log begins anew."""
        self._looked = -1
        self._ends = [at]

    def committed(self, to: int) -> None:
        """The log is never cut before ``to``."""
        known = bisect_right(self._ends, to) - 1
        if known > 0:
            del self._ends[:known]


def _places(piece: bytes, magic: bytes) -> list[int]:
    """Where records with this magic may begin, whose heads are whole."""
    found: list[int] = []
    at = piece.find(magic, 4)
    while 0 <= at <= len(piece) - _PLACE_SIZE + 4:
        found.append(at - 4)
        at = piece.find(magic, at + 1)
    return found
