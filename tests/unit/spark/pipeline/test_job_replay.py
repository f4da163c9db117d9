"""What a replay has sent after it was killed anywhere and run again: each message, and repeats of one slice a kill."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

from rmq.spark.pipeline import catalog, document
from rmq.spark.pipeline.running import replay
from rmq.spark.pipeline.running.stop import Stop
from tests.unit.spark.pipeline.test_job_archive import Folder

JOB = (
    "job: replay\ncluster:\n  nameServer: n:1\ncheckpoint: {folder}\nfrom:\n  topic: Past\n  start: {start}\n"
    "  end: {end}\nto:\n  topic: Again\nslice: 10s\n"
)


class Killed(Exception):
    """The machine went away."""


class Past:
    """A topic of times; a replay of it in runs that may be killed before or after they send, or before they note it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, start: datetime, end: datetime) -> None:
        self.times: list[datetime] = []
        self.sent: Counter[datetime] = Counter()
        self.kill = ""
        self.said: list[str] = []
        self.batch: Any = lambda batch: None
        text = JOB.format(folder=folder, start=start.isoformat(), end=end.isoformat())
        self.job: Any = catalog.of("job.yaml", document.parse("job.yaml", text, {}))
        patch.setattr(replay, "Files", lambda spark, root: Folder(folder))
        patch.setattr(replay, "_Topic", lambda spark, job: self)
        patch.setattr(replay, "_chosen", lambda rows, job: rows)
        patch.setattr(replay, "_send", self.send)

    def say(self, text: str) -> None:
        self.said.append(text)

    def first(self, begin: datetime, end: datetime) -> datetime | None:
        return min((time for time in self.times if begin <= time < end), default=None)

    def rows(self, begin: datetime, end: datetime) -> Any:
        return [time for time in self.times if begin <= time < end]

    def send(self, rows: list[datetime], job: object) -> int:
        if self.kill == "before":
            raise Killed
        if self.kill == "within":
            rows = rows[: len(rows) // 2]
        self.sent.update(rows)
        if self.kill:
            raise Killed
        return len(rows)

    def run(self, spark: Any = None) -> None:
        watch: Any = self
        replay.work(spark, self.job, watch, Stop())


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_left_out_and_a_kill_repeats_one_slice_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng, start = random.Random(seed), datetime(2026, 3, 1, tzinfo=UTC)
    past = Past(tmp_path, monkeypatch, start, start + timedelta(minutes=5))
    past.times = [start + timedelta(milliseconds=rng.randrange(300_000)) for _ in range(40)]
    slices = 0
    for _ in range(12):
        left = rng.randrange(4)

        def end(batch: object) -> None:
            nonlocal left
            left -= 1
            past.kill = rng.choice(["before", "within", "after"]) if not left else ""

        past.kill, past.batch = "", end
        try:
            past.run()
        except Killed:
            slices += past.kill != "before"
    past.batch = lambda batch: None
    past.kill = ""
    past.run()
    assert past.sent.keys() == set(past.times)
    assert max(past.sent.values()) <= 1 + slices
    assert sum(count > 1 for count in past.sent.values()) <= slices * 10


def test_what_was_stored_a_moment_ago_is_left_to_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a broker whose clock is behind, or while it was on its way: a slice that was sent is not looked at again."""
    now = datetime.now(UTC)
    past = Past(tmp_path, monkeypatch, now - timedelta(hours=1), now + timedelta(hours=1))
    past.times = [now - timedelta(minutes=1)]
    past.run()
    assert past.said == [past.said[0]]
    assert "the rest of the range is still to come" in past.said[0]
    past.times.append(now - timedelta(seconds=1))
    monkeypatch.setattr(replay, "SETTLED", timedelta(0))
    past.run()
    assert past.sent == Counter(past.times)


def test_a_range_that_has_not_begun_is_said_to_be_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    past = Past(tmp_path, monkeypatch, now + timedelta(hours=1), now + timedelta(hours=2))
    past.run()
    assert "still to come" in past.said[0]
