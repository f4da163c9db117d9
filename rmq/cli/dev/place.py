"""The folder of a cluster of `rmq dev`: what it says of the cluster, who runs it, and what may be removed from it.

============  ==========================================================================================
dev.json      that the folder is one of `rmq dev`, and where its cluster listens; it stays after a stop
dev.pid       the process, while it runs
namesrv, store, store-...   what name server and brokers keep; logs: log files
n0.conf, n0.out   the settings of a member of a group, and what it has said (group.py)
============  ==========================================================================================
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass

from rmq.cli.command import Refused
from rmq.cli.daemon import pid_of

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """:param folder: an absolute path."""

    folder: str

    @property
    def _about(self) -> str:
        return os.path.join(self.folder, "dev.json")

    @property
    def _pid(self) -> str:
        return os.path.join(self.folder, "dev.pid")

    def running(self) -> int | None:
        """The process that runs it."""
        return pid_of(self._pid, "rmq")

    def namesrv(self) -> str | None:
        """Where it listens or listened, if the folder is one of ours."""
        try:
            with open(self._about, encoding="utf-8") as file:
                said = json.load(file)
        except (OSError, ValueError):
            return None
        address = said.get("namesrv") if isinstance(said, dict) else None
        return address if isinstance(address, str) else None

    def begin(self, namesrv: str) -> None:
        """Note that the cluster is up. :raises OSError: the folder cannot be written."""
        with open(self._about, "w", encoding="utf-8") as file:
            json.dump({"namesrv": namesrv}, file)
        with open(self._pid, "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")

    def end(self) -> None:
        if self.running() == os.getpid():
            os.unlink(self._pid)

    def reset(self) -> list[str]:
        """Remove what an earlier run kept, logs excepted: the folders that are gone.

        :raises Refused: a cluster runs there, or the folder was not made by `rmq dev`: it may hold somebody's messages.
        """
        self.refuse_running()
        named = [name for name in self._names() if name in ("namesrv", "store") or name.startswith("store-")]
        kept = [name for name in named if os.path.isdir(os.path.join(self.folder, name))]
        if kept and self.namesrv() is None:
            raise Refused(f"{self.folder} was not made by rmq dev: remove {', '.join(kept)} by hand if it may go")
        for name in kept:
            shutil.rmtree(os.path.join(self.folder, name))
        for name in self._names() if kept else []:
            if re.fullmatch(r"n\d+\.(conf|out)", name):
                os.unlink(os.path.join(self.folder, name))
        return kept

    def refuse_running(self) -> None:
        """:raises Refused: a cluster runs there."""
        if (pid := self.running()) is not None:
            raise Refused(
                f"the cluster in {self.folder} runs (process {pid}): stop it with rmq dev stop --folder {self.folder}"
            )

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return []
