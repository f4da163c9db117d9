"""The job ``windows``: counts and sums over windows of JSON events, back to a topic."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from rmq.spark.pipeline.job import TOPIC_NAME, Cluster, StreamJob
from rmq.spark.pipeline.kinds import Choice, Duration, Kind, Many, Mapped, Text, nearest
from rmq.spark.pipeline.spec import Spec, key, maybe, section

__all__ = ["Aggregate", "Windows"]

_NUMBERS = ("int", "long", "double")
_TIMES = ("timestamp", "epochMillis", "epochSeconds")
_TYPES = ("string", "boolean", *_NUMBERS, *_TIMES)
_DECIMAL = re.compile(r"decimal\((\d{1,2}), *(\d{1,2})\)")
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_CALL = re.compile(r"(\w+)(?:\(\s*([\w.]*)\s*\))?")
#: What each may be asked of.
_CALLS = {"count": "nothing", "sum": "numbers", "avg": "numbers", "min": "any", "max": "any", "countDistinct": "any"}


def _name(text: str) -> str | None:
    return None if _PATH.fullmatch(text) else "a name of letters, digits and _ is expected; dots lead into objects"


class FieldType(Kind[str]):
    """The type of a JSON field."""

    def __init__(self) -> None:
        super().__init__(f"one of {', '.join(_TYPES)}, decimal(12,2)")

    def value(self, text: str) -> str:
        found = _DECIMAL.fullmatch(text)
        if text in _TYPES or (found and 1 <= int(found[1]) <= 38 and int(found[2]) <= int(found[1])):
            return text
        near = nearest(text, _TYPES)
        raise ValueError(f"{self.words} is expected{near}" if near else "")

    def plain(self) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(_TYPES)}, {"type": "string", "pattern": f"^{_DECIMAL.pattern}$"}]}


class Aggregate(NamedTuple):
    """``sum(amount)``; ``field`` is None for ``count``."""

    call: str
    field: str | None


class Call(Kind[Aggregate]):
    """What is computed over a window."""

    def __init__(self) -> None:
        super().__init__("one of count, sum(FIELD), avg(FIELD), min(FIELD), max(FIELD), countDistinct(FIELD)")

    def value(self, text: str) -> Aggregate:
        found = _CALL.fullmatch(text.strip())
        if not found:
            raise ValueError
        if found[1] not in _CALLS:
            raise ValueError(f"{self.words} is expected{nearest(found[1], list(_CALLS))}")
        if (found[1] == "count") == bool(found[2]):
            raise ValueError("count has no field" if found[2] else f"which field? write {found[1]}(FIELD)")
        return Aggregate(found[1], found[2] or None)

    def plain(self) -> dict[str, Any]:
        with_field = "|".join(name for name, asked in _CALLS.items() if asked != "nothing")
        return {"type": "string", "pattern": rf"^\s*(count|({with_field})\(\s*[\w.]+\s*\))\s*$"}


class Into(Spec):
    """Where the results go: a JSON object a window and group, keyed by them."""

    topic = key(TOPIC_NAME, "The topic of the results.", sample="OrderTotals")
    tags = maybe(Text("a tag"), "Tag of every result.", sample="totals")


class Windows(StreamJob):
    """Counts and sums over windows of time of JSON events, back to a topic.

    A window is sent once, when the watermark has passed its end (mode: append), or whenever it changes (mode: update).
    """

    fields = key(
        Mapped(FieldType(), _name),
        "The fields of the JSON bodies that are used, with their types: string, boolean, int, long, double, "
        "decimal(12,2), timestamp (ISO 8601), epochMillis, epochSeconds. Dots lead into objects (customer.city).",
        sample="\ncity: string\namount: decimal(12,2)\ncreatedAt: timestamp",
    )
    event_time = key(Text("a field"), "The field with the event's time.", sample="createdAt")
    window = key(Duration(1.0), "Length of a window.", sample="5m")
    slide = maybe(Duration(1.0), "Distance between the starts of two windows, for windows that overlap.", sample="1m")
    watermark = key(
        Duration(),
        "How late an event may come: a window is closed when events this much later than its end have been seen.",
        default="10m",
    )
    max_ahead = key(
        Duration(),
        "Events dated so much later than they were stored are left out and counted: a clock that is wrong would close "
        "all windows.",
        default="1d",
    )
    group_by = maybe(Many(Text("a field")), "A result for each value of these fields.", sample="[city]", shown=True)
    aggregates = key(
        Mapped(Call(), _name),
        "What is computed, by its name in the result: count, sum(F), avg(F), min(F), max(F), countDistinct(F) "
        "(approximate).",
        sample="\norders: count\nrevenue: sum(amount)",
    )
    where = maybe(Text("a condition"), "Only events that meet a condition of Spark SQL.", sample="amount > 0")
    mode = key(
        Choice("append", "update"), "append: one result a window; update: the newest at each change.", default="append"
    )
    on_unreadable = key(
        Choice("count", "fail"),
        "Bodies that are no JSON, have no event time or another type of field: count them (metrics, progress) or fail.",
        default="count",
    )
    to = section(Into, required=True)

    def faults(self) -> Iterator[tuple[str, str]]:
        yield from super().faults()
        known = list(self.fields)
        for name, used in (("eventTime", (self.event_time,)), ("groupBy", self.group_by or ())):
            for one in used:
                if one not in self.fields:
                    near = nearest(one, known) or f": declared are {', '.join(known)}"
                    yield name, f"{one!r} is not declared under fields{near}"
        kind = self.fields.get(self.event_time)
        if kind is not None and kind not in _TIMES:
            yield "eventTime", f"{self.event_time} is a {kind}: one of {', '.join(_TIMES)} is expected"
        for name, (call, used_field) in self.aggregates.items():
            kind = self.fields.get(used_field or "")
            if used_field is not None and kind is None:
                yield "aggregates", f"{name}: {used_field!r} is not declared under fields{nearest(used_field, known)}"
            elif _CALLS[call] == "numbers" and kind not in _NUMBERS and not (kind or "").startswith("decimal"):
                yield "aggregates", f"{name}: {call} of {used_field}, which is a {kind}: a number is expected"
        for one, other in itertools.combinations(known, 2):
            if f"{other}.".startswith(f"{one}.") or f"{one}.".startswith(f"{other}."):
                yield "fields", f"{one} and {other}: one is an object that the other is a field of"
        yield from _twins("fields", known)
        groups = list(self.group_by or ())
        yield from _twins("groupBy", groups)
        yield from _twins("aggregates", ["windowStart", "windowEnd", *dict.fromkeys(groups), *self.aggregates])
        for name, seconds in (("window", self.window), ("slide", self.slide)):
            if seconds is not None and seconds % 1:
                yield name, "whole seconds are expected"
        if self.slide is not None and self.slide > self.window:
            yield "slide", "longer than the window: events in between would be in none"

    def sink_options(self) -> dict[str, str]:
        """Options of the data source for the results."""
        return sink(self.cluster, self.to.topic, self.title())


def _twins(where: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Names that are the same to Spark."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            yield where, f"{seen[name.lower()]} and {name}: Spark takes them for one name"
        seen.setdefault(name.lower(), name)


def sink(cluster: Cluster, to: str | None, group: str) -> dict[str, str]:
    """Options for writing."""
    named = {"topic": to} if to is not None else {}
    return cluster.options() | named | {"producerGroup": group}
