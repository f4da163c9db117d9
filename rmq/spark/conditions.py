"""What the conditions of a query (``where``) say about which messages need not be pulled.

Spark looks at every row itself all the same: what is left here may be too much, never too little. A module of its own,
since conditions are handed to sources from Spark 4.1 on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rmq.protocol.queue import MessageQueue
from rmq.protocol.subscription import SUB_ALL
from rmq.spark.brokers import Brokers
from rmq.spark.ranges import Range
from rmq.spark.resolve import offset_at_time

__all__ = ["Conditions"]

#: Milliseconds by which the clock of a broker may have been set back while a queue was written: times are looked for
#: by halving, and messages of so much more time are pulled on both sides.
CLOCK_STEP = 10_000
#: More tags than this are not asked of a broker: they travel with every pull.
_MOST_TAGS = 100

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_QUEUE_COLUMNS: dict[str, Callable[[MessageQueue], Any]] = {
    "topic": operator.attrgetter("topic"),
    "brokerName": operator.attrgetter("broker_name"),
    "queueId": operator.attrgetter("queue_id"),
}
_OFFSET_COLUMNS = ("offset", "queueOffset")
_TIME_COLUMNS = ("timestamp", "storeTimestamp")

_TESTS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, among: value in among,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Whole numbers, both included; None: no bound."""

    least: int | None = None
    most: int | None = None

    def both(self, other: _Bounds) -> _Bounds:
        least = [each for each in (self.least, other.least) if each is not None]
        most = [each for each in (self.most, other.most) if each is not None]
        return _Bounds(max(least, default=None), min(most, default=None))


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of one query, which all have to hold.

    :param queues: about columns that all messages of a queue share.
    :param offsets: what the offsets are within. :param times: the times of storing, microseconds since the epoch.
    :param tags: one of these; empty: any or none.
    """

    queues: tuple[Filter, ...] = ()
    offsets: _Bounds = _Bounds()
    times: _Bounds = _Bounds()
    tags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Conditions:
        """What is of use here; the others are left to Spark alone."""
        queues: list[Filter] = []
        offsets, times = _Bounds(), _Bounds()
        tags: frozenset[str] = frozenset()
        for each in filters:
            column = _column(each)
            if column in _QUEUE_COLUMNS:
                queues.append(each)
            elif column in _OFFSET_COLUMNS:
                offsets = offsets.both(_bounds(each, _whole))
            elif column in _TIME_COLUMNS:
                times = times.both(_bounds(each, _microseconds))
            elif column == "tags" and (found := _tags(each)):
                tags = (tags & found or found) if tags else found
        return cls(tuple(queues), offsets, times, tags)

    def narrow(self, brokers: Brokers, group: str, ranges: Iterable[Range]) -> list[Range]:
        """What is to be read of some ranges. :raises RMQError: a broker cannot be asked for times."""
        found = []
        for each in ranges:
            queue = each.queue
            if all(_holds(condition, _QUEUE_COLUMNS[_column(condition)](queue)) for condition in self.queues):
                start, end = max(each.start, self.offsets.least or 0), each.end
                if self.offsets.most is not None:
                    end = min(end, self.offsets.most + 1)
                if self.times.least is not None and start < end:
                    start = offset_at_time(brokers, group, queue, self.times.least // 1000 - CLOCK_STEP, start, end)
                if self.times.most is not None and start < end:
                    end = offset_at_time(brokers, group, queue, self.times.most // 1000 + CLOCK_STEP, start, end)
                if start < end:
                    found.append(replace(each, start=start, end=end))
        return found


def _column(condition: Any) -> str:
    """The column that a condition is about; empty where it is no column of ours."""
    if isinstance(condition, Not):
        return _column(condition.child)
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _holds(condition: Filter, value: Any) -> bool:
    """Whether a value may fulfil a condition: False only where it surely does not."""
    wanted, plain = True, condition
    while isinstance(plain, Not):
        wanted, plain = not wanted, plain.child
    test = _TESTS.get(type(plain))
    given = getattr(plain, "value", None)
    if test is None or given is None:
        return True
    return test(value, given) is wanted


def _bounds(condition: Any, number: Callable[[Any], int | None]) -> _Bounds:
    if isinstance(condition, In):
        several = [number(each) for each in condition.value if each is not None]
        known = [each for each in several if each is not None]
        return _Bounds(min(known), max(known)) if known and len(known) == len(several) else _Bounds()
    value = number(getattr(condition, "value", None))
    if value is None:
        return _Bounds()
    match condition:
        case EqualTo() | EqualNullSafe():
            return _Bounds(value, value)
        case GreaterThan():
            return _Bounds(least=value + 1)
        case GreaterThanOrEqual():
            return _Bounds(least=value)
        case LessThan():
            return _Bounds(most=value - 1)
        case LessThanOrEqual():
            return _Bounds(most=value)
    return _Bounds()


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


def _tags(condition: Any) -> frozenset[str]:
    """The tags that a condition lets through; empty where a broker cannot be asked for them."""
    if isinstance(condition, EqualTo | EqualNullSafe):
        among = [condition.value]
    elif isinstance(condition, In):
        among = [each for each in condition.value if each is not None]
    else:
        return frozenset()
    told = all(isinstance(tag, str) and tag.split() == [tag] and "|" not in tag and tag != SUB_ALL for tag in among)
    return frozenset(among) if told and len(among) <= _MOST_TAGS else frozenset()
