"""Consume queues on disk: 20-byte entries in files of one size (store-and-broker.md 3.1).

Entry: commit-log offset i8, record size i4, tags code i8. Entry ``k`` of a queue lies at byte ``20 * k`` of its files
put end to end; a file's name is its first byte. Entries with offset 0 and size 0x7FFFFFFF fill what has no message.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

from rmq.broker.store.again import write_again
from rmq.broker.store.log.files import file_name, offset_of
from rmq.broker.store.queues.sizes import FileSizes
from rmq.broker.store.refusal import SPOILT, told
from rmq.broker.store.spoilt import bury, make_way
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Queue
from rmq.protocol.errors import StoreError
from rmq.runtime.world import File, Files

__all__ = ["BLANK_ENTRY", "BLANK_ENTRY_SIZE", "FileKey", "QueueDisk", "QueueFiles", "Target", "is_blank"]

log = logging.getLogger(__name__)

BLANK_ENTRY_SIZE = 0x7FFFFFFF
BLANK_ENTRY = ENTRY.pack(0, BLANK_ENTRY_SIZE, 0)

#: Topics looked at to see what size the files have, and how many files tell.
_SAMPLE = 20
_ENOUGH = 3
#: Stands in names below ``trash`` between a number and a topic.
_TOPIC_MARK = "="

#: (directory, first byte): what an open file is known by.
FileKey = tuple[str, int]


def is_blank(offset: int, size: int) -> bool:
    """Whether an entry stands for no message."""
    return offset == 0 and size == BLANK_ENTRY_SIZE


class QueueFiles:
    """Which files a queue has; kept at ``Queue.files``."""

    __slots__ = ("directory", "dropped", "starts")

    def __init__(self, directory: str) -> None:
        self.directory = directory
        #: First bytes of the files there are, ascending.
        self.starts: list[int] = []
        #: The queue was deleted; nothing is written for it any more.
        self.dropped = False


class Target(NamedTuple):
    """The file a queue's next entries go to."""

    key: FileKey
    #: Bytes from its beginning to the first of the entries.
    position: int
    #: It does not exist yet.
    new: bool

    @classmethod
    def of(cls, queue: Queue, file_size: int) -> Target:
        at = queue.tail_from * ENTRY_SIZE
        start = at - at % file_size
        files: QueueFiles = queue.files
        return cls((files.directory, start), at - start, not files.starts or files.starts[-1] < start)


