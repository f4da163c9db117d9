"""What tells repeated rows apart: rows of a task that is tried again, in whatever order it has them then."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from rmq.protocol import properties as property_string
from rmq.spark.sink import rows
from rmq.spark.sink.rows import IDENTITY, Rows


def sent(values: Sequence[str], task: str = "query/1/0", **columns: Sequence[str]) -> list[tuple[str, str]]:
    """(identity, value) of the messages of an attempt."""
    names = ("value", *columns)
    made = Rows({name: name for name in names}, "t", lambda: "id", "", task, 100)
    found = made.messages({"value": list(values), **{name: list(given) for name, given in columns.items()}})
    return [(property_string.decode(each.properties.decode())[IDENTITY], each.body.decode()) for each in found]


def once(*attempts: Sequence[tuple[str, str]]) -> Counter[str]:
    """The values that are left when those with a known identity are dropped."""
    kept: dict[str, str] = {}
    for attempt in attempts:
        for identity, value in attempt:
            kept.setdefault(identity, value)
    return Counter(kept.values())


@pytest.mark.parametrize("counted", [10**6, 20])
def test_no_row_is_dropped_for_another_one(monkeypatch: pytest.MonkeyPatch, counted: int) -> None:
    """A task that had sent a part is tried again; what it gets out of a shuffle comes in another order."""
    monkeypatch.setattr(rows, "COUNTED", counted)
    values = [str(n % 60) for n in range(100)]
    again = random.Random(5).sample(values, len(values))
    left = once(sent(values)[:70], sent(again))
    assert left >= Counter(values)
    if counted > 100:
        assert left == Counter(values), "and none is left twice"


def test_rows_of_another_query_batch_or_task_are_others() -> None:
    tasks = ("query/1/0", "query/1/1", "query/2/0", "other/1/0")
    assert once(*(sent(["a", "a"], task) for task in tasks)) == Counter({"a": 8})


def test_a_row_is_all_that_it_holds() -> None:
    """A query that was changed before it sends its batch again: what it says now is not dropped."""
    assert len(once(sent(["a"]), sent(["b"]))) == 2
    assert once(sent(["a"], keys=["k"]), sent(["a"], keys=["l"])) == Counter({"a": 2})
    assert once(sent(["a"], topic=["t1"]), sent(["a"], topic=["t2"])) == Counter({"a": 2})
    assert once(sent(["a"], keys=["k"]), sent(["a"], keys=["k"])) == Counter({"a": 1})
