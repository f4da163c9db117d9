"""The versions of a table, and what is known of the changes between them."""

from __future__ import annotations

import dataclasses

from rmq.broker.topics.versions import Versions
from rmq.protocol.bodies.topic import DataVersion
from rmq.runtime.real import RealClock


def versions(kept: int = 1_000) -> Versions:
    return Versions(RealClock(), kept)


def test_a_version_never_goes_back() -> None:
    made = versions()
    made.advance(to=DataVersion(counter=7, timestamp=1))
    assert made.now == DataVersion(counter=7, timestamp=1)
    made.advance(to=DataVersion(counter=7, timestamp=2))
    assert made.now.counter == 8
    made.restart(DataVersion(counter=3, timestamp=9))  # another table has been taken over
    assert made.now == DataVersion(counter=3, timestamp=9)


def test_what_has_changed_since_a_version_is_known_of_so_many() -> None:
    made = versions(kept=1_000)
    start = made.now
    assert made.changed_since(start) is None, "nothing is known before the first change"
    made.advance("A")
    assert made.changed_since(start) == ["A"]
    made.advance("B")
    made.advance("A")
    assert sorted(made.changed_since(start) or ()) == ["A", "B"]
    assert made.changed_since(dataclasses.replace(start, timestamp=1)) is None
    for _ in range(2_000):
        made.advance("C")
    assert made.changed_since(start) is None
    now = made.now
    made.advance()
    made.restart()
    assert made.changed_since(now) is None
    assert made.changed_since(made.now) == []


def test_who_remembers_nothing_knows_nothing() -> None:
    made = versions(kept=0)
    start = made.now
    made.advance("A")
    assert made.changed_since(start) is None
    assert made.changed_since(made.now) is None