class QueueDisk:
    """The blocking half: all of it runs off the loop.

    :param mends: a damaged file is put right where it is met.
    """

    def __init__(self, files: Files, root: str, file_size: int, *, mends: bool = False) -> None:
        self._files = files
        self._store = root
        self.root = os.path.join(root, "consumequeue")
        self.file_size = file_size
        self.sizes = FileSizes(
            files, root, "consumequeue", file_size, "mappedFileSizeConsumeQueue", step=ENTRY_SIZE, mends=mends,
            remedy=", or make its queues anew with mqadmin store rebuild",
        )  # fmt: skip
        #: Files that are bad and were told of.
        self._told: set[str] = set()

    def directory(self, topic: str, queue_id: int) -> str:
        """Where a queue's files are.

        :raises StoreError: a topic that names no directory below the store (CVE-2019-17572).
        """
        if not topic or topic in (".", "..") or "/" in topic or "\0" in topic:
            raise StoreError(f"{topic!r} cannot be the name of a topic")
        return f"{self.root}/{topic}/{queue_id}"

    def open_targets(self, targets: Sequence[Target]) -> list[File | OSError]:
        """Open or make the files; one that cannot be opened gives its error."""
        opened: list[File | OSError] = []
        for target in targets:
            try:
                opened.append(self._open_target(target))
            except OSError as error:
                opened.append(error)
        return opened

    def _open_target(self, target: Target) -> File:
        directory, start = target.key
        path = f"{directory}/{file_name(start)}"
        if target.new:
            self._files.mkdir(directory)
        file = self._files.open(path, create=target.new)
        try:
            # A process that died while it cut the file left it short; Java opens files of full size only.
            file.allocate(self.file_size)
            if target.new and target.position:
                # Entries that an earlier life of this queue had: nobody reads them.
                file.pwrite(BLANK_ENTRY * (target.position // ENTRY_SIZE), 0)
        except OSError:
            file.close()
            raise
        return file

    def open_file(self, key: FileKey) -> File:
        return self._files.open(f"{key[0]}/{file_name(key[1])}")

    def read_each(self, ranges: Sequence[tuple[FileKey, int, int]]) -> list[bytes]:
        """Bytes of many files: key, position and size of each. A file that is gone has none."""
        found = []
        for key, position, size in ranges:
            try:
                file = self.open_file(key)
            except FileNotFoundError:
                found.append(b"")
                continue
            try:
                found.append(file.pread(size, position))
            finally:
                file.close()
        return found

    def _read(self, file: File, *, heads: bool) -> bytes:
        parts: list[bytes] = []
        at = 0
        block = 204 * ENTRY_SIZE
        while at < self.file_size:
            want = min(block, self.file_size - at)
            data = file.pread(want, at)
            parts.append(data)
            at += len(data)
            if heads or len(data) < want or not any(data[-ENTRY_SIZE:]):
                break
            block = min(block * 16, 1 << 20) // ENTRY_SIZE * ENTRY_SIZE
        return b"".join(parts)

    def sync(self, items: Sequence[tuple[FileKey, File | None]]) -> dict[FileKey, OSError]:
        """Force files to disk; those that are not open any more are opened for it. One that is gone is fine.

        :returns: those that could not be forced, and why.
        """
        failed: dict[FileKey, OSError] = {}
        for key, file in items:
            try:
                self._sync(key, file)
            except FileNotFoundError:
                continue
            except OSError as error:
                failed[key] = error
        return failed

    def _sync(self, key: FileKey, file: File | None) -> None:
        if file is not None:
            file.datasync()
            return
        file = self.open_file(key)
        try:
            file.datasync()
        finally:
            file.close()

    def write_again(self, keys: Sequence[FileKey]) -> dict[FileKey, OSError]:
        """Write what files hold over itself (:func:`~rmq.broker.store.again.write_again`). One that is gone is fine.

        :returns: those that could not be written, and why.
        """
        failed: dict[FileKey, OSError] = {}
        for key in keys:
            try:
                self._write_again(key)
            except FileNotFoundError:
                continue
            except OSError as error:
                failed[key] = error
        return failed

    def _write_again(self, key: FileKey) -> None:
        file = self.open_file(key)
        try:
            write_again(file, 0, file.size())
        finally:
            file.close()

    def sync_all(self) -> None:
        """Force every queue to disk, names included, whatever else is written in the same file system."""
        if self._files.is_dir(self.root):
            self._files.sync_tree(self.root)

    def sync_directories(self, directories: Sequence[str]) -> dict[str, OSError]:
        """Force names to disk; the directories where that failed, and why."""
        failed: dict[str, OSError] = {}
        for directory in directories:
            try:
                if self._files.is_dir(directory):
                    self._files.sync_dir(directory)
            except OSError as error:
                failed[directory] = error
        return failed

    def remove_files(self, keys: Sequence[FileKey]) -> bool:
        """Take files away; False when the disk does not let one go (:func:`make_way`)."""
        stuck = [key for key in keys if not make_way(self._files, self._store, f"{key[0]}/{file_name(key[1])}")]
        return not stuck

    def cut(self, key: FileKey, position: int) -> None:
        """Make everything behind ``position`` of a file zeros."""
        file = self.open_file(key)
        try:
            file.truncate(position)
            file.allocate(self.file_size)
        finally:
            file.close()

    def bury(self, directory: str, *, topic: bool = False) -> str | None:
        """Move a directory out of the way at once; :meth:`remove_tree` of what is returned does the slow part.

        :param topic: it holds the queues of one topic (:meth:`buried_topic`).
        """
        if not self._files.is_dir(directory):
            return None
        return bury(self._files, self._store, directory, _TOPIC_MARK if topic else "-")

    @staticmethod
    def buried_topic(grave: str) -> str | None:
        """The topic whose queues were moved there, or None for anything else."""
        serial, mark, topic = os.path.basename(grave).partition(_TOPIC_MARK)
        return topic if mark and serial.isdecimal() else None

    def buried_files(self, grave: str) -> list[FileKey]:
        """The queue files of a topic that was moved out of the way."""
        found: list[FileKey] = []
        for name in self._files.list(grave):
            directory = f"{grave}/{name}"
            if self._files.is_dir(directory):
                starts = sorted(filter(lambda start: start >= 0, map(offset_of, self._files.list(directory))))
                found += [(directory, start) for start in starts]
        return found

    def trash(self) -> list[str]:
        """What an earlier process moved out of the way and did not finish removing."""
        trash = os.path.join(self._store, "trash")
        return [os.path.join(trash, name) for name in self._files.list(trash)]

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all in it; of symbolic links the links only."""
        if self._files.is_link(path):
            self._files.unlink(path)
            return
        for name in self._files.list(path):
            inner = os.path.join(path, name)
            if self._files.is_dir(inner):
                self.remove_tree(inner)
            else:
                self._files.unlink(inner)
        self._files.rmdir(path)

    def topics(self, unlisted: list[str] | None = None) -> list[str]:
        """Topics that have a directory.

        :param unlisted: gets a directory that is bad itself; without it, that is raised.
        :raises OSError: a directory that may not be read.
        """
        names = self._list(self.root, unlisted)
        return [name for name in names if self._files.is_dir(os.path.join(self.root, name))]

    def _list(self, path: str, unlisted: list[str] | None) -> list[str]:
        try:
            return self._files.list(path)
        except OSError as error:
            if unlisted is None or error.errno not in SPOILT:
                raise
            if path not in self._told:
                log.error("%s; its queues are made of the commit log again", told(error, path))
            self._told.add(path)
            unlisted.append(path)
            return []

    def other_size(self) -> tuple[str, int] | None:
        """A file and its bytes, when the store's files are all of one size that is not the one set.

        One short file alone is what a process left that died while it cut it.
        """
        seen: dict[int, str] = {}
        looked_at = 0
        bad: list[str] = []  # whoever reads them tells
        for topic in self.topics(bad)[:_SAMPLE]:
            for _, queue, starts, _ in self.list_queues([topic], bad):
                for start in starts[:1]:
                    path = f"{self.root}/{topic}/{queue}/{file_name(start)}"
                    try:
                        if self._files.is_dir(path):
                            continue
                        seen.setdefault(self._files.size(path), path)
                    except OSError as error:
                        if error.errno not in SPOILT:
                            raise
                        continue  # whoever reads it tells
                    looked_at += 1
        if looked_at < _ENOUGH or len(seen) != 1:
            return None
        ((size, path),) = seen.items()
        return (path, size) if size and size != self.file_size and not size % ENTRY_SIZE else None

    def list_queues(
        self, topics: Sequence[str], unlisted: list[str] | None = None
    ) -> list[tuple[str, int, list[int], list[str]]]:
        """(topic, queue id, first bytes of its files, names that are none) of every queue of some topics.

        :param unlisted: gets directories that are bad themselves; without it, that is raised.
        :raises OSError: a directory that may not be read.
        :raises StoreError: of a disk that mends, files that begin where none of their size does.
        """
        found: list[tuple[str, int, list[int], list[str]]] = []
        for topic in topics:
            for name in self._list(f"{self.root}/{topic}", unlisted):
                if not (name.isascii() and name.isdigit() and name == str(int(name)) and int(name) < 1 << 31):
                    log.warning("%s/%s/%s is no consume queue; it is left alone", self.root, topic, name)
                    continue
                starts: list[int] = []
                foreign: list[str] = []
                bad = len(unlisted or ())
                for file in self._list(f"{self.root}/{topic}/{name}", unlisted):
                    start = offset_of(file)
                    if start < 0:
                        foreign.append(file)
                    else:
                        starts.append(start)
                if len(unlisted or ()) == bad:
                    if self.sizes.mends:
                        starts = self.sizes.named_right(f"{self.root}/{topic}/{name}", starts)
                    found.append((topic, int(name), sorted(starts), foreign))
        return found

    def read_files(self, keys: Sequence[FileKey], *, heads: bool = False) -> list[bytes]:
        """What each file holds, up to the first block that ends in zeros; nothing of one that is bad itself.

        The first block is small: of 40,000 queues most have a few entries, and their files are mostly holes.

        :param heads: the first block is all that is wanted.
        """
        found: list[bytes] = []
        for key in keys:
            path = f"{key[0]}/{file_name(key[1])}"
            try:
                found.append(self._read_file(path, heads=heads))
            except OSError as error:
                if error.errno not in SPOILT:
                    raise
                # Its entries are made of the commit log again, in a new file: in this one they could not be written.
                if path not in self._told:
                    log.error("%s; its queue is made of the commit log from there on", told(error, path))
                self._told.add(path)
                found.append(b"")
        return found

    def _read_file(self, path: str, *, heads: bool) -> bytes:
        file = self._files.open(path, readonly=True)
        try:
            if (size := file.size()) != self.file_size and not self._files.is_dir(path):
                self.sizes.check(path, size)
            return self._read(file, heads=heads)
        finally:
            file.close()
