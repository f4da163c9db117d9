"""A disk in memory that can lose what was not forced, tear writes, fail and fill up.

A file keeps, page by page, what its readers see and what would survive a power cut; a directory keeps its entries the
same way. The model is the pessimistic reading of POSIX: ``datasync`` forces one file's bytes and size, ``sync_dir`` one
directory's entries, nothing else forces anything.

========== =============================================== =======================
fault       what a real machine does                        how a test asks for it
========== =============================================== =======================
kill -9     the process ends, the page cache stays          ``files.freeze()``, new ``SimFiles(disk)``
power cut   what was not forced may be lost, kept or torn   ``disk.power_cut(random)``
torn write  the process dies within a write                 ``disk.tear(path, keep)``
bad fsync   EIO, once; the dirty pages count as clean       ``disk.fail("datasync", errno.EIO)``
full disk   ENOSPC                                          ``disk.capacity``
read-only   mounted so while files are open: EROFS          ``disk.read_only``
too large   RLIMIT_FSIZE: what fits is written, then EFBIG  ``disk.largest_file``
cold page   not in the page cache                           ``disk.evict(path)``
========== =============================================== =======================
"""

from __future__ import annotations

import copy
import errno
import fnmatch
import os
import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rmq.runtime.world import File, Random
from rmq.testing.simfiles import GONE, Gone, SimFiles, SimLock
from rmq.testing.siminode import PAGE, Inode
from rmq.testing.simnames import Names

__all__ = ["SimDisk"]

#: Actions that a disk mounted read-only refuses, beside the opening of files for writing.
_CHANGES = frozenset({"pwrite", "allocate", "truncate", "rename", "unlink", "mkdir"})


@dataclass(slots=True)
class _Fault:
    action: str
    pattern: str
    number: int
    after: int
    count: int


