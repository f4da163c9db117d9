"""Reports on dead letters under faults: a run tells of all of them or fails, and each file of a report stays whole."""

from __future__ import annotations

import builtins
import errno
import json
import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

import pyarrow as pa

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import RMQError, StoreError
from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SourceOptions
from rmq.spark.pipeline import catalog, document
from rmq.spark.pipeline.running import charts, dead_letters
from rmq.spark.pipeline.running.report import Dead
from rmq.spark.pipeline.running.stop import Stop
from rmq.spark.source import one_range
from rmq.spark.source.resolve import ranges_of_batch
from rmq.spark.source.task import Reading
from tests.support.spark.memory import NAMESRV, MemoryBroker, MemoryCluster

FILES = ["dead-letters-by-group.png", "dead-letters-over-time.png", "report.html", "report.json"]
JOB = f"job: dead-letters\ncluster:\n  nameServer: {NAMESRV}\nconnections: false\nreport: "


class Killed(BaseException):
    """The machine went away."""


class Jobs:
    """Runs of the job against a cluster in memory, whose rows are counted here instead of by Spark.

    ``step`` is called before each step of writing a file, with its path.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.cluster = MemoryCluster()
        self.cluster.brokers.append(MemoryBroker("broker-b"))
        for group in ("payers", "mailers"):
            self.cluster.create(f"%DLQ%{group}")
        self.folder = folder
        self.step: Callable[[str], None] = lambda path: None
        self.written: set[bytes] = set()
        self.job: Any = catalog.of("job.yaml", document.parse("job.yaml", f"{JOB}{folder}\n", {}))
        patch.setattr(dead_letters, "connect", lambda endpoint: Brokers(endpoint, self.cluster))
        patch.setattr(dead_letters, "_rows", self._rows)
        patch.setattr(dead_letters, "_analyse", self._analyse)
        patch.setattr(dead_letters, "open", self._open, raising=False)
        patch.setattr(dead_letters.os, "replace", self._replace)
        patch.setattr(charts, "require", lambda: None)
        for name in ("stacked", "bars"):
            patch.setattr(charts, name, lambda title, groups, *more: f"{sorted(groups)} is drawn".encode())
        self._plain_replace = os.rename

    def _rows(self, spark: object, job: Any, topics: list[str]) -> Counter[str]:
        options = SourceOptions.of(job.cluster.options() | {"topic": ",".join(topics), "failOnDataLoss": "false"})
        brokers = Brokers(options.endpoint, self.cluster)
        reading = Reading.of(options, pa.schema([("topic", pa.string())]))
        found: Counter[str] = Counter()
        for batch in reading.batches(brokers, ranges_of_batch(brokers, options)):
            found.update(batch.column(0).to_pylist())
        return found

    def _analyse(self, rows: Counter[str], job: object) -> list[Dead]:
        at = datetime(2026, 3, 1, tzinfo=UTC)
        return [Dead(name.removeprefix("%DLQ%"), count, at, at, 16, bars=[(at, count)]) for name, count in rows.items()]

    def _open(self, path: str, mode: str) -> Any:
        file = builtins.open(path, mode)  # noqa: SIM115 - ends with Halves
        step, written = self.step, self.written

        class Halves:
            def __enter__(self) -> Any:
                return self

            def write(self, data: bytes) -> None:
                written.add(data)
                file.write(data[: len(data) // 2])
                file.flush()
                step(path)
                file.write(data[len(data) // 2 :])

            def __exit__(self, *error: object) -> None:
                file.close()

        return Halves()

    def _replace(self, old: str, new: str) -> None:
        self.step(new)
        self._plain_replace(old, new)

    def die(self, group: str, count: int) -> None:
        for broker in range(2):
            self.cluster.put(f"%DLQ%{group}", count=count, broker=broker)

    def run(self) -> dict[str, int]:
        """Dead letters by group, as the report of this run says."""
        watch: Any = type("Watch", (), {"say": lambda self, text: None, "batch": lambda self, batch: None})()
        dead_letters.work(None, self.job, watch, Stop())  # type: ignore[arg-type]
        return self.told()

    def told(self) -> dict[str, int]:
        """The same, of whatever report is there; each file of it is whole."""
        for name in FILES:
            assert (self.folder / name).read_bytes() in self.written
        report = json.loads((self.folder / "report.json").read_text())
        return {group["group"]: group["count"] for group in report["groups"]}


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    made = Jobs(tmp_path, monkeypatch)
    made.die("payers", 100)
    assert made.run() == {"payers": 200}
    made.die("mailers", 40)
    return made


def cut(jobs: Jobs) -> None:
    """Connections end, again and again."""
    pulls = iter(range(1000))

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE and next(pulls) % 3 == 2:
            raise ConnectionResetError

    jobs.cluster.before = before


def restarted(jobs: Jobs) -> None:
    """A broker goes in the middle of its queue, and is there again seconds later."""
    plain, pulls = jobs.cluster.sleep, iter(range(1000))

    def before(broker: MemoryBroker, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE and next(pulls) == 2:
            broker.up = False
            raise ConnectionResetError

    def sleep(seconds: float) -> None:
        plain(seconds)
        if jobs.cluster.slept > 5:
            jobs.cluster.brokers[0].up = jobs.cluster.brokers[1].up = True

    jobs.cluster.before, jobs.cluster.sleep = before, sleep  # type: ignore[method-assign]


def full(jobs: Jobs) -> None:
    """Brokers whose disks are full are busy, and let be read what they have."""
    plain, pulls = jobs.cluster._code_11, iter(range(1000))

    def pull(broker: MemoryBroker, request: Command, ext: dict[str, str | None]) -> Command:
        busy = next(pulls) % 2
        return request.reply(ResponseCode.SYSTEM_BUSY, "disk full") if busy else plain(broker, request, ext)

    jobs.cluster._code_11 = pull  # type: ignore[method-assign]


@pytest.mark.parametrize("fault", [cut, restarted, full])
def test_a_report_counts_all_dead_letters_through_faults_of_brokers(jobs: Jobs, fault: Callable[[Jobs], None]) -> None:
    fault(jobs)
    assert jobs.run() == {"payers": 200, "mailers": 80}


def test_a_reader_that_gives_up_at_a_cut_is_found(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug that the test above is there for, planted."""

    def give_up(self: Any, error: Exception) -> None:
        self._drop_asked()
        self._link, self._offset = None, self._range.end

    monkeypatch.setattr(one_range._Puller, "_broken", give_up)
    cut(jobs)
    assert jobs.run() != {"payers": 200, "mailers": 80}


