"""The ``checkpoint`` file: how far log, queues and index are on disk, in store times (store-and-broker.md 1.3).

=======  ====  =======================================================
offset   type  field
=======  ====  =======================================================
0        i8    store time of the newest record forced to disk
8        i8    no queue entry of a record up to this time is missing
16       i8    index files with an end time up to this are whole
2048     28 B  ours, for a clean stop; Java never looks there
2112     52 B  ours: how far the log is on disk, and in which boot
2176     16 B  ours: where the log begins
2304     i4 x3, i8 each, ours: magic, count, checksum; offsets at
         which store times go back
3072     i4 x3, i8, i8 x5 each, ours: magic, count, checksum;
         of the newest files of the log first byte, device,
         inode, size, time of change (ns)
=======  ====  =======================================================

Java's recovery of our directory believes the three times, so they never pass the oldest thing that is not on disk yet.
Our own recovery uses them only to look at more than it would otherwise.

The note of what is on disk is believed by a start in the same boot of the machine, and by no other: what a flush forced
to disk before it was written cannot have been lost by a process that died. A power cut is another boot, after which
even a disk that said it had forced something is not believed. Nor is it where a file is not the one, unchanged, that
the list at the end has: whatever a process did to it, or a disk that came back with something else, is seen there.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from struct import Struct, pack_into, unpack_from
from struct import error as StructError

from rmq.broker.store.log.stamps import MOST_STEPS, Steps
from rmq.broker.store.refusal import SPOILT, told
from rmq.broker.store.spoilt import make_way
from rmq.protocol.crc import crc32
from rmq.runtime.world import FileIdentity, Files

__all__ = ["SIZE", "Checkpoint"]

log = logging.getLogger(__name__)

SIZE = 4096
_times = Struct(">qqq")
_NOTE_AT = 2048
_NOTE_MAGIC = b"RMQN"
_note = Struct(">4sqiqi")
_FORCED_AT = 2112
_FORCED_MAGIC = b"RMQF"
#: Magic, boot id, commit-log offset, checksum of these and the times.
_forced = Struct(">4s36sqi")
_START_AT = 2176
_START_MAGIC = b"RMQB"
_start = Struct(">4sqi")
_FILES_AT = 3072
_FILES_MAGIC = b"RMQI"
_files_head = Struct(">4sii")
_file = Struct(">qQQqq")
#: Files that are listed: more than a start ever checks while they are large.
_MOST_FILES = 24
_STEPS_AT = 2304
_STEPS_MAGIC = b"RMQT"
_steps = Struct(">4sii")


class Checkpoint:
    """The values, and their file.

    :param path: ``{root}/checkpoint``.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self.physic = 0
        self.logics = 0
        self.index = 0
        #: Where the log begins, or will when retention is done with what it is at; -1 = not known.
        self.log_start = -1
        #: Where store times go back. Whoever else wrote to the store meanwhile, they are hints that harm nothing.
        self.steps = Steps()
        self._indexed: tuple[int, int, int] | None = None
        self._forced: tuple[bytes, int] | None = None
        #: First byte -> path of the newest files of the log, for the note, and what was noted of each.
        self._listed: dict[int, str] = {}
        self._known: dict[int, FileIdentity] = {}
        #: The file is bad: it is to be made anew.
        self._spoilt = False

    def load(self) -> None:
        """Read the file; one that is missing, bad or too short reads as zeros, as does a time before 1970. Blocks.

        :raises OSError: it may not be read, or not now.
        """
        data = bytes(SIZE)
        try:
            data = self._files.read(self.path)[:SIZE].ljust(SIZE, b"\0")
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in SPOILT:
                raise
            self._spoilt = True
            log.error("%s; more of the commit log is checked, as if it were missing", told(error, self.path))
        self.physic, self.logics, self.index = (max(0, value) for value in _times.unpack_from(data))
        # Whoever wrote to the store since, Java included, has moved the times: the notes are not about that any more.
        magic, name, count, offset, check = _note.unpack_from(data, _NOTE_AT)
        if magic == _NOTE_MAGIC and check == _check(name, count, offset, self.physic, self.logics):
            self._indexed = (name, count, offset)
        magic, boot, offset, check = _forced.unpack_from(data, _FORCED_AT)
        if magic == _FORCED_MAGIC and check == _check(crc32(boot), offset, self.physic, self.logics):
            self._forced = (boot, offset)
            self._load_files(data, offset)
        magic, start, check = _start.unpack_from(data, _START_AT)
        if magic == _START_MAGIC and check == _check(start, self.physic, self.logics):
            self.log_start = start
        magic, count, check = _steps.unpack_from(data, _STEPS_AT)
        if magic == _STEPS_MAGIC and 0 <= count <= MOST_STEPS:
            offsets = unpack_from(f">{count}q", data, _STEPS_AT + _steps.size)
            if check == _check(*offsets):
                self.steps.offsets = list(offsets)

    def _load_files(self, data: bytes, offset: int) -> None:
        magic, count, check = _files_head.unpack_from(data, _FILES_AT)
        at = _FILES_AT + _files_head.size
        listed = data[at : at + max(0, count) * _file.size]
        if magic == _FILES_MAGIC and 0 <= count <= _MOST_FILES and check == _check(crc32(listed), offset):
            self._known = {start: FileIdentity(*rest) for start, *rest in _file.iter_unpack(listed)}

    def went_back(self, offset: int, stamp: int) -> None:
        """The record at ``offset`` is older than the one before it: no time may claim that it is on disk.

        :param stamp: its store time, ms.
        """
        self.steps.add(offset)
        self.physic, self.logics, self.index = (min(time, stamp - 1) for time in (self.physic, self.logics, self.index))

    def log_ends(self, stamp: int) -> None:
        """The log was cut back to where its newest record has this store time, ms: no time may pass that."""
        self.physic, self.logics, self.index = (min(time, stamp) for time in (self.physic, self.logics, self.index))

    @property
    def oldest(self) -> int:
        """What Java starts an abnormal recovery from: 3 s before the older of the first two times."""
        return max(0, min(self.physic, self.logics) - 3000)

    def indexed_to(self, name: int, count: int) -> int | None:
        """Offset up to which the index was complete when it stood at entry ``count`` of file ``name`` (0 = no file)."""
        if self._indexed is None or self._indexed[:2] != (name, count):
            return None
        return self._indexed[2]

    @property
    def clean_end(self) -> int:
        """Where the log ended at the last clean stop of ours, or -1."""
        return -1 if self._indexed is None else self._indexed[2]

    @property
    def has_index(self) -> bool:
        """The last clean stop of ours noted where an index ended."""
        return self._indexed is not None and self._indexed[0] > 0

    def note_indexed(self, name: int, count: int, offset: int) -> None:
        """A clean stop: the log ends at ``offset``, and so does the index.

        :param name: the newest index file, 0 = none, -1 = there is no index.
        """
        self._indexed = (name, count, offset)

    def forget_indexed(self) -> None:
        """The store runs; the note of the last stop holds no longer."""
        self._indexed = None

    def forced_in(self, boot: str) -> int:
        """Offset before which the log was forced to disk in this boot of the machine, or -1.

        :param boot: boot id, "" when it is not known.
        """
        return self._forced[1] if boot and self._forced is not None and self._forced[0] == _boot_field(boot) else -1

    def unchanged(self, start: int, path: str, last_write_ns: int = -1) -> bool:
        """Whether a file of the log is what it was when the note was written. Blocks.

        :param start: its first byte.
        :param last_write_ns: messages were written to it since, the last one at that time; -1 = none was.
        """
        known = self._known.get(start)
        found = None if known is None else self._files.identity(path)
        if known is None or found is None or found[:3] != known[:3]:
            return False
        return found.mtime_ns == known.mtime_ns or found.mtime_ns <= last_write_ns

    @property
    def forced_once(self) -> int:
        """Offset before which the log was forced to disk, in this boot or an earlier one; -1 = not known."""
        return -1 if self._forced is None else self._forced[1]

    def note_forced(self, boot: str, offset: int, files: Mapping[int, str]) -> None:
        """The log is on disk up to ``offset``, names of its files included.

        :param files: paths of the log's files by first byte, ascending.
        """
        self._forced = (_boot_field(boot), offset) if boot else None
        self._listed = dict(list(files.items())[-_MOST_FILES:])

    def forget_forced(self) -> None:
        """The disk cannot be trusted: the next start checks everything that may have been lost."""
        self._forced = None

    def _list_files(self) -> bytes:
        listed = b""
        for start, path in self._listed.items():
            with contextlib.suppress(OSError, StructError):  # retention has taken it; a time beyond all dates
                found = self._files.identity(path)
                if found is not None:
                    listed += _file.pack(start, *found)
        return listed

    def save(self, *, force: bool = True) -> None:
        """Write the file and force it to disk. Blocks.

        :param force: False for the note of :meth:`note_forced` alone, which is of no use once the page cache is gone.
        """
        data = bytearray(SIZE)
        _times.pack_into(data, 0, self.physic, self.logics, self.index)
        if self._indexed is not None:
            name, count, offset = self._indexed
            check = _check(name, count, offset, self.physic, self.logics)
            _note.pack_into(data, _NOTE_AT, _NOTE_MAGIC, name, count, offset, check)
        if self._forced is not None:
            boot, offset = self._forced
            check = _check(crc32(boot), offset, self.physic, self.logics)
            _forced.pack_into(data, _FORCED_AT, _FORCED_MAGIC, boot, offset, check)
            listed = self._list_files()
            check = _check(crc32(listed), offset)
            _files_head.pack_into(data, _FILES_AT, _FILES_MAGIC, len(listed) // _file.size, check)
            data[_FILES_AT + _files_head.size : _FILES_AT + _files_head.size + len(listed)] = listed
        if self.log_start >= 0:
            check = _check(self.log_start, self.physic, self.logics)
            _start.pack_into(data, _START_AT, _START_MAGIC, self.log_start, check)
        if offsets := self.steps.offsets:
            _steps.pack_into(data, _STEPS_AT, _STEPS_MAGIC, len(offsets), _check(*offsets))
            pack_into(f">{len(offsets)}q", data, _STEPS_AT + _steps.size, *offsets)
        if self._spoilt:
            make_way(self._files, os.path.dirname(self.path), self.path)
            self._spoilt = False
        new = not self._files.exists(self.path)
        file = self._files.open(self.path, create=True)
        try:
            file.allocate(SIZE)
            file.pwrite(data, 0)
            if force:
                file.datasync()
        finally:
            file.close()
        if new and force:
            self._files.sync_dir(self.path.rpartition("/")[0])


def _boot_field(boot: str) -> bytes:
    return boot.encode()[:36].ljust(36, b"\0")


def _check(*values: int) -> int:
    return crc32(b" ".join(b"%d" % value for value in values)) & 0x7FFFFFFF
