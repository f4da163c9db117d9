"""The members of ``rmq dev --raft 3``: a process each, so that one can be killed and started again.

A member's settings are in ``n0.conf`` of the folder, its store in ``store-n0``, what it has said at its start in
``n0.out``. They are found by the pid files in their stores, whoever has started them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping

from rmq.cli.daemon import pid_of
from rmq.cli.dev.place import Place
from rmq.protocol.errors import RMQError

__all__ = ["Members"]

#: Seconds that a member has to come up, and all of them to stop; between two looks.
_UP, _DOWN, _LOOK = 60.0, 30.0, 0.05


class Members:
    """:param names: of the members; those that the folder has settings of, where they are not given."""

    def __init__(self, place: Place, names: list[str] | None = None) -> None:
        self._place = place
        self.names = list(self._written()) if names is None else names
        #: Those that this process has started.
        self._children: dict[int, str] = {}

    def _written(self) -> Iterator[str]:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self._place.folder)):
                if name.startswith("n") and name.endswith(".conf") and name[1:-5].isdigit():
                    yield name[:-5]

    def store(self, name: str) -> str:
        """Where a member keeps what it has."""
        return os.path.join(self._place.folder, f"store-{name}")

    def conf(self, name: str) -> str:
        """The file of its settings."""
        return os.path.join(self._place.folder, f"{name}.conf")

    def write(self, name: str, settings: Mapping[str, str]) -> None:
        """Write its settings. :raises OSError: the folder cannot be written."""
        os.makedirs(self._place.folder, exist_ok=True)
        with open(self.conf(name), "w", encoding="utf-8") as file:
            file.writelines(f"{key}={_escaped(value)}\n" for key, value in settings.items())

    def running(self) -> dict[str, int]:
        """The processes of those that serve."""
        found = {name: pid_of(os.path.join(self.store(name), "broker.pid"), "mqbroker") for name in self.names}
        return {name: pid for name, pid in found.items() if pid is not None}

    def begin(self, name: str) -> int:
        """Start one in a session of its own, which Ctrl-C here does not reach; its process."""
        folder = self._place.folder
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, self._said(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        command = [sys.executable, "-m", "rmq.cli.mqbroker", "-c", self.conf(name)]
        environment = {**os.environ, "RMQ_LOG_DIR": os.path.join(folder, "logs", name)}
        pid = os.posix_spawn(sys.executable, command, environment, file_actions=actions, setsid=True)
        self._children[pid] = name
        return pid

    async def up(self, name: str) -> int:
        """Wait until one that was started here serves; its process.

        :raises RMQError: it has ended, and this is why, or it does not come up.
        """
        for _ in range(round(_UP / _LOOK)):
            if name in (running := self.running()):
                return running[name]
            if name in self.ended():
                break
            await asyncio.sleep(_LOOK)
        raise RMQError(f"the member {name}: {self._last_word(name)} ({self._said(name)} has what it said)")

    def _last_word(self, name: str) -> str:
        with open(self._said(name), encoding="utf-8", errors="replace") as file:
            lines = file.read().strip().splitlines()
        return lines[-1] if lines else "it did not come up in time"

    def ended(self) -> list[str]:
        """Those that were started here, and have ended since the last look."""
        over = [pid for pid in self._children if os.waitpid(pid, os.WNOHANG)[0] == pid]
        return [self._children.pop(pid) for pid in over]

    async def watch(self, told: Callable[[str], None]) -> None:
        """Tell of those that end, again and again."""
        while True:
            await asyncio.sleep(10 * _LOOK)
            for name in self.ended():
                told(name)

    async def stop(self) -> list[str]:
        """Stop all that run, whoever has started them; those that did not end."""
        for pid in {*self.running().values(), *self._children}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for _ in range(round(_DOWN / _LOOK)):
            self.ended()
            if not self._children and not self.running():
                break
            await asyncio.sleep(_LOOK)
        return sorted({*self.running(), *self._children.values()})

    def _said(self, name: str) -> str:
        return os.path.join(self._place.folder, f"{name}.out")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
