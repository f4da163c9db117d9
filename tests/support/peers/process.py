"""Processes that tests start: their own group, a log file, a ready line, and an end that is sure.

Besides stop() and atexit there is a reaper: a small process that holds the read end of a pipe from us. When the
pipe closes, however this process died, it kills every group that is still listed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Seconds that a program may take for anything, a JVM on a busy machine included. Nothing waits so long but a failure.
PATIENCE = 120.0

_REAPER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
alive = set()
for line in sys.stdin:
    sign, pid = line[0], int(line[1:])
    (alive.add if sign == '+' else alive.discard)(pid)
for pid in alive:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
"""


class ProcessFailed(RuntimeError):
    """A process ended, or did not get ready, when it should have run; the text has the end of its log."""


class _Reaper:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def note(self, sign: str, pid: int) -> None:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _REAPER],
                    stdin=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                atexit.register(self._close)
            assert self._process.stdin is not None
            self._process.stdin.write(f"{sign}{pid}\n")
            self._process.stdin.flush()

    def _close(self) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait(PATIENCE)


_reaper = _Reaper()


def kill_group(process: subprocess.Popen[bytes], *, grace: float = 0.0) -> int:
    """End a process that leads its own group: SIGTERM and `grace` seconds first (0: none), then SIGKILL to the group.

    Returns the exit code.
    """
    if grace and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    _reaper.note("-", process.pid)
    return code


def spawn(
    command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str] | None = None, pipes: bool = False
) -> subprocess.Popen[bytes]:
    """Start a process as leader of its own group; standard error (and, without `pipes`, output) goes to `log`."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(env) if env is not None else None,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else out,
            stderr=out,
            start_new_session=True,
        )
    _reaper.note("+", process.pid)
    return process


class Daemon:
    """One server process with its log.

    Arguments: name for messages; the command; the folder it runs in; the text its output must hold to count as ready.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        ready: str = "boot success",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.log = folder / f"{name}.out"
        self._ready = ready
        self._env = env
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; the daemon must have been started."""
        assert self.process is not None, f"{self.name} was not started"
        return self.process.pid

    def start(self, timeout: float = PATIENCE) -> None:
        """Start it and return when its output holds the ready text; ProcessFailed with the log's end otherwise."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        self.process = spawn(self.command, log=self.log, cwd=self.folder, env=self._env)
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None
            if self._ready in self.log.read_bytes()[begin:].decode(errors="replace"):
                return
            if ended or time.monotonic() > deadline:
                code = kill_group(self.process)
                what = f"ended with exit code {code}" if ended else f"was not ready within {timeout:.0f} s"
                raise ProcessFailed(f"{self.name} {what}; the end of its output:\n{self.tail()}")
            time.sleep(0.02)

    def stop(self, grace: float = PATIENCE) -> int:
        """SIGTERM, then SIGKILL after `grace` seconds; returns the exit code. Safe to call twice."""
        return kill_group(self.process, grace=grace) if self.process is not None else 0

    def kill(self) -> None:
        """SIGKILL at once, as a crash would be."""
        if self.process is not None:
            kill_group(self.process)

    def tail(self, lines: int = 30) -> str:
        """The last lines of its output."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
