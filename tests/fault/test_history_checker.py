"""The judge finds what is wrong: one small history for every violation, beside one in which all is well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.history import Seen, body_for, digest, judge

Lines = list[dict[str, Any]]


def lines() -> Lines:
    """Three sends one after the other, a batch of two, one refused, one unanswered, a pull and its commit."""
    made: Lines = []

    def add(t: int, op: int, kind: str, f: str = "send", **what: Any) -> None:
        made.append({"t": t, "proc": "p", "op": op, "kind": kind, "f": f, **what})

    def send(op: int, keys: list[str], kind: str, **what: Any) -> None:
        add(op * 10, op, "invoke", keys=keys, topic="T", queue=0, claims=True)
        add(op * 10 + 5, op, kind, **what)

    send(1, ["a"], "ok", status=0, offset=0)
    send(2, ["b"], "ok", status=0, offset=1)
    send(3, ["c", "d"], "ok", status=0, offset=2)
    send(4, ["e"], "fail", status=14)
    send(5, ["f", "g"], "unknown", status=-3)
    items = [(0, "a", digest(body_for("a"))), (1, "b", digest(body_for("b")))]
    add(60, 6, "ok", "pull", group="g", topic="T", queue=0, items=items)
    add(61, 7, "invoke", "commit", group="g", topic="T", queue=0, offset=2, received=2)
    add(90, 8, "ok", "offset", group="g", topic="T", queue=0, offset=2)
    return made


def seen(*keys: str, name: str = "pull") -> Seen:
    found = Seen(name)
    found.first["T", 0] = 0
    for offset, key in enumerate(keys):
        found.add("T", 0, offset, key, body_for(key))
    return found


@pytest.mark.parametrize("keys", ["abcd", "abcdf", "abcdfg"])
def test_all_is_well(keys: str) -> None:
    """What was not answered may be there or not."""
    verdict = judge(lines(), [seen(*keys), seen(*keys, name="scan")])
    verdict.demand()
    assert verdict.counts["send ok"] == 4
    assert verdict.counts["unknown and stored"] == 2 * (len(keys) - 4)


@pytest.mark.parametrize(
    ("invariant", "keys"),
    [
        ("I1", "abc"),  # d was acknowledged
        ("I2", "abcde"),  # e was refused
        ("I2", "abcdz"),  # nobody sent z
        ("I2", "abcdb"),  # b twice
        ("I2", "abcdg"),  # a batch without its beginning
        ("I3", "bacd"),  # acknowledged at other places
    ],
)
def test_what_a_reader_finds(invariant: str, keys: str) -> None:
    faults = judge(lines(), [seen(*keys)]).faults
    assert any(fault.startswith(invariant) for fault in faults), faults


def test_a_changed_body_is_a_phantom() -> None:
    found = seen("a", "b", "c", "d")
    found.add("T", 0, 1, "b", b"another body")
    assert any(fault.startswith("I2") for fault in judge(lines(), [found]).faults)


def test_gaps_and_a_late_beginning() -> None:
    found = seen("a", "b", "c", "d", "f")
    del found.places["T", 0][3]
    assert any(fault.startswith("I4") and "gaps" in fault for fault in judge(lines(), [found]).faults)
    found = seen("a", "b", "c", "d")
    del found.places["T", 0][0]
    assert any(fault.startswith("I4") and "from 0 on: [0]" in fault for fault in judge(lines(), [found]).faults)


def test_only_what_a_power_cut_took_may_leave_a_gap() -> None:
    found = seen("a", "b", "c", "d", "f")
    del found.places["T", 0][3]
    torn = {"d": ("T", 0, 3)}
    assert not any(fault.startswith("I4") for fault in judge(lines(), [found], torn=torn).faults)
    assert any(fault.startswith("I1") for fault in judge(lines(), [found], torn=torn).faults), "but it is lost"
    del found.places["T", 0][2]
    assert any(fault.startswith("I4") for fault in judge(lines(), [found], torn=torn).faults)


def test_what_retention_deleted_is_not_lost() -> None:
    found = seen("a", "b", "c", "d")
    del found.places["T", 0][0]
    found.first["T", 0] = 1
    judge(lines(), [found]).demand()


def test_readers_that_differ() -> None:
    assert any(f.startswith("I10") for f in judge(lines(), [seen(*"abcd"), seen(*"abcdf", name="scan")]).faults)


def _same_offset(made: Lines) -> None:
    made[3]["offset"] = 0


def _back_in_order(made: Lines) -> None:
    made[1]["offset"], made[3]["offset"] = 1, 0


def _vanished(made: Lines) -> None:
    made[10]["items"] = [(4, "f", digest(body_for("f")))]


def _committed_too_much(made: Lines) -> None:
    made[11]["offset"] = 3


def _offset_from_nowhere(made: Lines) -> None:
    made[12]["offset"] = 7


def _offset_lost(made: Lines) -> None:
    made[12] |= {"offset": 0, "at_least": 2}


@pytest.mark.parametrize(
    ("invariant", "change"),
    [
        ("I3", _same_offset),
        ("I5", _back_in_order),
        ("I7", _vanished),
        ("I4", _committed_too_much),
        ("I18", _offset_from_nowhere),
        ("I18", _offset_lost),
    ],
)
def test_what_clients_were_told(invariant: str, change: Callable[[Lines], None]) -> None:
    made = lines()
    change(made)
    faults = judge(made, [seen("a", "b", "c", "d")]).faults
    assert any(fault.startswith(invariant) for fault in faults), faults


def test_a_commit_without_an_answer_may_have_been_taken_or_not() -> None:
    for held in (1, 2):
        made = lines()
        commit = made[11]
        made[11:12] = [{**commit, "offset": 1}, {**commit, "kind": "ok", "offset": 1}, {**commit, "op": 9}]
        made[-1]["offset"] = held
        judge(made, [seen("a", "b", "c", "d")]).demand()


def test_every_group_is_given_what_was_acknowledged() -> None:
    made = lines()
    found = [seen("a", "b", "c", "d")]
    faults = judge(made, found, all_consumed=True).faults
    assert [fault[:5] for fault in faults] == ["I6: c", "I6: d"]
    rest = [(2, "c", digest(body_for("c"))), (3, "d", digest(body_for("d")))]
    made.append({**made[10], "t": 95, "op": 9, "items": rest})
    judge(made, found, all_consumed=True).demand()
    # Another group has nothing of these two.
    made[-1]["group"] = "h"
    faults = judge(made, found, all_consumed=True).faults
    assert sorted(fault.split(" was ")[0] for fault in faults) == ["I6: a", "I6: b", "I6: c", "I6: d"]
    del made[10], made[-1]
    assert any("no group" in fault for fault in judge(made, found, all_consumed=True).faults)


def test_what_may_be_lost_is_excused() -> None:
    verdict = judge(lines(), [seen("a", "b")], lost_ok=["c", "d"])
    verdict.demand()
