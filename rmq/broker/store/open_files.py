"""Open files that several readers share: closed when the last of them is done, an LRU bounds their number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from rmq.runtime.world import File, Offload

__all__ = ["OpenFiles", "SharedFile", "open_aside", "open_each_aside"]

T = TypeVar("T")


async def open_each_aside(
    offload: Offload, opens: Callable[..., Sequence[T]], *args: object, close: Callable[[T], object]
) -> list[T]:
    """What ``opens(*args)`` opens off the loop; closed again when the caller was cancelled meanwhile.

    :param close: closes one of what it returns.
    """
    opened: list[T] = []

    def run() -> None:
        opened.extend(opens(*args))

    try:
        await offload(run)
    except BaseException:
        for one in opened:
            close(one)
        raise
    return opened


async def open_aside(offload: Offload, opens: Callable[..., File], *args: object) -> File:
    """:func:`open_each_aside` of one file."""
    (file,) = await open_each_aside(offload, lambda: [opens(*args)], close=lambda file: file.close())
    return file


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
