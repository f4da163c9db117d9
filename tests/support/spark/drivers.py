"""Runs of :mod:`tests.support.spark.driver`, which tests kill, or let run beside each other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from tests.support.peers.cluster import Cluster
from tests.support.peers.process import kill_group, spawn

__all__ = ["Driver"]

ROOT = Path(__file__).parents[3]


class Driver:
    """One run of tests/support/spark/driver.py, in a process group of its own."""

    def __init__(self, master: str, cluster: Cluster, topic: str, folder: Path, *more: str) -> None:
        self.folder = folder
        self._log = folder / f"driver-{uuid.uuid4().hex[:8]}.log"
        command = [sys.executable, "-m", "tests.support.spark.driver", master, cluster.namesrv, topic, str(folder)]
        command += more
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self.process: subprocess.Popen[bytes] = spawn(command, log=self._log, cwd=ROOT, env=env)

    def until_open(self, tasks: int) -> list[list[int]]:
        """Wait until so many tasks stand at the gate; their (partition, attempt, pid, pid of the parent)."""
        while len(found := sorted(self.folder.glob("open-*"))) < tasks:
            assert self.process.poll() is None, self.tail()
            time.sleep(0.02)
        return [[int(part) for part in path.name.split("-")[1:]] for path in found]

    def end(self) -> str:
        """Wait for its own end; what it printed."""
        assert self.code() == 0, self.tail()
        return self.tail()

    def code(self) -> int:
        """Wait for its own end; how it ended."""
        return self.process.wait(500)

    def kill(self) -> None:
        kill_group(self.process)

    def tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
