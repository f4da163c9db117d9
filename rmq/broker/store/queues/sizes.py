"""Files of queues that are longer than they may be, shorter, or begin where none does: damage, or a wrong setting?

All files of a kind have one size, and what is in them is found by it: under another one everything would be read
wrongly, so a wrong setting keeps the broker from starting, and nothing is touched. It is damage of one file where the
setting cannot be what is wrong: another file of the store has the size that is set, or no setting gives such a size.
A file that is too short is what a process leaves that dies while it cuts it; after a clean stop it is damage, too.
"""

from __future__ import annotations

import logging
import os

from rmq.broker.store.log.files import file_name, offset_of
from rmq.broker.store.spoilt import set_aside
from rmq.protocol.errors import StoreError
from rmq.runtime.world import Files

__all__ = ["FileSizes"]

log = logging.getLogger(__name__)


class FileSizes:
    """Judges the files below one directory. Every method may block.

    :param store: the store.
    :param folder: ``consumequeue`` or ``consumequeue_ext`` in it: topics, queues, files.
    :param size: bytes that each file should have, as ``key`` sets it.
    :param step: every size that can be set is a multiple of it.
    :param mends: a damaged file is put right; False for those who only read.
    :param remedy: what can be done beside setting the key, behind a comma.
    """

    def __init__(
        self, files: Files, store: str, folder: str, size: int, key: str, *, step: int, mends: bool, remedy: str = ""
    ) -> None:
        self._files = files
        self._store = store
        self._root = os.path.join(store, folder)
        self._kind = folder
        self._size = size
        self._key = key
        self._step = step
        self.mends = mends
        self._remedy = remedy
        self._confirmed = False
        #: No process has died since files were last as long as they should be: the last stop was clean.
        self.whole = False
        #: Files that were told of.
        self._told: set[str] = set()

    def check(self, path: str, size: int) -> None:
        """Make sure that a file ends where it should: what is behind that is cut off, what is missing zeros, and told.

        :param size: bytes that it has.
        :raises StoreError: the setting may be wrong.
        """
        if size == self._size:
            return
        if size < self._size:
            if size and self.whole:  # an empty one is what a disk without room leaves
                self._tell(path, f"has {size} bytes, a {self._kind} file has {self._size}: it was cut")
            if self.mends:
                self._resize(path, cut=False)
            return
        if not (size % self._step or self._is_confirmed()):
            raise StoreError(f"{path} has {size} bytes, a {self._kind} file has {self._size}: {self._set_right()}")
        self._tell(
            path, f"has {size} bytes, a {self._kind} file has {self._size}: what is behind is no part of the queue"
        )
        if self.mends:
            self._resize(path, cut=True)

    def _resize(self, path: str, *, cut: bool) -> None:
        file = self._files.open(path)
        try:
            (file.truncate if cut else file.allocate)(self._size)
        finally:
            file.close()

    def named_right(self, directory: str, starts: list[int]) -> list[int]:
        """Those of a queue's files whose names are offsets that files begin at; others are moved aside, and told.

        :param starts: what their names say.
        :raises StoreError: the setting may be wrong.
        """
        for start in starts:
            if start % self._size == 0:
                continue
            path = os.path.join(directory, file_name(start))
            if not self._is_confirmed():
                raise StoreError(
                    f"{path}: no {self._kind} file of {self._size} bytes begins there: {self._set_right()}"
                )
            if self.mends:
                self._tell(
                    path, f"no file of the queue begins there; it is {set_aside(self._files, self._store, path)} now"
                )
        return [start for start in starts if start % self._size == 0]

    def _set_right(self) -> str:
        return f"set {self._key} to what this store was made with{self._remedy}"

    def _tell(self, path: str, what: str) -> None:
        if path not in self._told:
            log.critical("%s %s; what the queue lacks is made of the commit log; have the disk checked", path, what)
        self._told.add(path)

    def _is_confirmed(self) -> bool:
        """Whether any file has the size that is set."""
        self._confirmed = self._confirmed or self._has_one(self._root, depth=2)
        return self._confirmed

    def _has_one(self, path: str, depth: int) -> bool:
        try:
            names = self._files.list(path)
            if depth:
                return any(self._has_one(os.path.join(path, name), depth - 1) for name in names)
            return any(
                offset_of(name) >= 0 and self._files.size(os.path.join(path, name)) == self._size for name in names
            )
        except OSError:
            return False  # whoever reads there tells
