"""The log of a Java DLedger member as it lies on the disk: entries of a 48-byte head and one message record each.

====  =====  ==========================================================
at    width  head of an entry (store-and-broker.md 12.2), big-endian
====  =====  ==========================================================
0     4      magic 1; 2 = an entry of the group's own, without a record
4     4      size of the entry, head included
8     8      index, one more than that of the entry before it
16    8      term, never less than that of the entry before it
24    8      position of the entry in the data files
32    4 x 3  channel, and two checksums that are never written
44    4      size of the record
====  =====  ==========================================================

A file ends with magic -1 and the bytes that are left, or at its last byte. An entry says where it lies, so what follows
a damaged one is found again without DLedger's own index. The record says where it lies, too: 48 bytes further on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from rmq.broker.store.log.files import offset_of
from rmq.broker.store.log.records import LARGEST, check
from rmq.broker.store.refusal import BAD_PLACE
from rmq.protocol.errors import StoreError
from rmq.protocol.record import FIXED_SIZE
from rmq.runtime.world import File, Files

__all__ = ["HEAD", "EntryFiles", "EntryReader", "Lost", "Part"]

#: Bytes of an entry before its record.
HEAD = 48
_head = Struct(">iiqqqiiii").unpack_from
_blank = Struct(">ii").unpack_from
_ENTRY, _OWN, _END = 1, 2, -1
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (_ENTRY, _OWN))
_CHUNK = 4 << 20


class Part(NamedTuple):
    """Good entries that follow each other, and the bytes that they lie in."""

    data: bytes
    #: Of each entry: where its record begins in ``data``, the record's size (0 = it has none), its index, and the
    #: commit-log offset at which it lies, which is the record's own.
    entries: list[tuple[int, int, int, int]]


class Lost(NamedTuple):
    """Entries that are not there."""

    #: Indexes of the first, and behind the last.
    first: int
    end: int
    #: Position in the data files where they ought to begin.
    position: int
    path: str
    why: str


class EntryFiles:
    """The data files of one member, opened one at a time and for reading only. Every method may block.

    :param folder: where they are.
    :raises StoreError: there are none, or of several sizes.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self.folder = folder
        found = {offset_of(name): os.path.join(folder, name) for name in files.list(folder)}
        found.pop(-1, None)
        if not found:
            raise StoreError(f"{folder} has no file of a DLedger log")
        sizes = Counter(map(files.size, found.values()))
        self.file_size = max(sizes, key=lambda size: (sizes[size], size))
        if self.file_size < 4096 or any(start % self.file_size for start in found):
            raise StoreError(f"{folder} has no DLedger log: its files' names do not fit {self.file_size} bytes a file")
        self.starts = sorted(found)
        self._paths = found
        self._open: tuple[int, File] | None = None

    @property
    def start(self) -> int:
        return self.starts[0]

    @property
    def end(self) -> int:
        return self.starts[-1] + self.file_size

    def path_of(self, position: int) -> str:
        """The file that has a position, or that would."""
        start = position - position % self.file_size
        return self._paths.get(start) or os.path.join(self.folder, f"{start:020}")

    def has(self, position: int) -> bool:
        return position - position % self.file_size in self._paths

    def read(self, position: int, size: int) -> bytes:
        """As many of these bytes as there are, which lie in one file: none where the disk does not give them."""
        start = position - position % self.file_size
        try:
            file = self._file(start)
            return b"" if file is None else file.pread_aside(size, position - start)
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise
            return b""

    def written_from(self, position: int) -> int:
        """The first position from this one on, in its file, that was ever written; the end of the file for none."""
        start = position - position % self.file_size
        file = self._file(start)
        return start + (self.file_size if file is None else min(self.file_size, file.data_from(position - start)))

    def _file(self, start: int) -> File | None:
        if self._open is not None and self._open[0] == start:
            return self._open[1]
        self.close()
        path = self._paths.get(start)
        if path is None:
            return None
        file = self._files.open(path, readonly=True)
        self._open = (start, file)
        return file

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened[1].close()


