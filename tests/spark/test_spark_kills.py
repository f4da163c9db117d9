"""Killed in the middle of a batch: the driver, and the Python workers of an executor."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers.cluster import Cluster
from tests.support.spark.drivers import Driver
from tests.support.spark.topics import create, fill, open_batches, places, stored

pytestmark = pytest.mark.timeout(600)


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
