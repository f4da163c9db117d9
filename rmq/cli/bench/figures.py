"""Times and counts of a benchmark: what happened in an interval, and in all of it. Nothing here has a clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PERCENTILES", "Counts", "Latencies", "summary"]

#: Each step of the histogram is so much more than the one before: percentiles are right to a hundredth.
_STEP = math.log(1.02)
#: The smallest time that is told apart, ms.
_LEAST = 0.001
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


@dataclass(slots=True)
class Latencies:
    """A histogram of times in ms: a few hundred numbers, however many times there are."""

    counts: dict[int, int] = field(default_factory=dict)
    count: int = 0
    total: float = 0.0
    most: float = 0.0

    def add(self, ms: float) -> None:
        """:param ms: what is less than nothing (clocks of two machines) counts as nothing."""
        ms = max(ms, 0.0)
        at = math.floor(math.log(ms / _LEAST) / _STEP) if ms > _LEAST else 0
        self.counts[at] = self.counts.get(at, 0) + 1
        self.count += 1
        self.total += ms
        self.most = max(self.most, ms)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def percentile(self, share: float) -> float:
        """The time within which so many in a hundred were, ms; 0 where there was none."""
        left = math.ceil(self.count * share / 100)
        for at in sorted(self.counts):
            left -= self.counts[at]
            if left <= 0:
                return min(_LEAST * math.exp((at + 1) * _STEP), self.most)
        return 0.0

    def table(self) -> dict[str, float]:
        """For programs, ms."""
        named = {f"p{share:g}": round(self.percentile(share), 3) for share in PERCENTILES}
        return {"mean": round(self.mean, 3), **named, "max": round(self.most, 3)}


@dataclass(slots=True)
class Counts:
    """:param done: messages. :param calls: times of the calls that did them. :param failed: messages.

    :param why: how often each error was met, the first line of it.
    """

    done: int = 0
    failed: int = 0
    calls: Latencies = field(default_factory=Latencies)
    #: Of a consumer: from the broker's storing to the listener.
    stored: Latencies = field(default_factory=Latencies)
    why: dict[str, int] = field(default_factory=dict)

    def fail(self, error: BaseException, messages: int = 1) -> None:
        """Count a call that failed."""
        self.failed += messages
        line = str(error).partition("\n")[0][:160] or type(error).__name__
        # A broker's name or an offset in a text makes many of one kind: those that come late are counted together.
        key = line if line in self.why or len(self.why) < 16 else "other errors"
        self.why[key] = self.why.get(key, 0) + messages


def summary(kind: str, counts: Counts, seconds: float, size: int | None) -> dict[str, Any]:
    """All of it, for programs.

    :param size: bytes of a body; None where they are not ours.
    """
    rate = counts.done / seconds if seconds > 0 else 0.0
    told: dict[str, Any] = {
        "kind": kind, "seconds": round(seconds, 3), "messages": counts.done, "failed": counts.failed,
        "perSecond": round(rate, 1), "ms": counts.calls.table(),
    }  # fmt: skip
    if size is not None:
        told["mibPerSecond"] = round(rate * size / (1 << 20), 3)
    if counts.stored.count:
        told["sinceStoredMs"] = counts.stored.table()
    if counts.why:
        told["errors"] = counts.why
    return told
