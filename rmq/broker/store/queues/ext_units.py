"""Units of ``consumequeue_ext``: what a queue entry cannot hold, and where it lies (store-and-broker.md 3.4).

======  ====  ===========================================
offset  type  field
======  ====  ===========================================
0       i2    bytes of the unit; -1: the file ends here
2       i8    tags code
10      i8    store time, ms
18      i2    bytes of the bit map
20      n     bit map: which filters want the message
======  ====  ===========================================

A queue's units follow each other over files of one size. The tags code of its entry is then the unit's position plus
the smallest i8, which no hash of a tag is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from rmq.broker.store.log.files import file_name, offset_of
from rmq.broker.store.queues.files import FileKey
from rmq.broker.store.queues.sizes import FileSizes
from rmq.broker.store.spoilt import make_way
from rmq.runtime.world import File, Files

__all__ = ["ExtDisk", "ExtUnit", "QueueExt", "is_address", "position_of", "unit_at"]

_head = Struct(">hqqh")
_short = Struct(">h").pack
_HEAD = 20
_LARGEST = 0x7FFF
#: Kept free at the end of a file for the mark that ends it.
_MARK = 4
_BASE = -(1 << 63)
#: Entries' tags codes below it are addresses.
_LOWEST_CODE = -(1 << 31)


class ExtUnit(NamedTuple):
    """What is kept of one message."""

    tags_code: int
    store_timestamp: int
    #: Bit i is byte i // 8, mask 1 << i % 8; empty when no filter was registered for the topic.
    bit_map: bytes


def is_address(code: int) -> bool:
    """Whether the tags code of an entry says where its unit is."""
    return code < _LOWEST_CODE


def position_of(code: int) -> int:
    """The position that such a tags code stands for."""
    return code - _BASE


def unit_at(data: bytes, at: int) -> tuple[ExtUnit, int] | None:
    """The unit at a place in some bytes, and its size; None when there is none or not all of it."""
    if len(data) - at < _HEAD:
        return None
    size, code, time, length = _head.unpack_from(data, at)
    if size < _HEAD or length != size - _HEAD or time <= 0 or len(data) - at < size:
        return None
    return ExtUnit(code, time, data[at + _HEAD : at + size]), size


class QueueExt:
    """The units of one queue: where the next one goes, and those that are not on disk yet."""

    __slots__ = ("directory", "end", "pieces", "starts")

    def __init__(self, directory: str) -> None:
        self.directory = directory
        #: First bytes of the files there are, ascending.
        self.starts: list[int] = []
        self.end = 0
        #: Bytes to be written, each with its position; neighbours are one piece.
        self.pieces: list[tuple[int, bytearray]] = []

    def put(self, unit: ExtUnit, file_size: int) -> int:
        """Add a unit; the tags code for its entry, which is the unit's own when no file can hold it."""
        size = _HEAD + len(unit.bit_map)
        if size > _LARGEST or size > file_size - _MARK:
            return unit.tags_code
        position = self.end
        left = file_size - position % file_size
        if size > left - _MARK:
            self._add(position, _short(-1))
            position += left
        self._add(position, _head.pack(size, unit.tags_code, unit.store_timestamp, len(unit.bit_map)) + unit.bit_map)
        self.end = position + size
        return position + _BASE

    def _add(self, position: int, data: bytes) -> None:
        if self.pieces:
            start, piece = self.pieces[-1]
            if start + len(piece) == position:
                piece += data
                return
        self.pieces.append((position, bytearray(data)))

    def waiting(self, position: int) -> tuple[ExtUnit, int] | None:
        """A unit that is not on disk yet."""
        for start, piece in reversed(self.pieces):
            if start <= position:
                return unit_at(bytes(piece[position - start : position - start + _LARGEST]), 0)
        return None

    def written(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """These are on disk now; what was added to them meanwhile is not."""
        for position, data in pieces:
            start, piece = self.pieces[0]
            assert start == position
            if len(piece) == len(data):
                self.pieces.pop(0)
            else:
                self.pieces[0] = (start + len(data), piece[len(data) :])

    def cut(self, position: int) -> None:
        """Take the units from a position on away."""
        self.end = min(self.end, position)
        kept = [(start, piece) for start, piece in self.pieces if start < position]
        if kept:
            start, piece = kept[-1]
            del piece[position - start :]
        self.pieces = kept


class ExtDisk:
    """The files of all queues. Every method may block.

    :param mends: a damaged file is put right where it is met.
    """

    def __init__(self, files: Files, root: str, file_size: int, *, mends: bool = False) -> None:
        self._files = files
        self._store = root
        self.root = os.path.join(root, "consumequeue_ext")
        self.file_size = file_size
        self.sizes = FileSizes(
            files, root, "consumequeue_ext", file_size, "mappedFileSizeConsumeQueueExt", step=1, mends=mends
        )

    def exists(self) -> bool:
        return self._files.is_dir(self.root)

    def starts(self, directory: str) -> list[int]:
        """First bytes of a queue's files.

        :raises StoreError: a file of another size than the one that is set, and the setting may be wrong.
        :raises OSError: one of them is bad.
        """
        found = []
        for name in self._files.list(directory):
            start = offset_of(name)
            path = f"{directory}/{name}"
            if start < 0:
                continue
            if self._files.is_dir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self.sizes.check(path, self._files.size(path))
            found.append(start)
        return self.sizes.named_right(directory, found)

    def free_names(self, directory: str) -> None:
        """Move directories that stand in place of a queue's files aside."""
        for name in self._files.list(directory):
            if offset_of(name) >= 0 and self._files.is_dir(path := f"{directory}/{name}"):
                make_way(self._files, self._store, path)

    def read(self, directory: str, starts: Sequence[int], position: int, size: int) -> bytes:
        """Bytes of the file that holds ``position``; none when there is no such file."""
        start = position - position % self.file_size
        if start not in starts:
            return b""
        file = self.open_file((directory, start))
        try:
            return file.pread(min(size, start + self.file_size - position), position - start)
        finally:
            file.close()

    def open_file(self, key: FileKey) -> File:
        return self._files.open(f"{key[0]}/{file_name(key[1])}", readonly=True)

    def write(self, directory: str, pieces: Sequence[tuple[int, bytes]]) -> list[int]:
        """Write units; the first bytes of the files that were written to."""
        touched: list[int] = []
        for position, data in pieces:
            at = 0
            while at < len(data):
                start = (position + at) - (position + at) % self.file_size
                size = min(len(data) - at, start + self.file_size - position - at)
                path = f"{directory}/{file_name(start)}"
                if not self._files.exists(path):
                    self._files.mkdir(directory)
                file = self._files.open(path, create=True)
                try:
                    file.allocate(self.file_size)
                    file.pwrite(data[at : at + size], position + at - start)
                finally:
                    file.close()
                touched.append(start)
                at += size
        return touched

    def cut(self, directory: str, starts: Sequence[int], position: int) -> list[int]:
        """Make everything from a position on zeros; the first bytes of the files that are left."""
        left = [start for start in starts if start < position]
        self.remove(directory, [start for start in starts if start >= position])
        if left and position < left[-1] + self.file_size:
            file = self._files.open(f"{directory}/{file_name(left[-1])}")
            try:
                file.truncate(position - left[-1])
                file.allocate(self.file_size)
            finally:
                file.close()
        return left

    def remove(self, directory: str, starts: Sequence[int]) -> None:
        for start in starts:
            self._files.unlink(f"{directory}/{file_name(start)}")
