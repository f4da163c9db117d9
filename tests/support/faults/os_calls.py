"""The system calls of the file port, with named points before, within and after each, and faults ordered for them.

``rmq.runtime.files`` calls the operating system through its module global ``os``; :func:`install` puts this in its
place, in the process of a test or of a broker started by :mod:`tests.support.faults.broker`. The product has no switch
for it. A point's name is ``phase:kind.call.when``, for example ``run:log.datasync.before``:

=======  ========================================================================================================
phase    recover (until the store has been read), run, stop
kind     log, queue, index, checkpoint, abort, lock, topics, groups, offsets, delays, pid, other; folder.X of them
call     open, create, extend, write, datasync, fsync, rename, unlink, read
when     before, half (a write whose first half is done), after
=======  ========================================================================================================
"""

from __future__ import annotations

import errno
import fnmatch
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FaultyOs", "Points", "Rule", "install", "kind_of"]

_CONFIG = {
    "topics.json": "topics",
    "subscriptionGroup.json": "groups",
    "consumerOffset.json": "offsets",
    "delayOffset.json": "delays",
    "checkpoint": "checkpoint",
    "abort": "abort",
    "lock": "lock",
    "broker.pid": "pid",
}


def kind_of(path: str) -> str:
    """What a path of a store is, by its place."""
    parts = [part for part in path.split("/") if part]
    name = parts[-1] if parts else ""
    for ending in (".tmp", ".bak"):
        name = name.removesuffix(ending)
    for ending in (".tmp", ".bak"):
        name = name.removesuffix(ending)
    if name in _CONFIG:
        return _CONFIG[name]
    for folder, kind in (("commitlog", "log"), ("consumequeue", "queue"), ("index", "index")):
        if folder in parts:
            return kind
    return "other"


@dataclass
class Rule:
    """What happens at the points that match.

    :param at: a pattern of point names.
    :param do: ``kill``, ``sleep:SECONDS``, ``errno:NAME``, or ``short:BYTES`` (the write stops there, with no error).
    :param skip: so many matching points pass first.
    :param count: so many are hit; -1 = all.
    :param of: a pattern of paths; a log's next file is made and forced beside the flushes, whenever there is time.
    """

    at: str
    do: str
    skip: int = 0
    count: int = 1
    of: str = "*"


@dataclass
class Points:
    """Counts points and does what rules say.

    :param record: told each point that is met for the first time, and ``KILL point`` before the end.
    """

    rules: list[Rule] = field(default_factory=list)
    record: Callable[[str], None] = lambda _: None
    phase: str = "recover"
    seen: dict[str, int] = field(default_factory=dict)

    def pass_by(self, what: str, path: str = "") -> str:
        """What to do at ``phase:what``: an error or a cut of a write is the caller's to do."""
        name = f"{self.phase}:{what}"
        count = self.seen[name] = self.seen.get(name, 0) + 1
        if count == 1:
            self.record(name)
        for rule in self.rules:
            if rule.count == 0 or not fnmatch.fnmatchcase(name, rule.at) or not fnmatch.fnmatchcase(path, rule.of):
                continue
            if rule.skip > 0:
                rule.skip -= 1
                continue
            rule.count -= 1
            if rule.do == "kill":
                self.record(f"KILL {name}")
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            if rule.do.startswith("sleep:"):
                time.sleep(float(rule.do[6:]))
                continue
            return rule.do
        return ""


class FaultyOs:
    """Stands in for the module ``os`` and passes on what it does not watch."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self._paths: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _at(self, path: str, call: str, when: str) -> str:
        kind = kind_of(path)
        do = self.points.pass_by(f"{kind}.{call}.{when}", path)
        if do.startswith("errno:"):
            number = getattr(errno, do[6:])
            raise OSError(number, os.strerror(number), path)
        return do

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        new = bool(flags & os.O_CREAT) and not os.path.exists(path)
        self._at(path, "create" if new else "open", "before")
        fd = os.open(path, flags, mode)
        self._paths[fd] = path if not os.path.isdir(path) else f"{path}/"
        if new:
            self._at(path, "create", "after")
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        os.close(fd)

    def _write(self, fd: int, data: Any, write: Callable[[Any], int]) -> int:
        path = self._paths.get(fd, "")
        do = self._at(path, "write", "before")
        view = memoryview(data).cast("B")
        if do.startswith("short:") and len(view) > 1:
            return write(view[: min(len(view) - 1, max(1, int(do[6:])))])
        half = f"{kind_of(path)}.write.half"
        if len(view) > 1 and any(fnmatch.fnmatchcase(f"{self.points.phase}:{half}", r.at) for r in self.points.rules):
            # Only when a rule asks for it: two calls instead of one are a fault of their own.
            done = write(view[: len(view) // 2])
            self._at(path, "write", "half")
            return done
        done = write(data)
        self._at(path, "write", "after")
        return done

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        return self._write(fd, data, lambda piece: os.pwrite(fd, piece, offset))

    def write(self, fd: int, data: Any) -> int:
        return self._write(fd, data, lambda piece: os.write(fd, piece))

    def ftruncate(self, fd: int, size: int) -> None:
        path = self._paths.get(fd, "")
        self._at(path, "extend", "before")
        os.ftruncate(fd, size)
        self._at(path, "extend", "after")

    def fdatasync(self, fd: int) -> None:
        path = self._paths.get(fd, "")
        self._at(path, "datasync", "before")
        os.fdatasync(fd)
        self._at(path, "datasync", "after")

    def fsync(self, fd: int) -> None:
        path = self._paths.get(fd, "")
        call = "syncdir" if path.endswith("/") else "fsync"
        self._at(path, call, "before")
        os.fsync(fd)
        self._at(path, call, "after")

    def replace(self, old: str, new: str) -> None:
        self._at(new, "rename", "before")
        os.replace(old, new)
        self._at(new, "rename", "after")

    def unlink(self, path: str) -> None:
        self._at(path, "unlink", "before")
        os.unlink(path)
        self._at(path, "unlink", "after")

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._at(self._paths.get(fd, ""), "read", "before")
        return os.pread(fd, size, offset)

    def preadv(self, fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        self._at(self._paths.get(fd, ""), "read", "before")
        return os.preadv(fd, buffers, offset, flags)

    def statvfs(self, path: str) -> Any:
        do = self.points.pass_by("other.usage.before")
        real = os.statvfs(path)
        if do.startswith("used:"):
            percent = int(do[5:])
            free = (100 - percent) * 1000
            return os.statvfs_result((real.f_bsize, real.f_frsize, 100_000, free, free, *tuple(real)[5:]))
        return real


def install(points: Points, watched: FaultyOs | None = None) -> Callable[[], None]:
    """Put the watched calls under the file port; what is returned takes them away again."""
    from rmq.runtime import files

    watched = FaultyOs(points) if watched is None else watched
    old_os, old_sync = files.os, files._datasync
    files.os = watched  # type: ignore[assignment]
    files._datasync = watched.fdatasync  # type: ignore[assignment]

    def remove() -> None:
        files.os = old_os
        files._datasync = old_sync

    return remove
