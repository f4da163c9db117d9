"""Power cuts for a real broker: it writes down what it does to its disk, and the disk is made as a cut leaves it.

In the broker's process :class:`JournalOs` stands under the file port, as :mod:`tests.support.faults.os_calls` does,
and notes every call that changes the store before it happens; the end of a forcing call is noted, too. After the
process was killed, :func:`replay` does the same calls on a simulated disk that began as the real one did; that one's
power is cut, and :func:`lay_out` puts what survived in place of the real store: bytes and names that were never forced
are lost, or, with a random source, kept or torn.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmq.runtime.world import File
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimFiles
from tests.support.faults.os_calls import FaultyOs, Points

__all__ = ["JournalOs", "before", "lay_out", "replay"]


class JournalOs(FaultyOs):
    """Notes changes below ``root`` in the file ``journal``; one call at a time, so that their order is the real one."""

    def __init__(self, points: Points, root: str, journal: str) -> None:
        super().__init__(points)
        self._root = root
        self._fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._one = threading.Lock()
        self._handles: dict[int, int] = {}
        self._last = 0

    def _note(self, *step: Any) -> None:
        os.write(self._fd, pickle.dumps(step))

    def _mine(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root + "/")

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if not self._mine(path) or not flags & (os.O_RDWR | os.O_WRONLY):
            return super().open(path, flags, mode)
        with self._one:
            self._last += 1
            self._note("open", self._last, path, bool(flags & os.O_TRUNC))
            fd = super().open(path, flags, mode)
            self._handles[fd] = self._last
            return fd

    def close(self, fd: int) -> None:
        self._handles.pop(fd, None)
        super().close(fd)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        with self._one:
            if fd in self._handles:
                self._note("pwrite", self._handles[fd], bytes(data), offset)
            return super().pwrite(fd, data, offset)

    def write(self, fd: int, data: Any) -> int:
        with self._one:
            if fd in self._handles:
                self._note("pwrite", self._handles[fd], bytes(data), os.lseek(fd, 0, os.SEEK_CUR))
            return super().write(fd, data)

    def ftruncate(self, fd: int, size: int) -> None:
        with self._one:
            if fd in self._handles:
                self._note("truncate", self._handles[fd], size)
            super().ftruncate(fd, size)

    def _forced(self, name: str, what: int | str, do: Callable[[], None]) -> None:
        """A forcing call covers what came before it began, once it has ended."""
        with self._one:
            self._last += 1
            number = self._last
            self._note(name, what, number)
        do()
        with self._one:
            self._note("done", number)

    def fdatasync(self, fd: int) -> None:
        handle = self._handles.get(fd)
        if handle is None:
            super().fdatasync(fd)
        else:
            self._forced("datasync", handle, lambda: super(JournalOs, self).fdatasync(fd))

    def fsync(self, fd: int) -> None:
        path = self._paths.get(fd, "")
        if fd in self._handles:
            self._forced("datasync", self._handles[fd], lambda: super(JournalOs, self).fsync(fd))
        elif path.endswith("/") and self._mine(path.rstrip("/")):
            self._forced("sync_dir", path.rstrip("/"), lambda: super(JournalOs, self).fsync(fd))
        else:
            super().fsync(fd)

    def _changed(self, do: Callable[[], None], *step: Any) -> None:
        with self._one:
            if self._mine(step[1]):
                self._note(*step)
            do()

    def replace(self, old: str, new: str) -> None:
        self._changed(lambda: super(JournalOs, self).replace(old, new), "rename", old, new)

    def unlink(self, path: str) -> None:
        self._changed(lambda: super(JournalOs, self).unlink(path), "unlink", path)

    def rmdir(self, path: str) -> None:
        self._changed(lambda: os.rmdir(path), "rmdir", path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._changed(lambda: os.makedirs(path, exist_ok=exist_ok), "mkdir", path)


def before(root: Path) -> SimDisk:
    """The real store as a simulated disk on which all of it was forced."""
    disk = SimDisk()
    files = SimFiles(disk)
    files.mkdir(str(root))
    for path in sorted(root.rglob("*")):
        if path.is_dir():
            files.mkdir(str(path))
            continue
        data = path.read_bytes()
        file = files.open(str(path), create=True)
        file.allocate(len(data))
        for at in range(0, len(data), 4096):
            page = data[at : at + 4096]
            if page.strip(b"\0"):  # what was never written stays a hole
                file.pwrite(page, at)
        file.datasync()
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir()), *root.parents]:
        files.sync_dir(str(folder))
    return disk


def _steps(journal: Path) -> list[tuple[Any, ...]]:
    """What was noted; the last note may be half a one."""
    data = io.BytesIO(journal.read_bytes())
    steps: list[tuple[Any, ...]] = []
    while True:
        try:
            steps.append(pickle.load(data))
        except (EOFError, pickle.UnpicklingError):
            return steps


def _replay(files: SimFiles, steps: list[tuple[Any, ...]]) -> int:
    """Do the steps; how many forcing calls ended."""
    done = {step[1] for step in steps if step[0] == "done"}
    handles: dict[int, File] = {}
    for step in steps:
        match step:
            case ("open", int(handle), str(path), emptied):
                handles[handle] = files.open(path, create=True)
                if emptied:
                    handles[handle].truncate(0)
            case ("pwrite", int(handle), data, offset):
                handles[handle].pwrite(data, offset)
            case ("truncate", int(handle), size):
                handles[handle].truncate(size)
            case ("datasync", int(handle), number):
                if number in done:
                    handles[handle].datasync()
            case ("sync_dir", str(path), number):
                if number in done:
                    files.sync_dir(path)
            case ("mkdir", str(path)):
                files.mkdir(path)
            case ("rename", str(old), str(new)):
                files.rename(old, new)
            case ("unlink", str(path)):
                if files.exists(path):
                    files.unlink(path)
            case ("rmdir", str(path)):
                if files.is_dir(path):
                    files.rmdir(path)
    return len(done)


def replay(disk: SimDisk, journal: Path) -> int:
    """Do on ``disk`` what the process noted; how many forcing calls had ended.

    :param disk: what :func:`before` said when the process was started.
    """
    forced = _replay(SimFiles(disk), _steps(journal))
    journal.unlink()
    return forced


def lay_out(root: Path, disk: SimDisk) -> None:
    """Make the store what is on ``disk``."""
    files = SimFiles(disk)
    shutil.rmtree(root)
    root.mkdir()
    folders = [str(root)]
    while folders:
        folder = folders.pop()
        for name in files.list(folder):
            path = f"{folder}/{name}"
            if files.is_dir(path):
                os.mkdir(path)
                folders.append(path)
            else:
                Path(path).write_bytes(files.read(path))
