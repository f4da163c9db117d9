"""Figures as Prometheus reads them (text format 0.0.4), rendered in slices so that many series never hold the loop."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rmq.runtime.aside import logger

__all__ = ["CONTENT_TYPE", "Family", "Histogram", "Labels", "Sample", "render"]

log = logger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Samples rendered before the loop gets its turn: about 2 ms.
_SLICE = 1_000

#: Names and values, in the order they are written.
Labels = tuple[tuple[str, str], ...]
#: Ending of the metric's name (``_sum`` and ``_count`` of a summary, ``_bucket`` of a histogram, or ""), labels, value.
Sample = tuple[str, Labels, float]

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


@dataclass(slots=True)
class Family:
    """One metric with all its series.

    :param kind: ``gauge``, ``counter``, ``summary`` or ``histogram``.
    :param meaning: one line, with the unit.
    :param samples: looked at once, when the page is rendered. The loop runs in between: an iterable must not walk
        over tables that change.
    """

    name: str
    kind: str
    meaning: str
    samples: Iterable[Sample]


class Histogram:
    """How many values lay up to each bound.

    :param bounds: ascending; there is one bucket more, for what is beyond the last.
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum: float = 0

    @classmethod
    def of(cls, bounds: Sequence[float], values: Sequence[float]) -> Histogram:
        """The one whose :meth:`values` they are."""
        made = cls(bounds)
        *counts, made._sum = values
        made._counts = [int(count) for count in counts]
        return made

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(self._counts)

    @property
    def sum(self) -> float:
        """What they amount to."""
        return self._sum

    def values(self) -> list[float]:
        """How many lay in each bucket, then their sum."""
        return [*self._counts, self._sum]

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def add_many(self, values: Sequence[float]) -> None:
        """The same for many values: most often all of them lie in the first bucket."""
        if values and max(values) <= self._bounds[0]:
            self._counts[0] += len(values)
        else:
            counts = self._counts
            for value in values:
                counts[bisect_left(self._bounds, value)] += 1
        self._sum += sum(values)

    def samples(self, labels: Labels) -> Iterator[Sample]:
        """The buckets, each with those before it, then sum and count."""
        total = 0
        for bound, count in zip((*self._bounds, math.inf), self._counts, strict=True):
            total += count
            yield "_bucket", (*labels, ("le", "+Inf" if bound == math.inf else repr(float(bound)))), total
        yield "_sum", labels, self._sum
        yield "_count", labels, total


async def render(families: Iterable[Family], common: Labels = ()) -> list[bytes]:
    """The page of the families that have a sample; one that fails is left out and logged, the others stay.

    :param common: labels in front of every sample's own.
    :returns: the page in pieces: that of 10,000 topics has tens of megabytes, too many to be put together at once.
    """
    pieces: list[bytes] = []
    prefix = _written(common)
    count = 0
    for family in families:
        name = family.name
        lines = [f"# HELP {name} {_line(family.meaning)}\n# TYPE {name} {family.kind}\n"]
        told: list[bytes] = []
        try:
            for ending, labels, value in family.samples:
                own = _written(labels)
                text = f"{prefix},{own}" if prefix and own else prefix or own
                lines.append(
                    f"{name}{ending}{{{text}}} {_number(value)}\n" if text else f"{name}{ending} {_number(value)}\n"
                )
                count += 1
                if not count % _SLICE:
                    told.append("".join(lines).encode())
                    lines.clear()
                    await asyncio.sleep(0)
        except Exception:
            log.exception("the metric %s cannot be told; the others are", name)
            continue
        if told or len(lines) > 1:
            pieces += told
            pieces.append("".join(lines).encode())
    return pieces


def _written(labels: Sequence[tuple[str, str]]) -> str:
    return ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels])


def _line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", " ")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
