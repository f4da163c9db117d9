"""What a running job tells: the figures of its last batch and the sums since its start, for terminal and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmq.remoting.metrics import Family, Labels
from rmq.spark.progress import lag

__all__ = ["OBSERVED", "BatchFigures", "Watch"]

#: Name of the figures that jobs have Spark count beside their rows.
OBSERVED = "rmq_pipeline"

_MEANINGS = {
    "unreadable": "Messages whose bodies could not be read.",
    "compacted": "Small files that were joined.",
    "late": "Groups of events that came after their window was closed: those of a task for one window are one.",
    "ahead": "Events dated too far ahead of when they were stored.",
    "undated": "Messages whose event time could not be read.",
}


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """The figures of one batch.

    :param seconds: it took. :param lag: messages that were behind it, a topic each; empty when not known.
    :param counts: what was counted beside: unreadable, late. :param upto: the time up to which a job is done.
    """

    number: int
    rows: int
    seconds: float
    lag: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    upto: str | None = None

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> BatchFigures:
        """Out of a streaming query's progress."""
        counts = {
            name: int(value or 0) for name, value in progress.get("observedMetrics", {}).get(OBSERVED, {}).items()
        }
        late = sum(int(state.get("numRowsDroppedByWatermark", 0)) for state in progress.get("stateOperators", ()))
        return cls(
            number=int(progress["batchId"]),
            rows=int(progress.get("numInputRows", 0)),
            seconds=progress.get("durationMs", {}).get("triggerExecution", 0) / 1000,
            lag=lag(progress),
            counts=counts | ({"late": late} if progress.get("stateOperators") else {}),
        )


@dataclass
class Watch:
    """Sums since the start.

    :param told: hears of each batch and each event worth a line. :param begun: messages were looked for once.
    """

    title: str
    kind: str
    told: Callable[[Watch, str], None] = lambda watch, line: None
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    last: BatchFigures | None = None
    counts: dict[str, int] = field(default_factory=dict)
    begun: bool = False

    def batch(self, batch: BatchFigures) -> None:
        """A batch has ended."""
        self.batches += 1
        self.rows += batch.rows
        self.seconds += batch.seconds
        self.last = batch
        for name, more in batch.counts.items():
            self.counts[name] = self.counts.get(name, 0) + more
        self.told(self, "")

    def say(self, line: str, **counts: int) -> None:
        """Something beside the batches happened: ``say("12 files joined", compacted=12)``."""
        for name, more in counts.items():
            self.counts[name] = self.counts.get(name, 0) + more
        self.told(self, line)

    def families(self) -> Iterator[Family]:
        """The metrics."""
        own: Labels = (("job", self.title), ("kind", self.kind))

        def one(name: str, kind: str, meaning: str, value: float) -> Family:
            return Family(f"rmq_pipeline_{name}", kind, meaning, [("", own, value)])

        yield one("batches_total", "counter", "Batches that ended.", self.batches)
        yield one("rows_total", "counter", "Rows that were read.", self.rows)
        yield one("batch_seconds_total", "counter", "Seconds that batches took.", self.seconds)
        for name, value in sorted(self.counts.items()):
            yield one(f"{name}_total", "counter", _MEANINGS.get(name, f"Counted: {name}."), value)
        if self.last is not None:
            yield one("last_batch", "gauge", "Number of the last batch.", self.last.number)
            yield one("last_batch_seconds", "gauge", "Seconds that the last batch took.", self.last.seconds)
            yield one("rows_per_second", "gauge", "Rows a second in the last batch.", self.last.rate)
            samples = [("", (*own, ("topic", topic)), value) for topic, value in sorted(self.last.lag.items())]
            yield Family("rmq_pipeline_lag_messages", "gauge", "Messages still to be read.", samples)
