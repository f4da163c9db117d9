"""The commit log as files: names, directories, creation and removal (store-and-broker.md 1.2 and 2.8)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from rmq.broker.store.again import write_again
from rmq.broker.store.log.unopened import UnopenedFile
from rmq.broker.store.open_files import SharedFile
from rmq.broker.store.refusal import BAD_PLACE, FORBIDDEN, NO_SPACE, told
from rmq.broker.store.settings import StoreSettings
from rmq.protocol.errors import StoreError
from rmq.runtime.offload import never_behind_others
from rmq.runtime.world import File, Files

__all__ = ["LogFile", "LogFiles", "SyncFailed", "file_name", "offset_of"]

log = logging.getLogger(__name__)

#: The last offset that a record has room for.
_LAST_NAME = f"{(1 << 63) - 1:020d}"


def file_name(offset: int) -> str:
    """The name of the file that begins at ``offset``: 20 digits."""
    return f"{offset:020d}"


def offset_of(name: str) -> int:
    """The offset a name stands for, or -1 when it is no such name."""
    return int(name) if len(name) == 20 and name.isascii() and name.isdigit() and name <= _LAST_NAME else -1


class SyncFailed(OSError):
    """A file or its name could not be forced to disk: it must not be tried again as if nothing had been."""


class LogFile:
    """One file of the commit log.

    ``entry_synced`` says that its directory entry survives a power cut; a flush of the file sees to it first.
    """

    __slots__ = ("entry_synced", "path", "shared", "start")

    def __init__(self, start: int, file: File, *, entry_synced: bool) -> None:
        self.start = start
        self.path = file.path
        self.shared = SharedFile(file)
        self.entry_synced = entry_synced

    @property
    def file(self) -> File:
        return self.shared.file


class LogFiles:
    """Opens, creates and removes files. Every method may block: all run off the loop, but :meth:`create` in a pinch."""

    def __init__(self, files: Files, settings: StoreSettings) -> None:
        self._files = files
        self._paths = sorted(set(settings.commit_log_paths))
        self._readable = sorted(set(settings.commit_log_paths) | set(settings.read_only_paths))
        self._read_only = frozenset(settings.read_only_paths)
        self.size = settings.commit_log_file_size
        #: A file that is too short is made as long as it should be; False for those who only read.
        self.extends = True
        #: Directories whose disk is nearly full: new files go to the others while there are any.
        self.full: frozenset[str] = frozenset()

    def find(self) -> tuple[dict[int, str], list[str]]:
        """Where each file is by the offset it begins at, and the paths of what lies beside them and is none.

        :raises StoreError: two files for one offset.
        """
        found: dict[int, str] = {}
        foreign: list[str] = []
        for directory in self._readable:
            for name in self._files.list(directory):
                start = offset_of(name)
                path = os.path.join(directory, name)
                if start < 0:
                    foreign.append(path)
                elif start in found:
                    raise StoreError(f"{found[start]} and {path} are the same part of the commit log: move one away")
                else:
                    found[start] = path
        return found, foreign

    def reach(self, end: int, noted: str) -> None:
        """Make sure that the last files are there.

        :param end: where the log ended at the last stop, -1 when that is not known.
        :param noted: the file that says so.
        :raises StoreError: the files end before it.
        """
        found, _ = self.find()
        last = max(found) + self.size if found else 0
        # A log that ends with a file is there without the next one, which is made when it is needed.
        if last < end:
            raise StoreError(
                f"the commit log in {', '.join(self._readable)} ends at {last}, and {noted} says that it ended at "
                f"{end} when the store was stopped: mount what is missing, or remove {noted} to go on without"
            )

    def open_all(self, forced: int = -1) -> list[LogFile]:
        """Every file there is, in order.

        :param forced: after an unclean stop, where what is known to have been forced to disk ends: of files behind it
            a power cut may have taken the names or the sizes of some and not of later ones. -1 = none may be missing.
        :raises StoreError: a directory that is not there, or a file that is missing in the middle or has a size no
            file of this store can have.
        """
        found, foreign = self.find()
        self._look_for_directories(new=not found)
        for path in foreign:
            log.warning("%s is no commit-log file; it is left alone", path)
        if self.extends and forced >= 0:
            self._fill_gaps(found, forced)
        starts = sorted(found)
        for at, start in enumerate(starts):
            path = found[start]
            if start % self.size or (at and start != starts[at - 1] + self.size):
                raise StoreError(
                    f"{path}: a commit-log file is missing before it, or mappedFileSizeCommitLog={self.size} is not "
                    f"what this store was made with"
                )
            size = self._size_of(path)
            if size != self.size:
                # A power cut before a file's size was on disk leaves it short. Behind it there can only be the file
                # that was made ahead; nothing else may be short.
                lost = self.extends and 0 <= forced <= start
                if size > self.size or (not lost and any(self._written(found[later]) for later in starts[at + 1 :])):
                    raise StoreError(
                        f"{path} has {size} bytes, a commit-log file has {self.size}: set mappedFileSizeCommitLog to "
                        f"what this store was made with"
                    )
                log.warning("%s has %d of %d bytes; it is extended", path, size, self.size)
        # The log goes on in its newest file, and in one that was made ahead, wherever they are.
        newest = next((start for start in reversed(starts) if self._written(found[start])), 0)
        opened: list[LogFile] = []
        try:
            for start in starts:
                path = found[start]
                kept = os.path.dirname(path) in self._read_only and start < newest
                file = self._open_any(path, kept=kept)
                # Whoever made it may have died before its name was on disk.
                opened.append(LogFile(start, file, entry_synced=kept))
                if not kept and self.extends and not isinstance(file, UnopenedFile):
                    file.allocate(self.size)
        except BaseException:
            for one in opened:
                one.shared.drop()
            raise
        return opened

    def _fill_gaps(self, found: dict[int, str], forced: int) -> None:
        """Put an empty file where a power cut took the name of one; who reads on tells of it as damage."""
        if any(start % self.size or self._size_of(path) > self.size for start, path in found.items()):
            return  # files of another size: that is said below
        for start in range(min(found, default=0), max(found, default=0), self.size):
            if start in found or start < forced:
                continue
            made = self.create(start)
            found[start] = made.path
            made.shared.drop()
            log.error(
                "%s is not there: it was not on disk yet when the power failed; what was in it is lost", made.path
            )

    def _size_of(self, path: str) -> int:
        """A file's bytes; where the disk does not say, it is as long as it should be."""
        try:
            return self._files.size(path)
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise
            return self.size

    def _open_any(self, path: str, *, kept: bool) -> File:
        """One that the disk does not open costs what is in it, as any place that cannot be read."""
        try:
            return self._open_kept(path) if kept else self._open_newest(path)
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise
            log.critical("%s; no message in it can be read", told(error, path))
            return UnopenedFile(self._files, path, self.size)

    def _open_kept(self, path: str) -> File:
        """Nothing is written to it, unless a recovery has to cut it."""
        try:
            return self._files.open(path)
        except OSError:
            return self._files.open(path, readonly=True)

    def _open_newest(self, path: str) -> File:
        try:
            return self._files.open(path)
        except OSError as error:
            if os.path.dirname(path) not in self._read_only or error.errno in BAD_PLACE:
                raise
            raise StoreError(
                f"{path}: the commit log goes on in this file, and it cannot be written ({error.strerror}): move it "
                f"to a directory of storePathCommitLog that can be"
            ) from error

    def _look_for_directories(self, *, new: bool) -> None:
        """A disk that is not mounted must not look like a log that ends sooner; a new store gets all of them."""
        for directory in self._readable:
            if self._files.is_dir(directory):
                continue
            if new and directory not in self._read_only:
                self._files.mkdir(directory)
                parent = os.path.dirname(directory)
                self._files.sync_dir(parent)
                self._files.sync_dir(os.path.dirname(parent))
                continue
            key = "storePathCommitLog" if directory in self._paths else "readOnlyCommitLogStorePaths"
            raise StoreError(
                f"{directory} is not there, and {key} names it: mount its disk, make it if it is new, or take it "
                f"out of {key}"
            )

    def _written(self, path: str) -> bool:
        """Whether a file begins with anything but zeros, or may: the disk does not say."""
        try:
            file = self._files.open(path, readonly=True)
            try:
                return any(file.pread(8, 0))
            finally:
                file.close()
        except OSError as error:
            if error.errno not in BAD_PLACE:
                raise
            return True

    def path_for(self, start: int) -> str:
        """Where the file that begins at ``start`` goes: the directories take turns, but those that are full."""
        allowed = [path for path in self._paths if path not in self._read_only] or self._paths
        writable = [path for path in allowed if path not in self.full] or allowed
        return os.path.join(writable[start // self.size % len(writable)], file_name(start))

    def create(self, start: int) -> LogFile:
        """A new sparse file of full size; its directory entry is not forced yet."""
        path = self.path_for(start)
        self._files.mkdir(os.path.dirname(path))
        file = self._files.open(path, create=True)
        try:
            file.allocate(self.size)
        except OSError:
            empty = not file.size()
            file.close()
            if empty:
                self._files.unlink(path)
            raise
        return LogFile(start, file, entry_synced=False)

    def prepare(self, start: int, entered: Callable[[], bool]) -> LogFile:
        """The same, with file and directory forced to disk: what the step never waits for.

        :param entered: whether the log goes on in this file already. Then there are messages in it, which are not to
            get to disk before those in front of them: the flush forces it in its turn.
        """
        made = self.create(start)
        try:
            if not entered():
                self.sync(made)
        except OSError as error:
            made.shared.drop()
            raise SyncFailed(error.errno, error.strerror, made.path) from error
        return made

    @never_behind_others
    def sync(self, file: LogFile) -> None:
        """Force a file's data to disk, and first its name when that has not been done."""
        if not file.entry_synced:
            directory = os.path.dirname(file.path)
            self._files.sync_dir(directory)
            self._files.sync_dir(os.path.dirname(directory))
            file.entry_synced = True
        file.file.datasync()

    def sync_again(self, file: LogFile, position: int, end: int) -> None:
        """The same, of bytes of which a flush may have failed (:func:`write_again`), from ``position`` to ``end``."""
        if os.path.dirname(file.path) not in self._read_only and not isinstance(file.file, UnopenedFile):
            try:
                write_again(file.file, position, end)
            except OSError as error:
                # The messages can be served all the same; a disk that takes nothing loses nothing more.
                if error.errno not in NO_SPACE and error.errno not in FORBIDDEN:
                    raise
                log.error("%s; messages of it may not outlive a power cut", told(error, file.path))
        self.sync(file)

    def remove(self, file: LogFile) -> None:
        """Take a file's name away, for good; its space is free when its last reader is done.

        A power cut would else bring back some of the files that went one after the other, and leave a gap between them.
        """
        self._files.unlink(file.path)
        self._files.sync_dir(os.path.dirname(file.path))

    def zero_from(self, file: LogFile, position: int) -> None:
        """Make everything from ``position`` on zeros, so that nothing stale is ever taken for a record."""
        file.file.truncate(position)
        file.file.allocate(self.size)
