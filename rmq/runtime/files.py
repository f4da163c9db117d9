"""The real file tree: positional reads and writes on the operating system's files.

``pread_hot`` asks the kernel itself whether bytes are in the page cache (``preadv`` with RWF_NOWAIT). Where the flag is
missing or refused (macOS, some tmpfs and overlay mounts) only the part this process wrote last counts as hot.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat

from rmq.runtime.clib import c_function
from rmq.runtime.file_locks import lock_directory, lock_first_byte
from rmq.runtime.file_systems import is_local
from rmq.runtime.named_file import read_named
from rmq.runtime.residency import Mapping
from rmq.runtime.world import File, FileIdentity, FileLock, Usage

__all__ = ["RealFile", "RealFiles"]

_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
#: Where a file has no holes that are known, all of it counts as written.
_SEEK_DATA: int | None = getattr(os, "SEEK_DATA", None)
#: Without RWF_NOWAIT: how far behind the newest byte written here the page cache is trusted.
_TRUSTED_TAIL = 8 << 20
#: ``fdatasync`` does not exist everywhere (macOS).
_datasync = getattr(os, "fdatasync", os.fsync)
#: Writes back one file system; ``sync`` does so with all of them.
_syncfs = c_function("syncfs")
_PAGE = 4096
#: Not for programs that this one starts; and bytes as they are, where line ends would be changed (Windows).
_FLAGS: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
#: Windows opens no directory.
_DIRECTORIES = os.name != "nt"
#: macOS has none.
_advise = getattr(os, "posix_fadvise", None)
#: What a file system answers that does not know the flag.
_NO_NOWAIT = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class RealFile:
    """One open file of the operating system."""

    __slots__ = ("_aside", "_fd", "_mapping", "_nowait", "_unmappable", "_written", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._nowait = bool(_NOWAIT)
        self._written = -1
        self._mapping: Mapping | None = None
        self._unmappable = False
        self._aside = False

    def pread(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._fd, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            have = len(data)
            while have < size:
                data = os.pread(self._fd, size - have, offset + have)
                if not data:
                    break
                parts.append(data)
                have += len(data)
        except OSError as error:
            raise _naming(self.path, error) from None
        return b"".join(parts)

    def pread_hot(self, size: int, offset: int) -> bytes | None:
        if not self._nowait:
            trusted = self._written >= 0 and offset >= self._written - _TRUSTED_TAIL
            return self.pread(size, offset) if trusted else None
        room = bytearray(size)
        try:
            count = os.preadv(self._fd, [room], offset, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in _NO_NOWAIT:
                self._nowait = False
                return self.pread_hot(size, offset)
            return None  # what is wrong with it, the read that may wait will say
        if count == size:
            return bytes(room)
        # Short: the file ends here, or the rest is cold.
        if offset + count >= self.size():
            return bytes(memoryview(room)[:count])
        return None

    def pread_aside(self, size: int, offset: int) -> bytes:
        if _advise is not None and not self._aside:
            self._aside = True
            with contextlib.suppress(OSError):
                _advise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        data = self.pread_hot(size, offset)
        if data is not None:
            return data
        data = self.pread(size, offset)
        if _advise is not None:
            with contextlib.suppress(OSError):
                # The page that the read before it ended in goes now, too: only whole ones do.
                begin = offset & -_PAGE
                _advise(self._fd, begin, offset + len(data) - begin, os.POSIX_FADV_DONTNEED)
        return data

    def hot_view(self, size: int, offset: int) -> memoryview | None:
        mapping = self._mapping
        if mapping is None:
            if self._unmappable:
                return None
            try:
                mapping = self._mapping = Mapping(self._fd, self.size())
            except (OSError, ValueError):
                self._unmappable = True
                return None
        return mapping.hot(offset, size)

    def named(self) -> bool:
        try:
            there = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        mine = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def data_from(self, offset: int) -> int:
        size = self.size()
        if _SEEK_DATA is None or offset >= size:
            return min(offset, size)
        try:
            return os.lseek(self._fd, offset, _SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
            if error.errno in _NO_NOWAIT:
                return offset
            raise

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        size = len(data)
        try:
            done = os.pwrite(self._fd, data, offset)
            if done != size:
                view = memoryview(data).cast("B")
                while done < size:
                    count = os.pwrite(self._fd, view[done:], offset + done)
                    if count == 0:
                        raise OSError(errno.EIO, "the write made no progress")
                    done += count
        except OSError as error:
            raise _naming(self.path, error) from None
        if offset + size > self._written:
            self._written = offset + size

    def allocate(self, size: int) -> None:
        if os.fstat(self._fd).st_size < size:
            try:
                os.ftruncate(self._fd, size)
            except OSError as error:
                raise _naming(self.path, error) from None

    def truncate(self, size: int) -> None:
        self._mapping = None
        os.ftruncate(self._fd, size)
        self._written = min(self._written, size)

    def datasync(self) -> None:
        try:
            _datasync(self._fd)
        except OSError as error:
            raise _naming(self.path, error) from None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        self._mapping = None
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


#: Files locked by this process, as (device, inode): record locks do not exclude their own process.
_held: set[tuple[int, int]] = set()
#: Descriptors of locked directories. A child would share these locks, and keep them when its parent is gone.
_directories: set[int] = set()
#: Errors of a file system on which directories cannot be locked.
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK})


def _in_child() -> None:
    """A child has none of its parent's locks."""
    _held.clear()
    while _directories:
        os.close(_directories.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class _DirectoryLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd
        _directories.add(fd)

    def release(self) -> None:
        if self._fd in _directories:
            _directories.discard(self._fd)
            os.close(self._fd)


class _RecordLock:
    __slots__ = ("_fd", "_key")

    def __init__(self, fd: int, key: tuple[int, int]) -> None:
        self._fd = fd
        self._key = key

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _held.discard(self._key)
            os.close(fd)  # closing drops the record lock


class RealFiles:
    """The operating system's tree of files."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        flags = os.O_RDONLY if readonly else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        return RealFile(path, os.open(path, flags | _FLAGS, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def identity(self, path: str) -> FileIdentity | None:
        if not is_local(os.path.dirname(path)):
            return None
        found = os.stat(path)
        return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        if not _DIRECTORIES:
            return
        fd = os.open(path or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot sync a directory
                raise
        finally:
            os.close(fd)

    def sync_tree(self, path: str) -> None:
        if _syncfs is None:
            os.sync()
            return
        fd = os.open(path, os.O_RDONLY)
        try:
            if _syncfs(fd):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(fd)

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        # Closing any descriptor of a file drops this process's record locks on it: look before opening.
        with contextlib.suppress(FileNotFoundError):
            info = os.stat(path)
            if (info.st_dev, info.st_ino) in _held:
                raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
        fd = os.open(path, flags | _FLAGS, 0o644)
        try:
            lock_first_byte(fd, shared=shared)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from None
            raise
        info = os.fstat(fd)
        key = (info.st_dev, info.st_ino)
        _held.add(key)
        return _RecordLock(fd, key)

    def lock_directory(self, path: str, *, shared: bool = False) -> FileLock | None:
        fd = os.open(path, os.O_RDONLY | _FLAGS)
        try:
            lock_directory(fd, shared=shared)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from None
            if error.errno in _NO_LOCKS:
                return None
            raise
        return _DirectoryLock(fd)

    def usage(self, path: str) -> Usage:
        while not os.path.exists(path):
            parent = os.path.dirname(path)
            if parent == path:
                break
            path = parent or "."
        info = os.statvfs(path)
        return Usage(
            total=info.f_blocks * info.f_frsize,
            used=(info.f_blocks - info.f_bfree) * info.f_frsize,
            free=info.f_bavail * info.f_frsize,
        )

    def read(self, path: str, most: int | None = None) -> bytes:
        if most is not None:
            return read_named(path, most)
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes, *, backup: bool = False, private: bool = False) -> None:
        temporary = path + ".tmp"
        mode = 0o600 if private else 0o644
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
            exists = True
        except FileNotFoundError:
            exists = False
        _write_whole(temporary, data, mode)
        try:
            if backup and exists:
                _write_whole(path + ".bak.tmp", self.read(path), mode)
                os.replace(path + ".bak.tmp", path + ".bak")
            os.replace(temporary, path)
        except OSError:
            _discard(temporary)
            raise
        self.sync_dir(os.path.dirname(path))


def _write_whole(path: str, data: bytes, mode: int) -> None:
    """Write and force a file that nobody reads yet; nothing of it is left when that fails."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    except OSError as error:
        _discard(path)
        raise _naming(path, error) from None
    finally:
        os.close(fd)


def _discard(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _naming(path: str, error: OSError) -> OSError:
    """The same error with the file it is about: calls on a descriptor do not know it."""
    return OSError(error.errno, error.strerror, path)
