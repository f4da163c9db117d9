"""Two runs of a job on one checkpoint: one of them works, and nothing is lost or done twice when it was killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

from rmq.protocol.errors import RMQError
from rmq.spark.pipeline.running.claim import BEAT, SILENCE, Claim, claimed
from tests.support.spark.memory import MemoryCluster
from tests.unit.spark.pipeline.test_job_archive import Folder


class Runs:
    """Runs over one checkpoint; time passes when one waits, and ``meanwhile`` is what others do then."""

    def __init__(self, root: Path) -> None:
        self.files = Folder(root)
        self.said: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.clock = MemoryCluster()
        plain = self.clock.sleep

        def sleep(seconds: float) -> None:
            plain(seconds)
            self.meanwhile()

        self.clock.sleep = sleep  # type: ignore[method-assign]

    def start(self) -> Claim:
        return Claim(self.files, self.clock, self.said.append)

    def marks(self) -> list[str]:
        return self.files.names("_rmq/running")


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_a_run_at_work_is_not_joined_by_another(runs: Runs) -> None:
    first = runs.start()
    runs.meanwhile = first.beat
    with pytest.raises(RMQError, match=r"is the checkpoint of a run that is at work .*end the other one first"):
        runs.start()
    assert runs.clock.slept < SILENCE
    first.beat()
    assert not first.is_lost
    assert len(runs.marks()) == 1, "nothing is left of the other"


def test_one_that_ended_is_followed_at_once(runs: Runs) -> None:
    first = runs.start()
    first.beat()
    first.release()
    runs.start()
    assert not runs.clock.slept
    assert not runs.said


def test_one_that_was_killed_is_followed_after_a_while(runs: Runs) -> None:
    killed = runs.start()
    runs.start()
    assert SILENCE <= runs.clock.slept < SILENCE + BEAT
    assert len(runs.said) == len(runs.marks()) == 1
    killed.beat()
    assert killed.is_lost, "and when it was not killed, it stops"
    killed.release()
    assert len(runs.marks()) == 1, "without harm to the one that goes on"


def test_one_that_ends_meanwhile_is_not_waited_for_any_longer(runs: Runs) -> None:
    first = runs.start()
    runs.meanwhile = first.release
    runs.start()
    assert runs.clock.slept <= BEAT


def test_of_two_that_begin_together_no_more_than_one_works(runs: Runs) -> None:
    """The second begins between the first one's look and its mark."""
    plain, started = runs.files.write, []

    def write(path: str, text: str) -> None:
        runs.files.write = plain  # type: ignore[method-assign]
        started.append(runs.start())
        plain(path, text)

    runs.files.write = write  # type: ignore[method-assign]
    with pytest.raises(RMQError, match="is at work"):
        runs.start()
    started[0].beat()
    assert not started[0].is_lost


def test_a_claim_is_kept_up_and_given_back(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq.spark.pipeline.running.claim.BEAT", 0.0)
    with claimed(runs.files, runs.clock, runs.said.append, lambda: None):
        before = set(runs.marks())
        while before & set(runs.marks()):
            pass
    assert not runs.marks()


def test_a_run_whose_checkpoint_was_taken_over_stops_and_says_so(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq.spark.pipeline.running.claim.BEAT", 0.0)
    stopped: list[bool] = []

    def work() -> None:
        with claimed(runs.files, runs.clock, runs.said.append, lambda: stopped.append(True)):
            while not stopped:
                for name in runs.marks():
                    runs.files.delete(f"_rmq/running/{name}")

    with pytest.raises(RMQError, match="another run has taken over"):
        work()
