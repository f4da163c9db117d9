"""Killed in the middle of a batch: the driver, and the Python workers of an executor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers.cluster import Cluster
from tests.support.peers.process import kill_group, spawn
from tests.support.spark.topics import create, fill, open_batches, places, stored

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]


class Driver:
    """One run of tests/support/spark/driver.py, in a process group of its own."""

    def __init__(self, master: str, cluster: Cluster, topic: str, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "driver.log"
        command = [sys.executable, "-m", "tests.support.spark.driver", master, cluster.namesrv, topic, str(folder)]
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
        assert self.process.wait(500) == 0, self.tail()
        return self.tail()

    def kill(self) -> None:
        kill_group(self.process)

    def tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    create(cluster.namesrv, cluster.broker_addr, "kills")
    fill(cluster.namesrv, "kills", 5000, size=12_000)
    return "kills"


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill()


def batches(spark: Any) -> str:
    """The rows of each batch, as the driver prints them; before Spark 4.2 there are no portions."""
    return "[5000]" if spark.version.startswith(("4.0", "4.1")) else "[3000, 2000]"


def children(parent: int) -> set[int]:
    """Processes whose parent this is, without those that have ended."""
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                state, of = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(of) == parent and state != "Z":
                found.add(int(path.name))
    return found


def test_a_driver_killed_within_a_batch(
    spark: Any, cluster: Cluster, topic: str, tmp_path: Path, drivers: list[Driver]
) -> None:
    """Started again from its checkpoint it reads the open batch again, the same one, and then the rest."""
    drivers.append(Driver("local[2]", cluster, topic, tmp_path))
    drivers[0].until_open(2)
    assert open_batches(tmp_path / "checkpoint") == {"0"}
    planned = (tmp_path / "checkpoint/offsets/0").read_text()
    drivers[0].kill()
    (tmp_path / "go").touch()
    drivers.append(Driver("local[2]", cluster, topic, tmp_path))
    assert batches(spark) in drivers[1].end()
    assert (tmp_path / "checkpoint/offsets/0").read_text() == planned
    assert places(spark.read.parquet(str(tmp_path / "out")).collect()) == stored(cluster.namesrv, topic)


def test_python_workers_killed_within_a_batch(
    spark: Any, cluster: Cluster, topic: str, tmp_path: Path, drivers: list[Driver]
) -> None:
    """Readers and all: their tasks are tried again, and the batch has each message once."""
    drivers.append(Driver("local[2,3]", cluster, topic, tmp_path))
    tasks = drivers[0].until_open(2)
    assert open_batches(tmp_path / "checkpoint") == {"0"}
    assert {attempt for _, attempt, _, _ in tasks} == {0}
    (daemon,) = {parent for _, _, _, parent in tasks}
    workers = children(daemon)
    assert {pid for _, _, pid, _ in tasks} < workers, "beside those at the gate there are the readers"
    for path in tmp_path.glob("open-*"):
        path.unlink()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    again = drivers[0].until_open(2)
    assert {attempt for _, attempt, _, _ in again} == {1}
    (tmp_path / "go").touch()
    assert batches(spark) in drivers[0].end()
    assert places(spark.read.parquet(str(tmp_path / "out")).collect()) == stored(cluster.namesrv, topic)
