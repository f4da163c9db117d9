"""A commit-log file that the disk does not open: all of it is a place that cannot be read.

It is opened when it is read the next time, should the disk give it then: what is in it is served from there on.
"""

from __future__ import annotations

from rmq.runtime.world import File, Files

__all__ = ["UnopenedFile"]


class UnopenedFile:
    """Stands for the file. What cannot be answered without it raises what opening it says."""

    __slots__ = ("_closed", "_file", "_files", "_size", "path")

    def __init__(self, files: Files, path: str, size: int) -> None:
        self.path = path
        self._files = files
        self._size = size
        self._file: File | None = None
        self._closed = False

    def _opened(self) -> File:
        file = self._file
        if file is None:
            file = self._files.open(self.path, readonly=True)
            if self._file is not None or self._closed:  # another thread was faster, or its owner is gone
                file.close()
                file = self._file
                if file is None:
                    raise OSError(f"{self.path} is closed")
            self._file = file
        return file

    def pread(self, size: int, offset: int) -> bytes:
        return self._opened().pread(size, offset)

    def pread_hot(self, size: int, offset: int) -> bytes | None:
        return None if self._file is None else self._file.pread_hot(size, offset)

    def pread_aside(self, size: int, offset: int) -> bytes:
        return self._opened().pread_aside(size, offset)

    def hot_view(self, size: int, offset: int) -> memoryview | None:
        return None if self._file is None else self._file.hot_view(size, offset)

    def data_from(self, offset: int) -> int:
        return self._opened().data_from(offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._files.open(self.path).close()  # says why not
        raise OSError(f"{self.path} was opened for reading only: restart the broker")

    def allocate(self, size: int) -> None:
        self.pwrite(b"", size)

    def truncate(self, size: int) -> None:
        self.pwrite(b"", size)

    def datasync(self) -> None:
        """Nothing was written to it."""

    def size(self) -> int:
        return self._size if self._file is None else self._file.size()

    def named(self) -> bool:
        """What cannot be opened is not compared."""
        return self._file is None or self._file.named()

    def close(self) -> None:
        self._closed = True
        if self._file is not None:
            self._file.close()
