"""A terminal in which ``mqadmin`` and ``rmq`` run against a cluster in virtual time: what a line prints, every time."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import click

from rmq.cli.command import invoke
from rmq.cli.mqadmin.commands import root
from rmq.cli.rmq import command as everything
from rmq.runtime.real import RealClock
from rmq.testing.simcluster import BlockingSimCluster

__all__ = ["BEGIN", "Shell", "Still", "began_then"]

#: What the clocks of every cluster begin with.
BEGIN = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
_COMMANDS: dict[str, click.Command] = {"mqadmin": root, "rmq": everything}
_Work = Coroutine[Any, Any, Any]


@contextlib.contextmanager
def began_then() -> Iterator[None]:
    """Clusters that are made meanwhile begin at :data:`BEGIN`, and times are written as in UTC."""
    before = os.environ.get("TZ")
    ms = int(BEGIN.timestamp() * 1000)
    with mock.patch.object(RealClock, "now_ms", return_value=ms):
        os.environ["TZ"] = "UTC"
        time.tzset()
        try:
            yield
        finally:
            os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
            time.tzset()


class Still(BlockingSimCluster):
    """A cluster whose time stands still between two lines, and which runs on the thread that types them."""

    def start(self) -> None:
        self.call(lambda cluster: cluster.start())


class _Screen(io.TextIOWrapper):
    """Texts and bytes, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", write_through=True)

    def text(self) -> str:
        written: io.BytesIO = self.buffer  # type: ignore[assignment]
        return written.getvalue().decode()


class Shell:
    """Takes lines as a user types them.

    :param folder: where commands write their files. :param environment: beside what every line has.
    """

    def __init__(self, cluster: BlockingSimCluster, folder: Path, **environment: str) -> None:
        self.cluster = cluster
        #: Does what a line that begins with ``ssh`` says to a machine of the scene.
        self.act: Callable[[list[str]], None] | None = None
        self.folder = folder
        self.code = 0
        self._environment = {
            "NAMESRV_ADDR": cluster.namesrv_addr,
            "MQADMIN_OUTPUT": "table",  # as on a terminal
            "COLUMNS": "110",
            **environment,
        }

    def run(self, line: str) -> str:
        """What a line prints, errors included; :attr:`code` is how it ended.

        What stands behind ``|`` gets standard output, and is the machine's own.
        """
        if line == "echo $?":
            return f"{self.code}\n"
        name = line.split()[0]
        if name == "ssh" and self.act is not None:
            self.act(line.split()[1:])
            self.code = 0
            return ""
        if name not in _COMMANDS:
            return self._machine(line, "")
        command, pipe, rest = line.partition(" | ")
        words = shlex.split(command)
        shown = _Screen()
        out = _Screen() if pipe else shown
        with (
            mock.patch.dict(os.environ, self._environment),
            mock.patch("asyncio.run", self._to_end),
            mock.patch("rmq.runtime.loop.run", self._to_end),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(shown),
        ):
            self.code = invoke(_COMMANDS[name], name, words[1:])
        return (self._machine(rest, out.text()) if pipe else "") + shown.text()

    def _to_end(self, work: _Work, **how: object) -> object:
        async def alone() -> object:
            # A loop of its own, as a process has: what it left running ends with it.
            return await asyncio.ensure_future(work)

        run: Callable[..., _Work] = lambda cluster: alone()  # noqa: E731
        return self.cluster.call(run)

    def _machine(self, line: str, given: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line], input=given, capture_output=True, text=True, cwd=self.folder, timeout=60, check=False
        )
        self.code = done.returncode
        return done.stdout + done.stderr
