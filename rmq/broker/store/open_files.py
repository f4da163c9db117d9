"""Open files that several readers share: closed when the last of them is done, an LRU bounds their number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from rmq.runtime.world import File

__all__ = ["OpenFiles", "SharedFile"]


class SharedFile:
    """A file that may be in use on a thread while its owner gives it up.

    Counted on the loop only; :meth:`drop` closes at once or when the last :meth:`unpin` comes, so that a descriptor is
    never reused under a reader.
    """

    __slots__ = ("_dropped", "_pins", "file")

    def __init__(self, file: File) -> None:
        self.file = file
        self._pins = 0
        self._dropped = False

    def pin(self) -> File:
        self._pins += 1
        return self.file

    def unpin(self) -> None:
        self._pins -= 1
        if self._dropped and not self._pins:
            self.file.close()

    def drop(self) -> None:
        """The owner's last word."""
        if not self._dropped:
            self._dropped = True
            if not self._pins:
                self.file.close()


class OpenFiles:
    """The most recently used files, at most ``limit`` of them open (10,000 topics need no 40,000 descriptors)."""

    __slots__ = ("_files", "_limit")

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._files: OrderedDict[Hashable, SharedFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, key: Hashable) -> SharedFile | None:
        shared = self._files.get(key)
        if shared is not None:
            self._files.move_to_end(key)
        return shared

    def put(self, key: Hashable, file: File) -> SharedFile:
        """Keep ``file`` open; the longest unused one goes. One that is open already under ``key`` is kept instead."""
        known = self._files.get(key)
        if known is not None:
            if known.file is not file:
                file.close()
            self._files.move_to_end(key)
            return known
        shared = self._files[key] = SharedFile(file)
        while len(self._files) > self._limit:
            self._files.popitem(last=False)[1].drop()
        return shared

    def close(self, key: Hashable) -> None:
        shared = self._files.pop(key, None)
        if shared is not None:
            shared.drop()

    def close_all(self) -> None:
        while self._files:
            self._files.popitem()[1].drop()
