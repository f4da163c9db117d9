"""What the interpreter does while something runs: processes, files, code made of texts (``sys.addaudithook``).

A hook cannot be taken away again: there is one, and it does nothing but while :func:`watched` is entered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Audit", "watched"]

#: A process begins, or would.
_PROCESSES = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "os.fork", "os.forkpty",
    "pty.spawn",
)  # fmt: skip
#: A text or bytes become code or objects.
_CODE = ("compile", "exec", "pickle.find_class", "marshal.loads", "code.__new__", "function.__new__")
#: The arguments are paths.
_PATHS = (
    "open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod",
    "os.chown", "os.listdir", "os.scandir", "shutil.rmtree", "shutil.move", "shutil.copyfile",
)  # fmt: skip
#: May be read wherever the store is: the interpreter and its packages, what the system tells.
_READ_ANYWHERE = tuple({sys.prefix, sys.base_prefix, "/usr/lib", "/proc/", "/sys/", "/dev/", "/etc/", os.getcwd()})
#: Makes functions of the declarations in its callers' classes.
_GENERATES = ("/rmq/protocol/header.py", "/dataclasses.py")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Audit:
    """What was seen.

    :param root: the folder below which everything may happen.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        #: What should not have happened.
        self.found: list[str] = []
        #: Events that were looked at.
        self.events = 0

    def see(self, event: str, args: tuple[object, ...]) -> None:
        if event in _PROCESSES:
            self.events += 1
            self.found.append(f"{event}{args!r:.200}")
        elif event in _CODE:
            self.events += 1
            if not _importing(sys._getframe(2)):
                self.found.append(f"{event}{args!r:.200}")
        elif event in _PATHS:
            self.events += 1
            if event == "open":
                path, mode, flags = args
                reads = not (flags & _WRITING if isinstance(flags, int) else set(str(mode)) & set("wax+"))
                paths: tuple[object, ...] = (path,)
            else:
                reads, paths = event in ("os.listdir", "os.scandir"), args
            for path in paths:
                if isinstance(path, (str, bytes)) and not self._allowed(os.fsdecode(path), reads):
                    self.found.append(f"{event}{args!r:.200}")

    def _allowed(self, path: str, reads: bool) -> bool:
        where = os.path.realpath(path)
        if where == self.root or where.startswith(self.root + os.sep):
            return True
        return reads and where.startswith(_READ_ANYWHERE)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported, or readers are made of declarations: some are when they are used first."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib") or frame.f_code.co_filename.endswith(_GENERATES):
            return True
        frame = frame.f_back
    return False


_now: Audit | None = None
_hooked = False


def _hook(event: str, args: tuple[object, ...]) -> None:
    audit = _now
    if audit is not None:
        audit.see(event, args)


@contextmanager
def watched(root: str) -> Iterator[Audit]:
    """Look at every event of this process until it is left."""
    global _now, _hooked
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True
    _now = audit = Audit(root)
    try:
        yield audit
    finally:
        _now = None