class SimDisk:
    """What outlives a process: files, directories, and the faults a test has ordered.

    :param now_ms: wall clock for modification times.
    :param capacity: bytes, holes cost nothing; None = a terabyte that is not counted.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: 0, capacity: int | None = None) -> None:
        self.now_ms = now_ms
        self.capacity = capacity
        #: Nothing can be changed; what is in the page cache can be forced.
        self.read_only = False
        #: Bytes of a file that may be written, None = any number.
        self.largest_file: int | None = None
        #: Every action that reached the disk: (action, path); for tests of order.
        self.journal: list[tuple[str, str]] = []
        #: Keep the journal (off by default: it grows).
        self.recording = False
        #: A file system of others, whose inodes and times mean nothing.
        self.shared = False
        self._entries = Names({"/": None})
        self._forced = Names({"/": None})
        self._faults: list[_Fault] = []
        #: (pattern of the path, first byte, byte behind the last) of what reads cannot get.
        self._bad_places: list[tuple[str, int, int]] = []
        self._tears: list[tuple[str, int]] = []
        #: By path; those of directories, which nobody can take away, end in a slash.
        self._locks: dict[str, SimLock] = {}
        self._renames: list[tuple[str, str]] = []  # not forced yet: both names or neither

    # -- faults

    @contextmanager
    def unnoticed(self, path: str) -> Iterator[None]:
        """What is written meanwhile changes beneath the file system: the file keeps its time of change."""
        inode = self._inode(path)
        before = inode.mtime_ms
        yield
        inode.mtime_ms = before

    def fail(self, action: str, number: int, path: str = "*", *, after: int = 0, count: int = 1) -> None:
        """Have an action fail.

        :param action: open, pread, pwrite, allocate, truncate, datasync, rename, unlink, sync_dir, mkdir, list.
        :param number: the errno.
        :param path: a pattern of the path.
        :param after: so many matching actions pass first.
        :param count: so many fail; -1 = all from then on.
        """
        self._faults.append(_Fault(action, path, number, after, count))

    def fail_at(self, path: str, start: int, end: int) -> None:
        """Reads that touch a byte from one position of a file to another fail with EIO, until :meth:`heal`."""
        self._bad_places.append((path, start, end))

    def tear(self, path: str, keep: int) -> None:
        """The next write to a path that matches writes its first ``keep`` bytes; then :class:`SimCrash`."""
        self._tears.append((path, keep))

    def heal(self) -> None:
        """Forget the faults that are left."""
        self._faults.clear()
        self._bad_places.clear()
        self._tears.clear()

    def open(self, path: str, *, create: bool = False) -> File:
        """A file for somebody beside the process under test: a test that spoils it, say. Not counted as its handle."""
        return SimFiles(self).open(path, create=create)

    def copied(self) -> SimDisk:
        """Another disk with what this one has now: nothing is locked there, and no fault is ordered."""
        made = SimDisk(self.now_ms, self.capacity)
        made._entries, made._forced = copy.deepcopy((self._entries, self._forced))
        made._renames = list(self._renames)
        return made

    def evict(self, path: str = "*") -> None:
        """Drop the pages of matching files from the page cache: the next ``pread_hot`` refuses them."""
        for name, inode in self._entries.items():
            if inode is not None and fnmatch.fnmatchcase(name, path):
                inode.forget_lost()
                inode.cold = set(range(-(-inode.size // PAGE)))

    def power_cut(self, random: Random | None = None) -> None:
        """Everything not forced is lost; with ``random``, some of it is kept and some torn. Locks are gone."""
        self._locks.clear()
        survivors: dict[str, Inode | None] = {}
        together: dict[str, str] = {}  # a rename happened or did not: its names share one fate
        made_way: dict[str, str] = {}  # and what took a name did so only if that had become free
        for source, target in self._renames:
            group = together.setdefault(source, source)
            before: str | None = together.get(target, group)
            while before is not None and before != group:
                before = made_way.get(before)
            if before is None:  # else files have taken each other's names, and one waits for the other already
                made_way[group] = together[target]
            together[target] = group
            for name in self._forced_below(source):
                # What was forced into a directory goes where the directory goes.
                together[name] = together[target + name[len(source) :]] = group
        fates: dict[str, bool] = {}
        for path in sorted(self._entries.keys() | self._forced.keys()):
            now = self._entries.get(path, GONE)
            old = self._forced.get(path, GONE)
            kept = old
            if now is not old and random is not None:
                kept = now if self._fate(together.get(path, path), fates, made_way, random) else old
            if not isinstance(kept, Gone):
                survivors[path] = kept
        # An entry in a directory that did not survive is out of reach.
        for path in sorted(survivors):
            if path != "/" and posixpath.dirname(path) not in survivors:
                del survivors[path]
        self._entries = Names(survivors)
        for inode in {id(i): i for i in survivors.values() if i is not None}.values():
            inode.power_cut(random)
            inode.cold = set(range(-(-inode.size // PAGE)))
        self._forced = Names(survivors)
        self._renames.clear()

    # -- what SimFiles asks

    @classmethod
    def _fate(cls, group: str, fates: dict[str, bool], made_way: dict[str, str], random: Random) -> bool:
        """Whether a change that was not forced has got to the disk all the same."""
        if group not in fates:
            before = made_way.get(group)
            free = before is None or cls._fate(before, fates, made_way, random)
            fates[group] = random.random() < 0.5 and free
        return fates[group]

    def _forced_below(self, directory: str) -> list[str]:
        return [name for name in self._forced if name.startswith(directory + "/")]

    def _check(self, action: str, path: str) -> None:
        if self.recording:
            self.journal.append((action, path))
        if self.read_only and action in _CHANGES:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        for fault in self._faults:
            if fault.action != action or not fnmatch.fnmatchcase(path, fault.pattern):
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            if fault.count == 0:
                continue
            fault.count -= 1
            raise OSError(fault.number, os.strerror(fault.number), path)

    def _check_place(self, path: str, start: int, end: int) -> None:
        for pattern, first, behind in self._bad_places:
            if first < end and start < behind and fnmatch.fnmatchcase(path, pattern):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def _torn(self, path: str) -> int | None:
        for number, (pattern, keep) in enumerate(self._tears):
            if fnmatch.fnmatchcase(path, pattern):
                del self._tears[number]
                return keep
        return None

    @property
    def used(self) -> int:
        """Bytes that take space: pages that were written."""
        inodes = {id(i): i for i in self._entries.values() if i is not None}
        return sum(inode.blocks for inode in inodes.values()) * PAGE

    def room(self, inode: Inode, offset: int, size: int) -> int:
        """How many of ``size`` bytes at ``offset`` fit on the disk."""
        if self.capacity is None:
            return size
        free = (self.capacity - self.used) // PAGE
        for number in range(offset // PAGE, (offset + size + PAGE - 1) // PAGE):
            if number not in inode.pages:
                if free <= 0:
                    return max(0, number * PAGE - offset)
                free -= 1
        return size

    def unlock(self, lock: SimLock) -> None:
        """Forget a lock, wherever its file is now."""
        self._locks = {path: other for path, other in self._locks.items() if other is not lock}

    def _may_grow(self, path: str, size: int) -> None:
        if self.largest_file is not None and size > self.largest_file:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)

    def _inode(self, path: str) -> Inode:
        inode = self._entries.get(path, GONE)
        if isinstance(inode, Gone):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if inode is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return inode

    def _need_folder(self, path: str) -> None:
        parent = posixpath.dirname(path)
        if self._entries.get(parent, GONE) is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parent)

    def _children(self, path: str) -> list[str]:
        return self._entries.within(path)
