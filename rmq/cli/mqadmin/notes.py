"""The file of undo notes: what was changed last stands first, so that running it goes back step by step."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rmq.runtime.world import Files

__all__ = ["put_first"]


def put_first(files: Files, path: str, lines: Iterable[str]) -> None:
    """Write lines before what is in a file; behind the ``#!`` line of one that has it.

    What is no file, a pipe or a terminal, is written to.

    :raises OSError: from the disk.
    """
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    path = os.path.realpath(path)  # a link stays one
    if os.path.exists(path) and not os.path.isfile(path):
        # A pipe that nobody reads from says so at once.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)), "ab") as file:
            file.write(text)
        return
    with _alone(os.path.dirname(path)):
        try:
            old = files.read(path)
        except FileNotFoundError:
            old = b""
        head, rest = b"", old
        if old.startswith(b"#!"):
            head, end, rest = old.partition(b"\n")
            head += end or b"\n"
        files.write_atomic(path, head + text + rest)


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Two commands that end at the same moment write one after the other, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
