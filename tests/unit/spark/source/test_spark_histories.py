"""Random histories of a stream against a model of its table, with a stand-in for Spark's micro-batch engine."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'rmq[spark]'")

from rmq.spark.cluster.brokers import Brokers
from rmq.spark.options.checked import SourceOptions
from rmq.spark.source.advance import Advance
from rmq.spark.source.one_range import Pulling, pull_range
from rmq.spark.source.ranges import DataLost, Range
from tests.support.spark.memory import NAMESRV, MemoryCluster, MemoryQueue


class History:
    """One query with ``failOnDataLoss=true``; a message is known by its store time, which no other has."""

    def __init__(self, seed: int) -> None:
        self.loses = bool(seed % 2)
        self.rng, self.said = random.Random(seed), [f"seed {seed}"]
        self.cluster = MemoryCluster()
        self.cluster.create("t")
        self.queues, self.sent = 1, set[int]()
        self.plans: list[dict[str, Any]] = []
        self.table: list[list[int]] = []
        self.start()

    def start(self) -> None:
        made = SourceOptions.of({"nameServer": NAMESRV, "topic": "t", "startingOffsets": "earliest"})
        self.brokers = Brokers(made.endpoint, self.cluster)
        self.stream = Advance(made, self.brokers)

    def batch(self, fate: str) -> None:
        """The batch that is open, or a new one; as Spark does, the first start is asked for anew when it is open."""
        done = len(self.table)
        begin = self.plans[done - 1] if done else self.stream.initial()
        if len(self.plans) == done:
            end = self.stream.latest(begin)
            if end is begin:
                return
            self.plans.append(end)
        rows = []
        for each in self.stream.ranges(begin, self.plans[done]):
            for chunk in pull_range(self.brokers, each, Pulling("g")):
                rows += [int.from_bytes(chunk.buffer[at + 56 : at + 64], "big") for at in chunk.starts]
        if fate == "done":
            self.table.append(rows)
        else:
            self.start()

    def step(self) -> None:
        losses = ["expire", "anew"] if self.loses else []
        what = self.rng.choice(["send", "send", "done", "done", "fails", "restart", "queue", *losses])
        if what == "anew" and self.rng.random() >= 0.3:
            return
        self.said.append(what)
        self.cluster.now += 10
        queues = self.cluster.broker.queues
        if what == "send":
            for _ in range(self.rng.randint(1, 5)):
                self.cluster.now += 0.01
                self.sent.add(self.cluster.now_ms())
                self.cluster.put("t", self.rng.randrange(self.queues))
        elif what == "queue":
            self.queues = min(4, self.queues + 1)
            self.cluster.create("t", self.queues)
        elif what == "expire":
            queue = queues["t", self.rng.randrange(self.queues)]
            queue.least = self.rng.randint(queue.least, queue.most)
        elif what == "anew":
            for number in range(self.queues):
                queues["t", number] = MemoryQueue()
        elif what == "restart":
            self.start()
        elif what in ("done", "fails"):
            self.batch(what)

    def check(self) -> None:
        if not self.loses:
            for _ in range(2):  # the batch that is open, and what came since
                self.cluster.now += 10
                self.batch("done")
        rows = [row for batch in self.table for row in batch]
        assert len(rows) == len(set(rows)), f"rows twice: {self.said}"
        assert set(rows) <= self.sent, f"rows that nobody sent: {self.said}"
        assert self.loses or set(rows) == self.sent, f"rows lost: {self.said}"


def run(seeds: int) -> None:
    for seed in range(seeds):
        history = History(seed)
        try:
            for _ in range(25):
                history.step()
        except DataLost as error:
            if not {"expire", "anew"} & set(history.said):
                raise AssertionError(f"a loss where nothing was lost: {history.said}") from error
        except Exception as error:
            raise AssertionError(f"{history.said}") from error
        history.check()


def test_no_row_is_in_the_table_twice_and_without_losses_none_is_missing() -> None:
    """Where retention or a new topic takes messages, which of them may be missing is not judged."""
    run(200)


def test_a_loss_that_is_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Advance, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        raise DataLost("nothing is lost")

    monkeypatch.setattr(Advance, "ranges", wrong)
    with pytest.raises(AssertionError, match="a loss where nothing was lost"):
        run(50)


@pytest.mark.parametrize(("late", "what"), [(1, "rows lost: .'seed"), (-1, "rows twice: .'seed")])
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, late: int, what: str) -> None:
    """Ranges begin a message too late or too early."""
    real = Advance.ranges

    def wrong(self: Advance, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        return [replace(each, start=max(0, each.start + late)) for each in real(self, start, end)]

    monkeypatch.setattr(Advance, "ranges", wrong)
    with pytest.raises(AssertionError, match=what):
        run(50)
