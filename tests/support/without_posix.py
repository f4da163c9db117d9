"""Makes this process a poor one: without the modules, functions and signals that only POSIX has, as on Windows.

Run before anything of ``rmq`` is imported.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any, NoReturn

__all__ = ["become_poor"]

_MODULES = frozenset({"fcntl", "grp", "pwd", "readline", "resource", "syslog", "termios", "uvloop"})
_OF_OS = (
    "O_CLOEXEC", "RWF_NOWAIT", "SEEK_DATA", "fdatasync", "fork", "geteuid", "getuid", "posix_fadvise",
    "posix_fallocate", "pread", "preadv", "pwrite", "register_at_fork", "sched_getaffinity", "statvfs", "sync",
    "sysconf",
)  # fmt: skip
_OF_SIGNAL = ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "pthread_sigmask", "setitimer")


class _Finder:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in _MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class _Loop(asyncio.SelectorEventLoop):
    """Refuses what the proactor's refuses."""

    def add_signal_handler(self, *arguments: Any) -> NoReturn:  # type: ignore[override]
        raise NotImplementedError

    def remove_signal_handler(self, *arguments: Any) -> NoReturn:
        raise NotImplementedError

    def add_reader(self, *arguments: Any) -> NoReturn:  # type: ignore[override]
        raise NotImplementedError

    def add_writer(self, *arguments: Any) -> NoReturn:  # type: ignore[override]
        raise NotImplementedError

    def remove_reader(self, *arguments: Any) -> NoReturn:
        raise NotImplementedError

    def remove_writer(self, fd: Any) -> bool:
        if sys._getframe(1).f_globals["__name__"] != "asyncio.selector_events":  # its own sock_connect has a writer
            raise NotImplementedError
        return super().remove_writer(fd)

    async def create_unix_connection(self, *arguments: Any, **named: Any) -> NoReturn:
        raise NotImplementedError

    async def create_unix_server(self, *arguments: Any, **named: Any) -> NoReturn:
        raise NotImplementedError


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _Loop()


def become_poor() -> None:
    """Take away what Windows has not."""
    assert not any(name == "rmq" or name.startswith("rmq.") for name in sys.modules)
    asyncio.set_event_loop_policy(_Policy())
    for name in _MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
    for name in _OF_OS:
        if hasattr(os, name):
            delattr(os, name)
    for name in _OF_SIGNAL:
        if hasattr(signal, name):
            delattr(signal, name)
