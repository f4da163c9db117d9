"""Where records end, in what was written of another member's log: a span may end inside one.

A byte of the leader's log may have changed on its disk, in a size, say. That costs the message that lies there, and no
member its place in the group: records go on where the next one says that it lies.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct

from rmq.broker.store.log.records import LARGEST
from rmq.protocol.record import BLANK_MAGIC, FIXED_SIZE, MAGIC_V1, MAGIC_V2, fields

__all__ = ["RecordEnds"]

#: Size and magic.
_HEAD = 8
_head = Struct(">ii").unpack_from
#: They, and where a record says that it lies.
_place = fields("size", "magic", "physical_offset")
_PLACE_SIZE = 36
_MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
#: Bytes that are looked through in one go.
_PIECE = 1 << 20


class RecordEnds:
    """The last end of a record of each span, from the newest that is committed on.

    Every byte is given to it once, and none is read again: a record may be larger than what memory keeps of the log.

    :param file_size: of the log, bytes.
    :param end: where the log ends, and a record.
    """

    def __init__(self, file_size: int, end: int) -> None:
        self._file_size = file_size
        self._ends = [end]
        #: Where the next record begins, behind one that has begun; and as much as has come of it that says too little.
        self._next = end
        self._rest = b""
        #: There are bytes that are no record, and the next one is looked for from there on.
        self._spoilt = False

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
        self._goes_on(end)

    def _goes_on(self, at: int) -> None:
        """A record begins there."""
        self._next, self._rest, self._spoilt = at, b"", False

    def written(self, end: int, data: bytes | memoryview) -> None:
        """The log goes on up to ``end``.

        :param data: every byte of that.
        """
        if self._next > end:
            return
        if self._rest:
            data = self._rest + bytes(data)
        base, at, spoilt = end - len(data), self._next, self._spoilt
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
        if not spoilt and at + _HEAD <= end:  # it has begun, and its size is known
            self._goes_on(at + _head(data, at - base)[0])
        else:
            self._next, self._rest, self._spoilt = at, bytes(data[at - base :]) if at < end else b"", spoilt

    def _walked(self, at: int, base: int, data: bytes | memoryview) -> tuple[int, bool]:
        """Behind the last whole record from ``at`` on, and whether what follows is none.

        :param base: commit-log offset of the first byte of ``data``.
        """
        at -= base
        have = len(data)
        last = have - _HEAD
        # Where a file ends, sizes are looked at closely.
        near = min(have, self._file_size - base % self._file_size - LARGEST)
        while at <= last:
            size, magic = _head(data, at)
            if at >= near or magic != MAGIC_V1 or not _HEAD <= size <= LARGEST:  # noqa: SIM102 - one is rare
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
            return _HEAD <= size <= room
        return magic in (MAGIC_V1, MAGIC_V2) and _HEAD <= size <= min(room, LARGEST)

    def _found(self, at: int, base: int, data: bytes | memoryview) -> tuple[int, bool]:
        """Where the next record begins, or from where on it is to be looked for in what comes next."""
        end = base + len(data)
        while at + _PLACE_SIZE <= end:
            behind = min(end, at + _PIECE)
            piece = bytes(data[at - base : behind - base])
            found = [place for magic in _MAGICS for place in _places(piece, magic)]
            for place in sorted(found):
                size, magic, lies = _place(piece, place)
                if lies == at + place and size >= FIXED_SIZE and self._can_be(lies, size, magic):
                    return lies, False
            at = behind - _PLACE_SIZE + 1  # the head of a record may be cut off there
        return at, True

    def cut(self, to: int) -> None:
        """The log is cut to where a record ends; it may go on behind that."""
        del self._ends[bisect_right(self._ends, to) :]
        if not self._ends or self._ends[-1] < to:
            self._ends.append(to)
        self._goes_on(to)

    def begin(self, at: int) -> None:
        """The log begins anew."""
        self._ends = [at]
        self._goes_on(at)

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
