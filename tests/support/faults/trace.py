"""Records what a process does to a simulated disk, and makes the disk as it was after any number of those steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rmq.runtime.world import File, World
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimFiles

__all__ = ["Trace", "TracingFiles", "traced"]


class Trace:
    """Steps that change a disk, in order: (method, handle or None, arguments)."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int | None, tuple[Any, ...]]] = []
        self._handles = 0

    def __len__(self) -> int:
        return len(self.steps)

    def handle(self) -> int:
        self._handles += 1
        return self._handles

    def note(self, method: str, handle: int | None, *arguments: Any) -> None:
        self.steps.append((method, handle, arguments))

    def disk_after(self, count: int) -> SimDisk:
        """A new disk on which the first ``count`` steps were done."""
        disk = SimDisk()
        files = SimFiles(disk)
        handles: dict[int, File] = {}
        for method, handle, arguments in self.steps[:count]:
            if method == "open":
                assert handle is not None
                handles[handle] = files.open(arguments[0], create=True)
            elif handle is not None:
                getattr(handles[handle], method)(*arguments)
            else:
                getattr(files, method)(*arguments)
        disk._locks.clear()
        return disk

    def describe(self, count: int) -> str:
        """The last step of a prefix, for messages."""
        if not count:
            return "nothing"
        method, _, arguments = self.steps[count - 1]
        return f"{method}{tuple(len(a) if isinstance(a, bytes) else a for a in arguments)}"


class _TracingFile:
    def __init__(self, file: File, trace: Trace, handle: int) -> None:
        self._file = file
        self._trace = trace
        self._handle = handle
        self.path = file.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._file.pwrite(data, offset)
        self._trace.note("pwrite", self._handle, bytes(data), offset)

    def allocate(self, size: int) -> None:
        self._file.allocate(size)
        self._trace.note("allocate", self._handle, size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._trace.note("truncate", self._handle, size)

    def datasync(self) -> None:
        self._file.datasync()
        self._trace.note("datasync", self._handle)


class TracingFiles(SimFiles):
    """A process's view of a disk that writes down every change."""

    def __init__(self, disk: SimDisk, trace: Trace) -> None:
        super().__init__(disk)
        self._trace = trace

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        file = super().open(path, create=create, readonly=readonly)
        if readonly:
            return file
        handle = self._trace.handle()
        self._trace.note("open", handle, file.path)
        return _TracingFile(file, self._trace, handle)

    def mkdir(self, path: str) -> None:
        there = self.is_dir(path)
        super().mkdir(path)
        if not there:
            self._trace.note("mkdir", None, path)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._trace.note("rename", None, old, new)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._trace.note("unlink", None, path)

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self._trace.note("rmdir", None, path)

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self._trace.note("sync_dir", None, path)


def traced(world: World, disk: SimDisk, trace: Trace) -> World:
    """The same world with files that write down what is done to ``disk``."""
    return dataclasses.replace(world, files=TracingFiles(disk, trace))


def evenly(count: int, of: int) -> Sequence[int]:
    """``count`` numbers from 0 to ``of``, both ends among them."""
    if count > of:
        return range(of + 1)
    return sorted({round(n * of / (count - 1)) for n in range(count)})
