"""The names of a simulated disk, which are asked again and again for what is in one directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmq.testing.siminode import Inode

__all__ = ["Names"]


class Names(dict[str, Inode | None]):
    """Path -> file, None = a directory; knows what is in each directory without looking at all others.

    :param names: what it begins with.
    """

    def __init__(self, names: Mapping[str, Inode | None]) -> None:
        super().__init__()
        self._folders: dict[str, dict[str, None]] = {}
        for path, inode in names.items():
            self[path] = inode

    def __setitem__(self, path: str, inode: Inode | None) -> None:
        if path not in self:
            self._folders.setdefault(_folder(path), {})[path] = None
        super().__setitem__(path, inode)

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        del self._folders[_folder(path)][path]

    def setdefault(self, path: str, default: Inode | None = None) -> Inode | None:
        if path not in self:
            self[path] = default
        return self[path]

    def pop(self, path: str, *_: Any) -> Inode | None:
        """A name that is there, taken away. :raises KeyError: it is not."""
        inode = self[path]
        del self[path]
        return inode

    def within(self, folder: str) -> list[str]:
        """The paths of what is in a directory, not below that; in the order in which they came."""
        return list(self._folders.get(folder, ()))


def _folder(path: str) -> str:
    """The directory of an absolute path; nothing is said to be that of the root."""
    return (path.rpartition("/")[0] or "/") if path != "/" else ""
