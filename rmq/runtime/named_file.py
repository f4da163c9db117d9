"""Reads a file that somebody has named: it may be too long, a folder, a device, or a pipe that nobody writes to.

``/dev/zero`` never ends, a FIFO without a writer does not open, and a folder opens and cannot be read. Whoever names
one of them by mistake is told so within a bounded time, and before anything works on what was read.
"""

from __future__ import annotations

import errno
import os
import select
import stat

__all__ = ["read_named"]

#: Seconds without a byte after which a pipe is given up; whoever feeds one (``-f <(command)``) may take its time.
SILENT_SECONDS = 30.0
_PIECE = 1 << 20
#: A FIFO opens at once, whether somebody writes to it or not; and nothing is made of line ends (Windows).
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def read_named(path: str, most: int, *, plain: bool = False) -> bytes:
    """Everything that stands in a file.

    :param most: bytes that are taken. :param plain: somebody else opens it again: no pipe and no device will do.
    :raises OSError: it cannot be read, with a ``strerror`` for people: it is not there, not for us, a folder, longer
        than ``most``, or a pipe into which nobody writes for 30 seconds.
    """
    try:
        fd = os.open(path, _FLAGS)
    except ValueError as error:  # a NUL within the name
        raise OSError(errno.EINVAL, f"this can be no name of a file: {error}") from None
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if plain and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, and a file on a disk is expected", path)
        return _whole(path, fd, most, waits=not stat.S_ISREG(mode))
    finally:
        os.close(fd)


def _whole(path: str, fd: int, most: int, *, waits: bool) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= most:
        if waits:
            _await(path, fd)
        try:
            part = os.read(fd, min(most + 1 - size, _PIECE))
        except BlockingIOError:
            continue
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise OSError(errno.EFBIG, f"it is longer than {most} bytes", path)


def _await(path: str, fd: int) -> None:
    """Until there is something to read, or whoever wrote has closed it."""
    if not hasattr(select, "poll"):
        return
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    if not waiting.poll(SILENT_SECONDS * 1000):
        raise TimeoutError(errno.ETIMEDOUT, f"nobody has written into this pipe for {SILENT_SECONDS:g} seconds", path)
