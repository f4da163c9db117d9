"""Locks of open files, which fail at once where another process has one.

POSIX has record locks; Windows (``msvcrt``) locks a byte, for one alone.
"""

from __future__ import annotations

import errno
import os
from typing import Any

__all__ = ["lock_directory", "lock_first_byte"]

fcntl: Any
msvcrt: Any
try:
    import fcntl
except ImportError:
    fcntl = None
try:
    import msvcrt
except ImportError:
    msvcrt = None


def lock_first_byte(fd: int, *, shared: bool) -> None:
    """Lock the first byte of a file for this process.

    :raises OSError: EACCES or EAGAIN: another one has it; any other: it cannot be locked.
    """
    if fcntl is not None:
        fcntl.lockf(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
    elif msvcrt is not None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    else:
        raise OSError(errno.ENOLCK, "this system has no locks of files")


def lock_directory(fd: int, *, shared: bool) -> None:
    """Lock an open directory.

    :raises OSError: EACCES or EAGAIN: another process has it; any other: it cannot be locked.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, "this system has no locks of directories")
    fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
