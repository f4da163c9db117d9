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

import errno
import fnmatch
import mmap
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rmq.runtime.world import File, FileIdentity, FileLock, Random, Usage

__all__ = ["SimCrash", "SimDisk", "SimFiles"]

PAGE = 4096
#: What a disk writes whole or not at all.
SECTOR = 512
_ZEROS = bytes(PAGE)
#: Actions that a disk mounted read-only refuses, beside the opening of files for writing.
_CHANGES = frozenset({"pwrite", "allocate", "truncate", "rename", "unlink", "mkdir"})


class SimCrash(BaseException):
    """The process died here. Not an Exception: no handler of the code under test outlives its process."""


class _Inode:
    """A file's pages as readers see them, and as the platters have them. Missing pages are zeros."""

    __slots__ = ("cold", "dirty", "forced", "forced_size", "lost", "mtime_ms", "pages", "size")

    def __init__(self, now_ms: int) -> None:
        self.pages: dict[int, bytearray] = {}
        self.size = 0
        self.forced: dict[int, bytes] = {}
        self.forced_size = 0
        self.dirty: set[int] = set()
        #: Pages that count as clean although a flush of them failed: seen while they stay in the cache.
        self.lost: set[int] = set()
        self.cold: set[int] = set()
        self.mtime_ms = now_ms

    def read(self, size: int, offset: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        parts = []
        while size > 0:
            number, start = divmod(offset, PAGE)
            count = min(size, PAGE - start)
            page = self.pages.get(number)
            parts.append(bytes(page[start : start + count]) if page is not None else _ZEROS[:count])
            offset += count
            size -= count
        return b"".join(parts)

    def write(self, data: memoryview, offset: int) -> None:
        end = offset + len(data)
        done = 0
        while done < len(data):
            number, start = divmod(offset + done, PAGE)
            count = min(len(data) - done, PAGE - start)
            page = self.pages.get(number)
            if page is None:
                page = self.pages[number] = bytearray(PAGE)
            page[start : start + count] = data[done : done + count]
            self._dirtied(number)
            self.cold.discard(number)
            done += count
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        if size < self.size:
            last, start = divmod(size, PAGE)
            for number in [n for n in self.pages if n > last or (n == last and start == 0)]:
                del self.pages[number]
                self._dirtied(number)
            if start and last in self.pages:
                self.pages[last][start:] = bytes(PAGE - start)
                self._dirtied(last)
        self.size = size

    def _dirtied(self, number: int) -> None:
        self.dirty.add(number)
        self.lost.discard(number)

    def force(self) -> None:
        for number in sorted(self.dirty):
            page = self.pages.get(number)
            if page is None:
                self.forced.pop(number, None)
            else:
                self.forced[number] = bytes(page)
        self.dirty.clear()
        self.forced_size = self.size

    def lose_dirty(self) -> None:
        """What Linux does after a failed fsync: the pages count as clean, the platters have the old ones."""
        self.lost |= self.dirty
        self.dirty.clear()

    def forget_lost(self) -> None:
        """Pages that count as clean leave the cache: what is read now is on the platters."""
        for number in sorted(self.lost):
            self._revert(number)
        self.lost.clear()

    def power_cut(self, random: Random | None) -> None:
        """Pages that were not forced are kept, lost, or torn at sectors, as ``random`` has it; without it, lost."""
        self.forget_lost()
        keep_size = random is not None and random.random() < 0.5
        for number in sorted(self.dirty):
            fate = random.choice(("lost", "kept", "torn")) if random is not None else "lost"
            if fate == "lost":
                self._revert(number)
            elif fate == "torn" and random is not None:
                new = self.pages.get(number, bytearray(PAGE))
                old = self.forced.get(number, _ZEROS)
                page = bytearray(old)
                for start in range(0, PAGE, SECTOR):
                    if random.random() < 0.5:
                        page[start : start + SECTOR] = new[start : start + SECTOR]
                self.pages[number] = page
        size = self.size if keep_size else self.forced_size
        self.size = max(self.size, self.forced_size)
        self.resize(size)
        self.force()

    def _revert(self, number: int) -> None:
        old = self.forced.get(number)
        if old is None:
            self.pages.pop(number, None)
        else:
            self.pages[number] = bytearray(old)

    @property
    def blocks(self) -> int:
        return len(self.pages)


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
        self._entries: dict[str, _Inode | None] = {"/": None}  # None = a directory
        self._forced: dict[str, _Inode | None] = {"/": None}
        self._faults: list[_Fault] = []
        #: (pattern of the path, first byte, byte behind the last) of what reads cannot get.
        self._bad_places: list[tuple[str, int, int]] = []
        self._tears: list[tuple[str, int]] = []
        #: By path; those of directories, which nobody can take away, end in a slash.
        self._locks: dict[str, _SimLock] = {}
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

    def evict(self, path: str = "*") -> None:
        """Drop the pages of matching files from the page cache: the next ``pread_hot`` refuses them."""
        for name, inode in self._entries.items():
            if inode is not None and fnmatch.fnmatchcase(name, path):
                inode.forget_lost()
                inode.cold = set(range(-(-inode.size // PAGE)))

    def power_cut(self, random: Random | None = None) -> None:
        """Everything not forced is lost; with ``random``, some of it is kept and some torn. Locks are gone."""
        self._locks.clear()
        survivors: dict[str, _Inode | None] = {}
        together: dict[str, str] = {}  # a rename happened or did not: its names share one fate
        made_way: dict[str, str] = {}  # and what took a name did so only if that had become free
        for source, target in self._renames:
            group = together.setdefault(source, source)
            if together.get(target, group) != group:
                made_way[group] = together[target]
            together[target] = group
            for name in self._forced_below(source):
                # What was forced into a directory goes where the directory goes.
                together[name] = together[target + name[len(source) :]] = group
        fates: dict[str, bool] = {}
        for path in sorted(self._entries.keys() | self._forced.keys()):
            now = self._entries.get(path, _GONE)
            old = self._forced.get(path, _GONE)
            kept = old
            if now is not old and random is not None:
                kept = now if self._fate(together.get(path, path), fates, made_way, random) else old
            if not isinstance(kept, _Gone):
                survivors[path] = kept
        # An entry in a directory that did not survive is out of reach.
        for path in sorted(survivors):
            if path != "/" and posixpath.dirname(path) not in survivors:
                del survivors[path]
        self._entries = survivors
        for inode in {id(i): i for i in survivors.values() if i is not None}.values():
            inode.power_cut(random)
            inode.cold = set(range(-(-inode.size // PAGE)))
        self._forced = dict(survivors)
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

    def room(self, inode: _Inode, offset: int, size: int) -> int:
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

    def unlock(self, lock: _SimLock) -> None:
        """Forget a lock, wherever its file is now."""
        self._locks = {path: other for path, other in self._locks.items() if other is not lock}

    def _may_grow(self, path: str, size: int) -> None:
        if self.largest_file is not None and size > self.largest_file:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)

    def _inode(self, path: str) -> _Inode:
        inode = self._entries.get(path, _GONE)
        if isinstance(inode, _Gone):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if inode is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return inode

    def _need_folder(self, path: str) -> None:
        parent = posixpath.dirname(path)
        if self._entries.get(parent, _GONE) is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parent)

    def _children(self, path: str) -> list[str]:
        return _in_folder(self._entries, path)


def _in_folder(names: Iterable[str], folder: str) -> list[str]:
    """Names of which ``folder`` is the directory; asked for so often that it is worth a quick way."""
    prefix = folder if folder == "/" else f"{folder}/"
    size = len(prefix)
    return [name for name in names if name.startswith(prefix) and len(name) > size and name.find("/", size) < 0]


class _Gone:
    pass


_GONE = _Gone()


class _SimFile:
    """An open file; it goes on reading and writing after a rename or an unlink, as on a real system."""

    __slots__ = ("_closed", "_files", "_inode", "_readonly", "path")

    def __init__(self, files: SimFiles, path: str, inode: _Inode, readonly: bool) -> None:
        self.path = path
        self._files = files
        self._inode = inode
        self._readonly = readonly
        self._closed = False
        files._handles.add(self)

    def _use(self, action: str, *, writes: bool = False) -> _Inode:
        self._files._alive()
        if self._closed or (writes and self._readonly):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._files.disk._check(action, self.path)
        return self._inode

    def _read(self, size: int, offset: int) -> _Inode:
        inode = self._use("pread")
        self._files.disk._check_place(self.path, offset, offset + size)
        return inode

    def pread(self, size: int, offset: int) -> bytes:
        inode = self._read(size, offset)
        inode.cold.difference_update(range(offset // PAGE, (offset + max(size, 1) - 1) // PAGE + 1))
        return inode.read(size, offset)

    def pread_aside(self, size: int, offset: int) -> bytes:
        return self._read(size, offset).read(size, offset)

    def pread_hot(self, size: int, offset: int) -> bytes | None:
        try:
            inode = self._read(size, offset)
        except OSError:
            return None
        if inode.cold and not inode.cold.isdisjoint(range(offset // PAGE, (offset + max(size, 1) - 1) // PAGE + 1)):
            return None
        return inode.read(size, offset)

    def hot_view(self, size: int, offset: int) -> memoryview | None:
        data = self.pread_hot(size, offset)
        if data is None or not 0 < size == len(data):
            return None
        # Zeros in front cost nothing here, whatever the size of the file.
        whole = mmap.mmap(-1, offset + size)
        whole[offset:] = data
        return memoryview(whole)

    def data_from(self, offset: int) -> int:
        inode = self._use("pread")
        rest = inode.read(inode.size - offset, offset).lstrip(b"\0") if offset < inode.size else b""
        return max(offset, (inode.size - len(rest)) // PAGE * PAGE) if rest else inode.size

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        inode = self._use("pwrite", writes=True)
        disk = self._files.disk
        view = memoryview(data).cast("B")
        keep = disk._torn(self.path)
        if keep is not None:
            view = view[:keep]
        room = disk.room(inode, offset, len(view))
        if room < len(view):  # as a real system: what fits is written
            inode.write(view[:room], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        if disk.largest_file is not None and offset + len(view) > disk.largest_file:
            inode.write(view[: max(0, disk.largest_file - offset)], offset)
            disk._may_grow(self.path, offset + len(view))
        inode.write(view, offset)
        inode.mtime_ms = disk.now_ms()
        if keep is not None:
            self._files.freeze()
            raise SimCrash(f"died within a write to {self.path}, after {keep} bytes")

    def allocate(self, size: int) -> None:
        inode = self._use("allocate", writes=True)
        if size > inode.size:
            self._files.disk._may_grow(self.path, size)
            inode.resize(size)

    def truncate(self, size: int) -> None:
        inode = self._use("truncate", writes=True)
        if size > inode.size:
            self._files.disk._may_grow(self.path, size)
        inode.resize(size)

    def datasync(self) -> None:
        try:
            inode = self._use("datasync")
        except OSError:
            if not self._closed:
                self._inode.lose_dirty()
            raise
        inode.force()

    def size(self) -> int:
        self._files._alive()
        return self._inode.size

    def named(self) -> bool:
        self._files._alive()
        return self._files.disk._entries.get(self.path) is self._inode

    def close(self) -> None:
        self._closed = True
        self._files._handles.discard(self)


class _SimLock:
    __slots__ = ("_file", "owner")

    def __init__(self, owner: SimFiles, file: File | None) -> None:
        self.owner = owner
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
        self.owner.disk.unlock(self)


class SimFiles:
    """One process's view of a :class:`SimDisk`. Relative paths are below ``/``."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self._frozen = False
        self._handles: set[_SimFile] = set()

    @property
    def opened(self) -> list[str]:
        """Paths, as they were opened, of what is open now; a path as often as it is."""
        return sorted(file.path for file in self._handles)

    def freeze(self) -> None:
        """The process is dead: from now on every call raises :class:`SimCrash`; its handles and locks are gone."""
        self._frozen = True
        self._handles.clear()
        for lock in list(self.disk._locks.values()):
            if lock.owner is self:
                self.disk.unlock(lock)

    def _alive(self) -> None:
        if self._frozen:
            raise SimCrash("this process is dead")

    def _path(self, path: str, action: str = "") -> str:
        self._alive()
        whole = posixpath.normpath(posixpath.join("/", path))
        if action:
            self.disk._check(action, whole)
        return whole

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        whole = self._path(path, "open")
        disk = self.disk
        if disk.read_only and not readonly:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), whole)
        if create and whole not in disk._entries:
            disk._need_folder(whole)
            disk._entries[whole] = _Inode(disk.now_ms())
        return _SimFile(self, whole, disk._inode(whole), readonly)

    def exists(self, path: str) -> bool:
        return self._path(path) in self.disk._entries

    def list(self, path: str) -> list[str]:
        return sorted(posixpath.basename(name) for name in self.disk._children(self._path(path, "list")))

    def is_dir(self, path: str) -> bool:
        return self.disk._entries.get(self._path(path), _GONE) is None

    def is_link(self, path: str) -> bool:
        return False

    def size(self, path: str) -> int:
        return self.disk._inode(self._path(path)).size

    def mtime_ms(self, path: str) -> int:
        whole = self._path(path)
        return 0 if self.is_dir(whole) else self.disk._inode(whole).mtime_ms

    def identity(self, path: str) -> FileIdentity | None:
        if self.disk.shared:
            return None
        inode = self.disk._inode(self._path(path))
        return FileIdentity(1, id(inode), inode.size, inode.mtime_ms * 1_000_000)

    def mkdir(self, path: str) -> None:
        whole = self._path(path, "mkdir")
        at = ""
        for part in whole.strip("/").split("/"):
            at = f"{at}/{part}"
            if self.disk._entries.setdefault(at, None) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), at)

    def rename(self, old: str, new: str) -> None:
        disk = self.disk
        source, target = self._path(old, "rename"), self._path(new)
        disk._need_folder(target)
        if self.is_dir(source):
            if disk._children(target):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
            for name in [n for n in disk._entries if n == source or n.startswith(source + "/")]:
                disk._entries[target + name[len(source) :]] = disk._entries.pop(name)
            for name in [name for name in disk._locks if name.startswith(source + "/")]:
                disk._locks[target + name[len(source) :]] = disk._locks.pop(name)
            disk._renames.append((source, target))
            return
        inode = disk._inode(source)
        if self.is_dir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        del disk._entries[source]
        disk._entries[target] = inode
        disk._locks.pop(target, None)  # of a file that has no name any more
        disk._renames.append((source, target))

    def unlink(self, path: str) -> None:
        whole = self._path(path, "unlink")
        self.disk._inode(whole)
        del self.disk._entries[whole]
        self.disk._locks.pop(whole, None)  # whoever makes it anew can have that one's

    def rmdir(self, path: str) -> None:
        whole = self._path(path, "unlink")
        if not self.is_dir(whole):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), whole)
        if self.disk._children(whole):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), whole)
        del self.disk._entries[whole]

    def sync_dir(self, path: str) -> None:
        whole = self._path(path, "sync_dir")
        if not self.is_dir(whole):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), whole)
        disk = self.disk
        for name in _in_folder(disk._forced, whole):
            del disk._forced[name]
        for name in disk._children(whole):
            disk._forced[name] = disk._entries[name]
        for source, target in disk._renames:
            if whole in (posixpath.dirname(source), posixpath.dirname(target)):
                for name in disk._forced_below(source):
                    disk._forced[target + name[len(source) :]] = disk._forced.pop(name)
        disk._renames = [pair for pair in disk._renames if whole not in map(posixpath.dirname, pair)]
        # A directory that was forced is itself there after a power cut when its parents are; making them so is
        # the caller's duty (mkdir, sync_dir of the parent), except for roots a test made.
        disk._forced.setdefault(whole, None)

    def sync_tree(self, path: str) -> None:
        whole = self._path(path)
        names = [name for name in self.disk._entries if name == whole or name.startswith(whole + "/")]
        try:
            self.disk._check("sync_tree", whole)
        except OSError:
            for name in names:
                if (inode := self.disk._entries[name]) is not None:
                    inode.lose_dirty()
            raise
        for name in names:
            inode = self.disk._entries[name]
            if inode is not None:
                inode.force()
        for name in [posixpath.dirname(whole), *names]:
            if self.is_dir(name):
                self.sync_dir(name)

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        whole = self._path(path)
        if whole in self.disk._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", whole)
        file = self.open(path, create=not shared, readonly=shared)
        lock = self.disk._locks[whole] = _SimLock(self, file)
        return lock

    def lock_directory(self, path: str, *, shared: bool = False) -> FileLock | None:
        whole = self._path(path)
        if not self.is_dir(whole):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), whole)
        if f"{whole}/" in self.disk._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", whole)
        lock = self.disk._locks[f"{whole}/"] = _SimLock(self, None)
        return lock

    def usage(self, path: str) -> Usage:
        self._alive()
        used = self.disk.used
        total = self.disk.capacity if self.disk.capacity is not None else 1 << 40
        return Usage(total=total, used=used, free=max(0, total - used))

    def read(self, path: str) -> bytes:
        file = self.open(path, readonly=True)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def write_atomic(self, path: str, data: bytes, *, backup: bool = False) -> None:
        def put(name: str, content: bytes) -> None:
            file = self.open(name, create=True)
            try:
                file.truncate(0)
                file.pwrite(content, 0)
                file.datasync()
            finally:
                file.close()

        put(path + ".tmp", data)
        if backup and self.exists(path):
            put(path + ".bak.tmp", self.read(path))
            self.rename(path + ".bak.tmp", path + ".bak")
        self.rename(path + ".tmp", path)
        self.sync_dir(posixpath.dirname(path))
