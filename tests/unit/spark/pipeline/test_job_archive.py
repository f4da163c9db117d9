"""The archive's files: each message once, whatever fails while files are written, moved, removed or joined."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

from rmq.protocol.errors import StoreError
from rmq.protocol.queue import MessageQueue
from rmq.spark.pipeline import archive
from rmq.spark.pipeline.running.archive import planned_end
from rmq.spark.pipeline.running.compaction import Compactor
from rmq.spark.pipeline.running.files import Found
from rmq.spark.pipeline.running.snapshot import snapshot
from rmq.spark.pipeline.running.staging import Staging
from rmq.spark.source.advance import write_offsets

HOUR = "topic=A/date=2026-03-01/hour=10"
LATER = datetime(2026, 3, 2, tzinfo=UTC)


class Folder:
    """What ``Files`` does, in a folder of this machine; ``fails(what, path)`` says which call is to fail."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.fails: Callable[[str, str], bool] = lambda what, path: False
        #: Called before anything that a reader does, too.
        self.asked: Callable[[], object] = lambda: None

    def _at(self, what: str, path: str) -> Path:
        if self.fails(what, path):
            raise OSError(f"{what} {path}: permission denied")
        return Path(self.root, path)

    def full(self, path: str) -> str:
        return str(Path(self.root, path))

    def walk(self, folder: str = "") -> Iterator[Found]:
        self.asked()
        top = Path(self.root, folder)
        for path in sorted(top.rglob("*")):
            inside = path.relative_to(top).parts
            if path.is_file() and not any(part.startswith(("_", ".")) for part in inside):
                yield Found(str(path.relative_to(self.root)), path.stat().st_size)

    def names(self, folder: str) -> list[str]:
        self.asked()
        top = Path(self.root, folder)
        return sorted(path.name for path in top.iterdir()) if top.exists() else []

    def exists(self, path: str) -> bool:
        self.asked()
        return Path(self.root, path).exists()

    def move(self, source: str, target: str) -> None:
        to = self._at("move", target)
        to.parent.mkdir(parents=True, exist_ok=True)
        Path(self.root, source).rename(to)

    def delete(self, path: str) -> None:
        at = self._at("delete", path)
        if at.is_dir():
            shutil.rmtree(at)
        else:
            at.unlink(missing_ok=True)

    def read(self, path: str) -> str:
        self.asked()
        return Path(self.root, path).read_text()

    def write(self, path: str, text: str) -> None:
        at = self._at("write", path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)


class Lines:
    """As much of Spark as joining uses; a file is a line a row."""

    def __init__(self, rows: list[str] | None = None) -> None:
        self._rows = rows or []
        self.read = self.write = self

    def option(self, name: str, value: str) -> Lines:
        return self

    def coalesce(self, files: int) -> Lines:
        return self

    def sortWithinPartitions(self, *columns: str) -> Lines:
        return self

    def count(self) -> int:
        return len(self._rows)

    def parquet(self, *paths: str) -> Lines:
        if self._rows:
            Path(paths[0]).mkdir(parents=True)
            Path(paths[0], "part-0.parquet").write_text("".join(f"{row}\n" for row in self._rows))
            return self
        files = [file for path in paths for file in ([Path(path)] if Path(path).is_file() else Path(path).iterdir())]
        return Lines([row for file in files for row in file.read_text().splitlines()])


class Bench:
    """A job of the query ``query`` over a folder, started as often as wanted."""

    def __init__(self, root: Path) -> None:
        self.files: Any = Folder(root)
        self.start()

    def start(self) -> None:
        self.staging = Staging(self.files, "query")
        self.staging.settle()
        rules = archive.Compaction({"closed_for": 0.0, "min_files": 2}, 1)
        spark: Any = Lines()
        self.compactor = Compactor(spark, self.files, self.staging, rules, "none")

    def batch(self, number: int, *rows: str, up_to: int | None = None) -> None:
        def write(address: str) -> None:
            Lines(list(rows)).parquet(f"{address}/{HOUR}")

        self.compactor.touched(self.staging.batch(number, {"A": {"b": {"0": up_to or number}}}, write))

    def join(self) -> int:
        if self.staging.unsettled:
            self.staging.settle()
        return self.compactor.work(LATER)

    def rows(self) -> Counter[str]:
        return Counter(row for file in self.files.walk() for row in self.files.read(file.path).splitlines())

    def left(self) -> list[str]:
        """What is staged, and the manifests."""
        staged = self.files.names("_rmq/query/stage")
        return [*staged, *(name for name in self.files.names("_rmq/query") if name.endswith(".json"))]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("what", ["move", "delete", "write"])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("at", range(8))
