"""Where records end, in what was written of another member's log: a span may end inside one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from struct import Struct

from rmq.broker.store.log.records import LARGEST
from rmq.protocol.record import BLANK_MAGIC
from rmq.raft.position import LogsParted

__all__ = ["RecordEnds"]

#: Size and magic.
_head = Struct(">ii").unpack_from


class RecordEnds:
    """The last end of a record of each span, from the newest that is committed on.

    :param read: bytes of the log, by offset and size, that were written just now.
    :param end: where the log ends, and a record.
    """

    def __init__(self, read: Callable[[int, int], bytes], file_size: int, end: int) -> None:
        self._read = read
        self._file_size = file_size
        self._ends = [end]

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
        :raises LogsParted: they are no records.
        """
        at, base = self._ends[-1], end - len(data)
        while at < base and at + 8 <= end:
            size = self._size(at, *_head(self._read(at, 8)))
            if at + size > end:
                break
            at += size
        if at >= base:
            at = base + self._walk(data, at - base, base)
        if at > self._ends[-1]:
            self._ends.append(at)

    def _walk(self, data: bytes | memoryview, at: int, base: int) -> int:
        """Behind the last whole record from a position on.

        :param base: commit-log offset of the first byte.
        """
        have = len(data)
        last = have - 8
        # Where a file ends, sizes are looked at closely.
        near = min(have, self._file_size - base % self._file_size - LARGEST)
        while at <= last:
            size, magic = _head(data, at)
            if at >= near or magic == BLANK_MAGIC or not 8 <= size <= LARGEST:
                self._size(base + at, size, magic)
            if at + size > have:
                break
            at += size
        return at

    def _size(self, at: int, size: int, magic: int) -> int:
        """The size of a record, if one can have it.

        :raises LogsParted: none can.
        """
        room = self._file_size - at % self._file_size
        if not 8 <= size <= (room if magic == BLANK_MAGIC or room < LARGEST else LARGEST):
            raise LogsParted(f"the leader's log has no record at {at}")
        return size

    def cut(self, to: int, known: int) -> None:
        """The log ends there now.

        :param known: where a record ends, at ``to`` or before.
        """
        del self._ends[bisect_right(self._ends, to) :]
        if not self._ends:
            self._ends.append(known)
        self.written(to)

    def begin(self, at: int) -> None:
        """The log begins anew."""
        self._ends = [at]

    def committed(self, to: int) -> None:
        """The log is never cut before ``to``."""
        known = bisect_right(self._ends, to) - 1
        if known > 0:
            del self._ends[:known]
