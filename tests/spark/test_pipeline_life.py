"""A job's life: watched over HTTP, stopped between two batches. test_spark_standalone.py submits one."""

from __future__ import annotations

import io
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq.protocol.errors import RMQError
from rmq.spark.pipeline.running.runner import run_in
from rmq.spark.pipeline.running.stop import Stop
from rmq.testing.cluster import BlockingCluster
from tests.support.spark.jobs import Bench

pytestmark = pytest.mark.timeout(600)

ARCHIVE = (
    "job: archive\ncluster:\n  nameServer: {namesrv}\nsource:\n  topics: [Events]\n  startingOffsets: earliest\n"
    "checkpoint: {folder}/checkpoint\npath: {folder}/archive\n"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with BlockingCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


class _Terminal(io.StringIO):
    """Reads the metrics when the first batch is shown, and then asks the job to stop."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop
        self.metrics = ""

    def write(self, text: str) -> int:
        address = re.search(r"http://\S+/metrics", self.getvalue())
        if "batch 0" in text and address and not self.metrics:
            with urllib.request.urlopen(address[0], timeout=300) as answer:
                self.metrics = answer.read().decode()
            self._stop.asked = True
        return super().write(text)


def test_a_running_job_is_watched_and_stopped(cluster: BlockingCluster, spark: Any, tmp_path: Path) -> None:
    bench = Bench(cluster, spark, tmp_path)
    bench.create("Events")
    bench.send("Events", ["a", "b", "c"])
    stop = Stop()
    out = _Terminal(stop)
    watch = run_in(spark, bench.load(ARCHIVE + "trigger: 1s\nmetrics:\n  port: 0\n"), out, stop)
    assert 'rmq_pipeline_rows_total{job="job",kind="archive"} 3\n' in out.metrics
    assert 'rmq_pipeline_lag_messages{job="job",kind="archive",topic="Events"} 0\n' in out.metrics
    assert out.getvalue().splitlines()[-1].startswith("job: stopped: 3 rows in 1 batch")
    assert (watch.rows, spark.streams.active) == (3, [])


def test_what_spark_says_in_many_lines_is_one(cluster: BlockingCluster, spark: Any, tmp_path: Path) -> None:
    bench = Bench(cluster, spark, tmp_path)
    with pytest.raises(RMQError) as raised:
        bench.run(ARCHIVE.replace("Events", "Nowhere") + "trigger: 1s\n", name="orders")
    said = str(raised.value)
    assert said.startswith("the job orders failed: ")
    assert "Nowhere" in said
    assert "\n" not in said