def test_a_broker_that_stays_away_fails_the_run_and_leaves_the_old_report(jobs: Jobs) -> None:
    """It would tell of fewer dead letters than there are, and nothing else would look wrong."""

    def before(broker: MemoryBroker, request: Command) -> None:
        if broker is jobs.cluster.brokers[1] and request.code == RequestCode.PULL_MESSAGE:
            raise ConnectionResetError

    jobs.cluster.before = before
    with pytest.raises(RMQError, match=r"the connection to 10\.0\.1\.98:10911 was lost"):
        jobs.run()
    assert jobs.told() == {"payers": 200}
    assert sorted(os.listdir(jobs.folder)) == FILES


def test_each_file_is_whole_wherever_a_run_is_killed(jobs: Jobs) -> None:
    """It is written whole before it takes the old one's place."""
    died = 0
    for number in range(2 * len(FILES)):
        left = number

        def step(path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        jobs.step = step
        with pytest.raises(Killed):
            jobs.run()
        assert jobs.told() in ({"payers": 200}, {"payers": 200, "mailers": 80})
        died += 1
    jobs.step = lambda path: None
    assert jobs.run() == {"payers": 200, "mailers": 80}
    assert sorted(os.listdir(jobs.folder)) == FILES, "nothing is left of runs that were killed"
    assert died == 8


@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_is_said_and_leaves_the_old_file_and_no_half_one(jobs: Jobs, name: str) -> None:
    def step(path: str) -> None:
        if path.startswith(str(jobs.folder / name)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    jobs.step = step
    with pytest.raises(StoreError, match=rf"{name} cannot be written: No space left on device"):
        jobs.run()
    jobs.told()
    assert sorted(os.listdir(jobs.folder)) == FILES