def test_what_fails_while_files_are_joined_is_finished_before_anything_else(
    bench: Bench, what: str, restarted: bool, at: int
) -> None:
    for number in range(3):
        bench.batch(number, f"row {number}")
    calls = iter(range(100))
    bench.files.fails = lambda done, path: done == what and next(calls) == at
    try:
        bench.join()
    except OSError:
        if restarted:
            bench.start()
    bench.files.fails = lambda done, path: False
    bench.batch(3, "row 3")
    bench.join()
    assert bench.rows() == Counter(f"row {number}" for number in range(4))
    assert bench.left() == ["batch-3.json"]


def test_nothing_is_joined_while_files_that_were_joined_cannot_be_removed(bench: Bench) -> None:
    bench.batch(0, "a")
    bench.batch(1, "b")
    bench.files.fails = lambda done, path: done == "delete" and "batch-0-" in path
    for _ in range(3):
        with pytest.raises(OSError, match="permission denied"):
            bench.join()
    assert bench.rows() == Counter({"a": 2, "b": 2}), "twice, and not once more with every attempt"
    bench.files.fails = lambda done, path: False
    bench.batch(2, "c")
    bench.join()
    assert bench.rows() == Counter("abc")


def test_files_that_no_manifest_names_are_swept(bench: Bench) -> None:
    def broken(address: str) -> None:
        Lines(["a"]).parquet(f"{address}/{HOUR}")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        bench.staging.batch(0, None, broken)
    assert bench.left() == []
    # ... also when that failed, too, or the driver was killed: at the next start.
    bench.files.fails = lambda done, path: done == "delete" and bench.left() != []
    with pytest.raises(OSError, match="no space left"):
        bench.staging.replace("0", broken, [])
    assert bench.left() == ["joined-0"]
    bench.files.fails = lambda done, path: False
    bench.start()
    assert bench.left() == []


def test_folders_are_looked_at_again_after_a_join_that_failed(bench: Bench) -> None:
    bench.start()
    for number in range(4):
        folder = HOUR.replace("10", str(10 + number % 2))

        def write(address: str, folder: str = folder, number: int = number) -> None:
            Lines([str(number)]).parquet(f"{address}/{folder}")

        bench.staging.batch(number, number, write)
    bench.files.fails = lambda done, path: done == "write"
    with pytest.raises(OSError, match="permission denied"):
        bench.join()
    bench.files.fails = lambda done, path: False
    assert bench.join() == 4


def test_a_batch_that_is_there_is_not_written_again(bench: Bench) -> None:
    bench.batch(0, "a")
    bench.start()
    bench.batch(0, "a")
    assert bench.rows() == Counter("a")


def test_a_checkpoint_that_was_put_back_is_an_error(bench: Bench) -> None:
    """Its batches hold other messages than those of the same numbers that are there: none may be left out for them."""
    for number in range(3):
        bench.batch(number, str(number))
    bench.start()
    for number, up_to in ((2, 9), (1, 9), (1, 1), (0, 0)):
        with pytest.raises(StoreError, match=rf"batch {number} is not the one that the archive has: the checkpoint"):
            bench.batch(number, "other", up_to=up_to)
    with pytest.raises(StoreError, match=r"upTo in .*/_rmq/query/batch-2\.json"):
        bench.batch(1, "other")
    bench.batch(2, "2", up_to=2)
    assert bench.rows() == Counter("012")
    assert json.loads(bench.files.read("_rmq/query/batch-2.json"))["upTo"] == {"A": {"b": {"0": 2}}}


def test_what_is_said_of_other_queues_is_no_other_batch(bench: Bench) -> None:
    """Manifests of before do not say it."""
    bench.staging.batch(0, {"A": {"b": {"0": 2}}}, lambda address: Lines(["x"]).parquet(f"{address}/{HOUR}"))
    bench.start()
    bench.staging.batch(0, {"A": {"b": {"0": 2}}, "@others": "earliest"}, lambda address: None)
    assert bench.rows() == Counter("x")


