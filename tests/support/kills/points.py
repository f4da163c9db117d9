"""The killer in virtual time: a store's process dies at a point that :mod:`tests.support.faults.os_calls` names.

A real process takes seconds a death, this one milliseconds: every point is met with every type of flush, many times.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

from rmq.broker.store.store import Store
from rmq.runtime.world import File, World
from rmq.testing.simdisk import SimDisk
from rmq.testing.simfiles import SimCrash, SimFiles
from tests.support.faults.os_calls import kind_of

__all__ = ["Killer", "watched"]


class Killer:
    """Counts the points of one process and ends it at one of them.

    :param point: where; "" = nowhere.
    :param skip: so often it is let pass.
    """

    def __init__(self, point: str = "", skip: int = 0) -> None:
        self.point = point
        self.phase = "recover"
        self.seen: Counter[str] = Counter()
        #: It has died there.
        self.struck = False
        self._skip = skip
        self._freeze: Callable[[], None] = lambda: None

    def of(self, files: SimFiles) -> None:
        self._freeze = files.freeze

    def pass_by(self, what: str) -> None:
        """The point ``phase:what``.

        :raises SimCrash: this is where the process dies.
        """
        name = f"{self.phase}:{what}"
        self.seen[name] += 1
        if name != self.point or self.struck:
            return
        if self._skip > 0:
            self._skip -= 1
            return
        self.struck = True
        self._freeze()
        raise SimCrash(f"killed at {name}")


class _File:
    """A file with points before, within and after what is done to it."""

    def __init__(self, file: File, killer: Killer) -> None:
        self._file = file
        self._killer = killer
        self._kind = kind_of(file.path)
        self.path = file.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _do(self, call: str, do: Callable[[], None]) -> None:
        self._killer.pass_by(f"{self._kind}.{call}.before")
        do()
        self._killer.pass_by(f"{self._kind}.{call}.after")

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._killer.pass_by(f"{self._kind}.write.before")
        whole = memoryview(data).cast("B")
        half = len(whole) // 2
        if half:
            self._file.pwrite(whole[:half], offset)
            self._killer.pass_by(f"{self._kind}.write.half")
        self._file.pwrite(whole[half:], offset + half)
        self._killer.pass_by(f"{self._kind}.write.after")

    def allocate(self, size: int) -> None:
        if size > self._file.size():
            self._do("extend", lambda: self._file.allocate(size))

    def truncate(self, size: int) -> None:
        self._do("extend", lambda: self._file.truncate(size))

    def datasync(self) -> None:
        self._do("datasync", self._file.datasync)


class _Files(SimFiles):
    def __init__(self, disk: SimDisk, killer: Killer) -> None:
        super().__init__(disk)
        self._killer = killer
        killer.of(self)

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        kind = kind_of(path)
        new = create and not self.exists(path)
        if new:
            self._killer.pass_by(f"{kind}.create.before")
        file = super().open(path, create=create, readonly=readonly)
        if new:
            self._killer.pass_by(f"{kind}.create.after")
        return file if readonly else _File(file, self._killer)

    def rename(self, old: str, new: str) -> None:
        self._killer.pass_by(f"{kind_of(new)}.rename.before")
        super().rename(old, new)
        self._killer.pass_by(f"{kind_of(new)}.rename.after")

    def unlink(self, path: str) -> None:
        self._killer.pass_by(f"{kind_of(path)}.unlink.before")
        super().unlink(path)
        self._killer.pass_by(f"{kind_of(path)}.unlink.after")

    def sync_dir(self, path: str) -> None:
        self._killer.pass_by(f"{kind_of(path)}.syncdir.before")
        super().sync_dir(path)
        self._killer.pass_by(f"{kind_of(path)}.syncdir.after")


def _around(owner: Any, name: str, killer: Killer, what: str) -> None:
    real = getattr(owner, name)

    def passed(*arguments: Any, **named: Any) -> Any:
        killer.pass_by(f"{what}.before")
        result = real(*arguments, **named)
        killer.pass_by(f"{what}.after")
        return result

    setattr(owner, name, passed)


def watched(
    world: World, disk: SimDisk, killer: Killer, make: Callable[[World, Callable[[Any], None]], Store], send: Any
) -> Store:
    """A store whose every change of the disk is a point, as are appends, rolls, ends of flushes and answers.

    :param make: builds the store of its world and of who sends the answers.
    :param send: what sends them.
    """

    def answer(answers: Any) -> None:
        killer.pass_by("client.answer.before")
        send(answers)
        killer.pass_by("client.answer.after")

    store = make(dataclasses.replace(world, files=_Files(disk, killer)), answer)
    _around(store.durability, "on_flushed", killer, "store.flushed")
    _around(store.log, "roll", killer, "store.roll")
    _around(store, "append", killer, "store.append")
    return store