class EntryReader:
    """Reads the entries of a member in order; what it lacks it takes from other members that have it.

    :param members: the one that is read, then others of its group: an entry lies at the same position in all of them.
    :param start: position of the file to begin with; the first one by default.
    :param stop: position of the file to stop before.
    """

    def __init__(self, members: Sequence[EntryFiles], start: int | None = None, stop: int | None = None) -> None:
        self._own, *self._others = members
        self.position = self._own.start if start is None else start
        self._stop = self._own.end if stop is None else stop
        #: What the next entry says of itself; -1 = it is the first.
        self.index = self.term = -1
        #: Behind the last good entry.
        self.end = self.position
        self.lost: list[Lost] = []
        #: How many entries came from other members.
        self.from_others = 0
        #: Where it stopped making sense, and why, until a good entry is found behind that.
        self._gap: tuple[int, str] | None = None

    def next(self) -> Part | None:
        """The next good entries, some MiB of them; None at the end of the log. Blocks.

        :raises OSError: a file that cannot be read, for another reason than that its place on the disk is bad.
        """
        size = self._own.file_size
        while self.position < self._stop:
            room = size - self.position % size
            if part := self._read(self._own, room, _CHUNK):
                return part
            if self._is_blank(room):
                self.position += room
                continue
            for other in self._others:
                if part := self._read(other, room, 0):
                    self.from_others += 1
                    return part
            self._skip(room)
        return None

    @property
    def torn(self) -> tuple[int, str] | None:
        """Of a log that is read to its end: where there is something behind the last entry, and what it is."""
        return None if self._gap is None or not self._gap[1] else self._gap

    # -- one place -------------------------------------------------------------------------------------------------

    def _read(self, source: EntryFiles, room: int, size: int) -> Part | None:
        """Good entries from this position on: as many as ``size`` bytes have, and one at least if it is good."""
        data = source.read(self.position, min(room, max(size, HEAD)))
        need = self._entry_size(data, 0, self.position, room)
        if not need:
            return None
        if need > len(data):
            data = source.read(self.position, need)
        entries: list[tuple[int, int, int, int]] = []
        at, base, left = 0, self.position, room
        while (need := self._entry_size(data, at, base + at, left)) and at + need <= len(data):
            if need > HEAD and check(data, at + HEAD, base + at + HEAD, left - HEAD) != need - HEAD:
                break
            _, _, index, term, *_ = _head(data, at)
            self._found(index, base + at)
            entries.append((at + HEAD, need - HEAD, index, base + at + HEAD))
            self.index, self.term = index + 1, term
            at += need
            left -= need
        self.position += at
        if not entries:
            return None
        self.end = self.position
        return Part(data, entries)

    def _entry_size(self, data: bytes, at: int, position: int, room: int) -> int:
        """Bytes of the entry whose head lies here, 0 where there is none that can follow."""
        if len(data) - at < HEAD or room < HEAD:
            return 0
        magic, size, index, term, own, _, _, _, body = _head(data, at)
        if own != position or size != HEAD + body or size > room or body > LARGEST or term < max(self.term, 0):
            return 0
        if not (magic == _ENTRY and body >= FIXED_SIZE) and not (magic == _OWN and body == 0):
            return 0
        if index != self.index and self.index >= 0:
            # Behind a gap there cannot be more missing than it had room for.
            missing = index - self.index
            if self._gap is None or not 0 <= missing <= (position - self._gap[0]) // HEAD:
                return 0
        return int(size) if index >= 0 else 0

    def _found(self, index: int, position: int) -> None:
        """A good entry: what was missing before it is known now."""
        if self._gap is not None:
            start, why = self._gap
            self._gap = None
            # What came before the first entry of a log that begins late is not known.
            first = self.index if self.index >= 0 else index if self._own.start else 0
            if first < index or self.index < 0:
                self.lost.append(Lost(first, index, start, self._own.path_of(start), why or "there are zeros"))

    def _is_blank(self, room: int) -> bool:
        """Whether the file is marked to end here."""
        if room < 8:
            return True
        for member in (self._own, *self._others):
            data = member.read(self.position, 8)
            if len(data) == 8 and _blank(data) == (_END, room):
                return True
        return False

    def _skip(self, room: int) -> None:
        """Go on at the next good entry of the file, or at the file behind it."""
        start, end = self.position, self.position + room
        if self._gap is None:
            self._gap = (start, self._why(start, room))
        scanned = start + 4
        while scanned < end:
            scanned = max(scanned, min(end, self._own.written_from(scanned)))
            data = self._own.read(scanned, min(_CHUNK, end - scanned))
            if len(data) < HEAD:
                break
            if self._gap[1] == "" and any(data):
                self._gap = (self._gap[0], "no entry, and something else than zeros")
            for position in _candidates(data, scanned):
                if self._is_good(position, end - position):
                    self.position = position
                    return
            scanned += max(1, len(data) - HEAD + 1) if scanned + len(data) < end else len(data)
        self.position = end

    def _is_good(self, position: int, room: int) -> bool:
        data = self._own.read(position, HEAD)
        need = self._entry_size(data, 0, position, room)
        if not need:
            return False
        data = self._own.read(position, need)
        return len(data) == need and (need == HEAD or check(data, HEAD, position + HEAD, room - HEAD) == need - HEAD)

    def _why(self, position: int, room: int) -> str:
        """What is wrong here; nothing, where all is zeros: the log may just end."""
        if not self._own.has(position):
            return "the file is missing"
        data = self._own.read(position, min(room, 8 * HEAD))
        if len(data) < min(room, HEAD):
            return "the disk does not give it, or the file is too short"
        if not any(data):
            return ""
        if self._entry_size(data, 0, position, room):
            return "its message record is damaged"
        return "the head of the entry is damaged"


def _candidates(data: bytes, base: int) -> list[int]:
    """Positions, ascending, at which something says that it is an entry, and of that position.

    :param base: position of the first byte.
    """
    found: list[int] = []
    for magic in _MAGICS:
        at = data.find(magic)
        while 0 <= at <= len(data) - HEAD:
            if _head(data, at)[4] == base + at:
                found.append(base + at)
            at = data.find(magic, at + 1)
    return sorted(found)
