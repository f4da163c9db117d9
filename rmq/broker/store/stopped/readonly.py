"""A tree of files that cannot be changed: what looks at a stopped store cannot harm it, whatever it calls."""

from __future__ import annotations

import errno
from typing import NoReturn

from rmq.runtime.world import File, FileIdentity, FileLock, Files, Usage

__all__ = ["ReadOnlyFiles"]


class ReadOnlyFiles:
    """Another tree, for reading.

    Files are opened read-only, so the kernel refuses what goes past this class.
    """

    __slots__ = ("_files",)

    def __init__(self, files: Files) -> None:
        self._files = files

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        return self._files.open(path, readonly=True)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def list(self, path: str) -> list[str]:
        return self._files.list(path)

    def is_dir(self, path: str) -> bool:
        return self._files.is_dir(path)

    def is_link(self, path: str) -> bool:
        return self._files.is_link(path)

    def size(self, path: str) -> int:
        return self._files.size(path)

    def mtime_ms(self, path: str) -> int:
        return self._files.mtime_ms(path)

    def identity(self, path: str) -> FileIdentity | None:
        return self._files.identity(path)

    def usage(self, path: str) -> Usage:
        return self._files.usage(path)

    def read(self, path: str, most: int | None = None) -> bytes:
        return self._files.read(path, most)

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        return self._files.lock(path, shared=True)

    def lock_directory(self, path: str, *, shared: bool = False) -> FileLock | None:
        return self._files.lock_directory(path, shared=True)

    def mkdir(self, path: str) -> None:
        _refuse(path)

    def rename(self, old: str, new: str) -> None:
        _refuse(old)

    def unlink(self, path: str) -> None:
        _refuse(path)

    def rmdir(self, path: str) -> None:
        _refuse(path)

    def sync_dir(self, path: str) -> None:
        _refuse(path)

    def sync_tree(self, path: str) -> None:
        _refuse(path)

    def write_atomic(self, path: str, data: bytes, *, backup: bool = False, private: bool = False) -> None:
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "opened for reading only", path)
