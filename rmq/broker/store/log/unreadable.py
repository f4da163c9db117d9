"""Places of the commit log that the disk does not give now: found to the page, and not tried again meanwhile.

That a place cannot be read says nothing of what is there: a later try may give it. So it is no damage, which is told of
bytes that were read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable

from rmq.broker.store.log.files import LogFile
from rmq.broker.store.refusal import BAD_PLACE

__all__ = ["UnreadablePlaces"]

#: The kernel reads so many bytes or none.
_PAGE = 4096

Read = Callable[[LogFile, int, int], Awaitable[bytes]]


class UnreadablePlaces:
    """What was met so far by one who reads on.

    :param file_size: bytes of a commit-log file; a place is within one.
    """

    def __init__(self, file_size: int) -> None:
        self._file_size = file_size
        #: (first offset, offset behind the last), ascending.
        self.ranges: list[tuple[int, int]] = []

    def end_at(self, offset: int) -> int:
        """Where the place ends that ``offset`` is in, or ``offset`` when it is in none."""
        at = bisect_right(self.ranges, offset, key=_start) - 1
        return max(offset, self.ranges[at][1]) if at >= 0 else offset

    def touch(self, start: int, end: int) -> bool:
        """Whether a byte from one offset to another is in a place."""
        at = bisect_right(self.ranges, start, key=_end)
        return at < len(self.ranges) and self.ranges[at][0] < end

    async def read_up_to(self, read: Read, file: LogFile, offset: int, size: int) -> bytes:
        """Bytes from ``offset`` on, up to the first place that cannot be read.

        A read that fails is tried again in smaller ones, down to a page. Behind a place that was left out already, as
        much as that is left out with the page: a bad region may be large, and each try may take seconds.

        :raises OSError: for another reason than the place.
        """
        if self.end_at(offset) > offset:
            return b""
        at = bisect_right(self.ranges, offset, key=_start)
        end = min(offset + size, self.ranges[at][0]) if at < len(self.ranges) else offset + size
        parts: list[bytes] = []
        step = size
        while offset < end:
            in_page = _PAGE - (offset - file.start) % _PAGE
            want = min(end - offset, in_page if step <= _PAGE else step)
            try:
                data = await read(file, offset, want)
            except OSError as error:
                if error.errno not in BAD_PLACE:
                    raise
                if want <= in_page:
                    self._note(file, offset, offset + in_page)
                    break
                step = max(_PAGE, want // 2)
                continue
            parts.append(data)
            offset += len(data)
            if len(data) < want:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _note(self, file: LogFile, start: int, end: int) -> None:
        at = bisect_right(self.ranges, start, key=_start)
        if at and self.ranges[at - 1][1] == start and start > file.start:
            start = self.ranges.pop(at - 1)[0]
            end += end - start
            at -= 1
        end = min(end, file.start + self._file_size)
        if at < len(self.ranges):
            end = min(end, self.ranges[at][0])
        self.ranges.insert(at, (start, end))


def _start(place: tuple[int, int]) -> int:
    return place[0]


def _end(place: tuple[int, int]) -> int:
    return place[1]
