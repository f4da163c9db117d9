"""What a test does to the disk and the clock of a broker's process while that runs.

Both have a page of shared memory. The test writes there what is wrong, and the process, started by
:mod:`tests.support.faults.broker` with ``RMQTEST_SICKNESS``, looks there at each call:

======  ======  ================================================================================================
offset  type    meaning
======  ======  ================================================================================================
0       double  seconds that each forcing call takes longer
8       double  error number of each write and of each new file; 0 = none
16      double  error number of each forcing call; 0 = none
24      double  milliseconds by which the wall clock is wrong; the monotonic one never is
======  ======  ================================================================================================
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

from rmq.runtime.real import RealClock
from tests.support.faults.os_calls import FaultyOs, Points

__all__ = ["SickOs", "Sickness", "plant_clock"]

_SIZE = 32


class Sickness:
    """The page.

    :param path: the file that it is of; made, with nothing wrong, when it is not there.
    """

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(fd, _SIZE)
            self._page = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)

    def _get(self, at: int) -> float:
        found: float = struct.unpack_from("<d", self._page, at)[0]
        return found

    @property
    def flush(self) -> float:
        """Seconds that each forcing call takes longer."""
        return self._get(0)

    @flush.setter
    def flush(self, seconds: float) -> None:
        struct.pack_into("<d", self._page, 0, seconds)

    @property
    def error(self) -> int:
        """Of each write and of each new file, as ``errno`` has them; 0 = none."""
        return int(self._get(8))

    @error.setter
    def error(self, number: int) -> None:
        struct.pack_into("<d", self._page, 8, number)

    @property
    def broken(self) -> int:
        """Error number of each forcing call; 0 = none."""
        return int(self._get(16))

    @broken.setter
    def broken(self, number: int) -> None:
        struct.pack_into("<d", self._page, 16, number)

    @property
    def clock(self) -> int:
        """Milliseconds by which the wall clock is wrong."""
        return int(self._get(24))

    @clock.setter
    def clock(self, ms: int) -> None:
        struct.pack_into("<d", self._page, 24, ms)


class SickOs(FaultyOs):
    """The system calls of the file port on a disk that is sick below ``root``."""

    def __init__(self, points: Points, sickness: Sickness, root: str) -> None:
        super().__init__(points)
        self._sickness = sickness
        self._root = f"{root}/"

    def _refused(self, path: str) -> None:
        if (number := self._sickness.error) and path.startswith(self._root):
            raise OSError(number, os.strerror(number), path)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            self._refused(path)
        return super().open(path, flags, mode)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        self._refused(self._paths.get(fd, ""))
        return super().pwrite(fd, data, offset)

    def write(self, fd: int, data: Any) -> int:
        self._refused(self._paths.get(fd, ""))
        return super().write(fd, data)

    def _forced(self, fd: int) -> None:
        time.sleep(self._sickness.flush)
        if number := self._sickness.broken:
            raise OSError(number, os.strerror(number), self._paths.get(fd, ""))

    def fdatasync(self, fd: int) -> None:
        self._forced(fd)
        super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        self._forced(fd)
        super().fsync(fd)


def plant_clock(sickness: Sickness) -> None:
    """Have the wall clock of this process be wrong by what the page says."""
    real = RealClock.now_ms

    def now_ms(self: RealClock) -> int:
        return real(self) + sickness.clock

    RealClock.now_ms = now_ms  # type: ignore[method-assign]
