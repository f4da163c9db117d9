"""What one process sees of a :class:`~rmq.testing.simdisk.SimDisk`, and how it dies.

One unit with ``simdisk`` in two files: this one uses its underscore names.
"""

from __future__ import annotations

import errno
import mmap
import os
import posixpath
from functools import lru_cache
from typing import TYPE_CHECKING

from rmq.runtime.world import File, FileIdentity, FileLock, Usage
from rmq.testing.siminode import PAGE, Inode

if TYPE_CHECKING:
    from rmq.testing.simdisk import SimDisk

__all__ = ["GONE", "Gone", "SimCrash", "SimFile", "SimFiles", "SimLock"]


class SimCrash(BaseException):
    """The process died here. Not an Exception: no handler of the code under test outlives its process."""


class Gone:
    pass


#: Stands for no entry, where None is a directory.
GONE = Gone()


@lru_cache(10_000)
def _whole(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path))


class SimFile:
    """An open file; it goes on reading and writing after a rename or an unlink, as on a real system."""

    __slots__ = ("_closed", "_files", "_inode", "_readonly", "path")

    def __init__(self, files: SimFiles, path: str, inode: Inode, readonly: bool) -> None:
        self.path: str = path
        self._files = files
        self._inode = inode
        self._readonly = readonly
        self._closed = False
        files._handles.add(self)

    def _use(self, action: str, *, writes: bool = False) -> Inode:
        self._files._alive()
        if self._closed or (writes and self._readonly):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._files.disk._check(action, self.path)
        return self._inode

    def _read(self, size: int, offset: int) -> Inode:
        inode = self._use("pread")
        disk = self._files.disk
        if disk._bad_places:
            disk._check_place(self.path, offset, offset + size)
        return inode

    def pread(self, size: int, offset: int) -> bytes:
        inode = self._read(size, offset)
        if inode.cold:
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
        return self._use("pread").data_from(offset)

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


class SimLock:
    __slots__ = ("_file", "owner")

    def __init__(self, owner: SimFiles, file: File | None) -> None:
        self.owner: SimFiles = owner
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
        self._handles: set[SimFile] = set()

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
        whole = _whole(path)
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
            disk._entries[whole] = Inode(disk.now_ms())
        return SimFile(self, whole, disk._inode(whole), readonly)

    def exists(self, path: str) -> bool:
        return self._path(path) in self.disk._entries

    def list(self, path: str) -> list[str]:
        return sorted(posixpath.basename(name) for name in self.disk._children(self._path(path, "list")))

    def is_dir(self, path: str) -> bool:
        return self.disk._entries.get(self._path(path), GONE) is None

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
        for name in disk._forced.within(whole):
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
        lock = self.disk._locks[whole] = SimLock(self, file)
        return lock

    def lock_directory(self, path: str, *, shared: bool = False) -> FileLock | None:
        whole = self._path(path)
        if not self.is_dir(whole):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), whole)
        if f"{whole}/" in self.disk._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", whole)
        lock = self.disk._locks[f"{whole}/"] = SimLock(self, None)
        return lock

    def usage(self, path: str) -> Usage:
        self._alive()
        used = self.disk.used
        total = self.disk.capacity if self.disk.capacity is not None else 1 << 40
        return Usage(total=total, used=used, free=max(0, total - used))

    def read(self, path: str, most: int | None = None) -> bytes:
        file = self.open(path, readonly=True)
        try:
            if most is not None and file.size() > most:
                raise OSError(errno.EFBIG, f"it is longer than {most} bytes", path)
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def write_atomic(self, path: str, data: bytes, *, backup: bool = False, private: bool = False) -> None:
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