def test_what_a_checkpoint_says_of_a_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint: Any = Folder(tmp_path)
    for as_of in (7, 8):
        document = json.dumps(write_offsets({MessageQueue("A", "broker-a", 0): 5}, as_of))
        checkpoint.write("offsets/3", f'v1\n{{"batchWatermarkMs":0}}\n{document}')
        assert planned_end(checkpoint, 3) == {"A": {"broker-a": {"0": 5}}, "@others": "earliest"}
    for other in ("", "v1\n{}\n-", 'v2\n{}\n{"0":"x"}', "v1\n{}\n[1]"):
        checkpoint.write("offsets/3", other)
        caplog.clear()
        assert planned_end(checkpoint, 3) is None
        assert "offsets/3 does not tell where batch 3 ends (" in caplog.text, "the check is off, and that is told"
    assert planned_end(checkpoint, 4) is None


# -- readers beside the job ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """The driver is gone at once: nothing is tidied up."""


def killed_at(bench: Bench, step: int, work: Callable[[], object]) -> bool:
    """Do something that dies before the step of this number that changes files; whether it got as far."""
    steps = iter(range(1000))

    def dies(what: str, path: str) -> bool:
        if next(steps) == step:
            raise Killed
        return False

    bench.files.fails = dies
    try:
        work()
    except Killed:
        return True
    finally:
        bench.files.fails = lambda what, path: False
    return False


def read(bench: Bench) -> Counter[str]:
    """What a reader sees, who begins again when a file is moved away under it."""
    while True:
        paths = [path for found in snapshot(bench.files, lambda seconds: None).values() for path in found]
        asked, bench.files.asked = bench.files.asked, lambda: None
        try:
            return Counter(row for path in paths for row in bench.files.read(path).splitlines())
        except FileNotFoundError:
            bench.files.asked = asked


def works(bench: Bench) -> dict[str, Callable[[], object]]:
    def twice() -> None:
        bench.join()
        bench.batch(4, "row 4")
        bench.batch(5, "row 5")
        bench.join()

    return {"join": bench.join, "batch": lambda: bench.batch(4, "row 4"), "all": twice}


WORK = pytest.mark.parametrize("work", ["join", "batch", "all"])
ROWS = {f"row {number}" for number in range(4)}


def begun(root: Path) -> Bench:
    bench = Bench(root)
    for number in range(4):
        bench.batch(number, f"row {number}")
    return bench


def is_whole(rows: Counter[str]) -> bool:
    """Every row that was there before, and none twice."""
    return ROWS <= set(rows) <= {*ROWS, "row 4", "row 5", "row 6"} and set(rows.values()) == {1}


@WORK
def test_a_reader_sees_each_row_once_wherever_the_job_was_killed(tmp_path: Path, work: str) -> None:
    step, doubled, dead = 0, False, True
    while dead:
        bench = begun(tmp_path / str(step))
        dead = killed_at(bench, step, works(bench)[work])
        assert is_whole(read(bench)), step
        doubled = doubled or not is_whole(bench.rows())
        bench.start()  # finishes what was begun
        assert is_whole(read(bench)), step
        assert is_whole(bench.rows()), step
        step += 1
    assert doubled == (work != "batch"), "what a plain listing shows"
    assert step > 5


@WORK
def test_a_reader_sees_each_row_once_while_the_job_goes_on_under_it(tmp_path: Path, work: str) -> None:
    """The job stands at any step when the reader begins, and goes on to the end at any question of the reader."""
    for step in range(0, 40, 1 if work != "all" else 5):
        for question in range(60):
            bench = begun(tmp_path / f"{step}-{question}")
            if not killed_at(bench, step, works(bench)[work]):
                return
            asked = iter(range(1000))

            def goes_on(bench: Bench = bench, asked: Iterator[int] = asked, question: int = question) -> None:
                if next(asked) == question:
                    bench.files.asked = lambda: None
                    bench.start()
                    bench.batch(6, "row 6")
                    bench.join()

            bench.files.asked = goes_on
            seen = read(bench)
            assert is_whole(seen), (step, question)
            if next(asked) <= question:
                break  # the reader asks no more than that
