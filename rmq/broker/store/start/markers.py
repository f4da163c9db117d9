"""The two marker files: ``lock`` keeps a second broker out, ``abort`` says that the last stop was not clean.

Lifecycle: store-and-broker.md 1.1.
"""

from __future__ import annotations

import os

from rmq.protocol.errors import StoreError
from rmq.runtime.world import File, FileLock, Files

__all__ = ["Markers"]


class Markers:
    """The markers of one store directory. Every method may block."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._root = root
        self._lock: FileLock | None = None
        self._lock_file: File | None = None
        self._folder: FileLock | None = None
        self.abort = os.path.join(root, "abort")
        self.lock = os.path.join(root, "lock")

    def take_lock(self) -> None:
        """Make this process the only one on the store.

        :raises StoreError: another process has it.
        """
        if not self._files.is_dir(self._root):
            self._files.mkdir(self._root)
            self._files.sync_dir(os.path.dirname(self._root) or ".")
        path = self.lock
        try:
            # Whoever removes the file removes what Java looks at, and no lock of ours.
            self._folder = self._files.lock_directory(self._root)
            self._lock = self._files.lock(path)
        except BlockingIOError:
            raise StoreError(
                f"Lock failed,MQ already started: another broker uses {self._root}; stop it, or give this one its own "
                f"storePathRootDir"
            ) from None
        # Not closed before the lock is given back: closing any descriptor of a file drops its record locks.
        file = self._lock_file = self._files.open(path, create=True)
        file.pwrite(b"lock", 0)
        file.datasync()

    def release_lock(self) -> None:
        lock, self._lock = self._lock, None
        file, self._lock_file = self._lock_file, None
        if lock is not None:
            lock.release()
        if file is not None:
            file.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.release()

    def holds_lock(self) -> bool:
        """Whether the file that is locked is still the one in the directory, and this still that of the settings."""
        return self._lock_file is not None and self._lock_file.named()

    def was_clean(self) -> bool:
        """Whether the last stop was clean (or there was none)."""
        return not self._files.exists(self.abort)

    def set_abort(self) -> None:
        """From now on a stop is unclean, unless :meth:`clear_abort` comes first."""
        self._files.open(self.abort, create=True).close()
        self._files.sync_dir(self._root)

    def clear_abort(self) -> None:
        """Everything is on disk."""
        if self._files.exists(self.abort):
            self._files.unlink(self.abort)
            self._files.sync_dir(self._root)
