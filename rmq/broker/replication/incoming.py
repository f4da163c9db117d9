"""Compares what a master sends with what a commit log can hold, before any of it is stored.

The stream names offsets and has no checksums: a master whose log is another one, although it is as long, would be
followed without a word. Records say what they are and where they lie, and they say it here first.

What is no record is refused, and asked for again: a byte may have changed on the way. What comes a second time is so on
the master's disk. It is taken as it is, once a record follows that says where it lies: that costs the messages there,
and not all that come behind them.
"""

from __future__ import annotations

import logging

from rmq.broker.store.log.records import LARGEST, check
from rmq.protocol.errors import ReplicationError
from rmq.protocol.record import BLANK_MAGIC, FIXED_SIZE, MAGIC_V1, MAGIC_V2, fields, is_blank

__all__ = ["FilesDiffer", "IncomingRecords", "LogsDiffer"]

log = logging.getLogger(__name__)

#: Size, magic, and the offset at which a record says it lies.
_head = fields("size", "magic", "physical_offset")
_HEAD_SIZE = 36
_MAGICS = (MAGIC_V1, MAGIC_V2)
_MARKS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in _MAGICS)
#: Bytes that are no records, at most, behind which one is looked for.
_MOST_LOST = 8 << 20


class LogsDiffer(ReplicationError):
    """Master and slave do not have the same log: nothing more is taken from this master."""


class FilesDiffer(LogsDiffer):
    """The files of the two logs have not the same size.

    :param at: commit-log offset where one of the master's files ends, or goes on, as none does here.
    """

    def __init__(self, at: int, what: str, file_size: int) -> None:
        super().__init__(
            f"the master's file {what} {at}, and this slave's have mappedFileSizeCommitLog={file_size}: there it is "
            f"another number"
        )


class IncomingRecords:
    """Looks at each record that begins in what arrives, wherever that is cut.

    Bytes of a head that is not whole yet are kept back: nothing that could not be compared is stored.

    :param file_size: of this broker's commit-log files.
    :param crc: compare the checksum of each body, too; a record is then kept back until it is whole.
    """

    def __init__(self, file_size: int, *, crc: bool = False) -> None:
        self.file_size = file_size
        self._crc = crc
        self._held = bytearray()
        #: Bytes that it must have before it is looked at again.
        self._whole = 0
        #: Behind what may be stored: where what is kept back begins.
        self.at = -1
        #: Where the next record begins.
        self._next = 0
        #: What was refused last as no record: its offset, and its first bytes.
        self._refused = (-1, b"")
        #: It came again: from where on the next record is looked for; -1 while there is no such.
        self._sought = -1

    @property
    def end(self) -> int:
        """Offset behind everything that has arrived."""
        return self.at + len(self._held)

    def begin(self, at: int, *, at_record: bool) -> None:
        """A connection: what comes next is for offset ``at``.

        :param at_record: a record begins there; what is known of the record that arrived last is kept otherwise.
        """
        self._held.clear()
        self._sought = -1
        if at == self.at:
            return
        self.at = at
        into = at % self.file_size
        self._next = at if at_record or not into else at - into + self.file_size

    def take(self, data: bytes) -> bytes:
        """What may be stored of all that has arrived; the rest waits for what makes it whole.

        :param data: bytes for offset :attr:`end`.
        :raises LogsDiffer: they are not what comes next in this log.
        """
        held = self._held
        if held:
            held += data
            if len(held) < self._whole:
                return b""
            data = bytes(held)
        at = self.at
        end = at + len(data)
        start = self._next
        while start < end:
            lo, room = start - at, self.file_size - start % self.file_size
            have = end - start
            if have < (head := min(_HEAD_SIZE, room)):
                self._whole = head
                break
            size, magic, offset = _head(data, lo) if room >= _HEAD_SIZE else (0, 0, -1)
            good = magic in _MAGICS and offset == start and FIXED_SIZE <= size <= room
            if good and self._crc:
                if have < size <= LARGEST:
                    self._whole = size
                    break
                good = check(data, lo, start, room) == size
            if not good:
                if is_blank(data, lo, room):
                    start += room
                    continue
                if magic == BLANK_MAGIC and size > 0:
                    raise FilesDiffer(start + size, "ends at", self.file_size)
                if magic in _MAGICS and offset == start and room < size <= LARGEST:
                    raise FilesDiffer(start + room, "does not end at", self.file_size)
                behind = self._behind_lost(data, start)
                if behind < 0:
                    self._whole = have + 1
                    break
                log.warning(
                    "the master's log is damaged from %d to %d, and is taken as it is: the messages there are lost "
                    "here, too; have its disk checked", start, behind,
                )  # fmt: skip
                start = behind
                continue
            start += size
        self._next = start
        stored = min(end, start)
        if stored < end:
            held[:] = data[stored - at :]
            data = data[: stored - at]
        else:
            held.clear()
        self.at = stored
        return data

    def _behind_lost(self, data: bytes, start: int) -> int:
        """Where the next record begins behind what is none; -1 while it is not there.

        :param start: offset of what is none.
        :raises LogsDiffer: it has not come before, or no record follows near enough.
        """
        at = self.at
        said = start, data[start - at : start - at + _HEAD_SIZE]
        if said != self._refused or len(data) - (start - at) > _MOST_LOST:
            self._refused = said
            raise LogsDiffer(
                f"what the master sends for offset {start} is no record of this log: the two logs are not the same, "
                f"or bytes were changed on the way"
            )
        first = max(start + 1, self._sought)
        last = at + len(data) - _HEAD_SIZE
        places = [place for mark in _MARKS for place in _places(data, mark, first - at + 4)]
        for place in sorted(places):
            offset = at + place
            if offset > last:
                break
            size, _, physical = _head(data, place)
            if physical == offset and FIXED_SIZE <= size <= min(LARGEST, self.file_size - offset % self.file_size):
                self._sought = -1
                return offset
        self._sought = max(first, last + 1)
        return -1


def _places(data: bytes, mark: bytes, at: int) -> list[int]:
    """Where records may begin whose mark lies at ``at`` or behind."""
    found: list[int] = []
    while (at := data.find(mark, at)) >= 0:
        found.append(at - 4)
        at += 1
    return found
