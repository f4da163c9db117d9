"""The judges of groups find what is wrong: one small history for every violation, beside one in which all is well."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kills.groups import Look, judge_group, judge_pops

Line = dict[str, Any]
SECOND = 1_000_000_000
QUEUE = "b/0"
SENT = {f"k{at}": (QUEUE, at) for at in range(8)}


def line(t: float, kind: str, at: int, who: str = "a", topic: str = "T") -> Line:
    return {
        "t": int(t * SECOND),
        "proc": who,
        "kind": kind,
        "topic": topic,
        "queue": QUEUE,
        "offset": at,
        "key": f"k{at}",
    }


def consumed(*, hand_over: int = 4, ends: int = 8) -> list[Line]:
    """One message after the other, two a second; ``a`` has the first ones, ``b`` the others."""
    made: list[Line] = []
    for at in range(ends):
        who = "a" if at < hand_over else "b"
        made += [line(at / 2, "given", at, who), line(at / 2 + 0.1, "done", at, who)]
    return made


def look(at: float, offset: int, *, last: bool = False) -> Look:
    return Look(int(at * SECOND), int((at + 0.01) * SECOND), {QUEUE: offset}, last)


def faults(lines: list[Line], *looks: Look, overlap: float = 1.0, orderly: bool = False) -> list[str]:
    lines = sorted(lines, key=lambda one: one["t"])
    verdict = judge_group(lines, SENT, looks, topic="T", overlap=overlap, orderly=orderly)
    return [fault.partition(":")[0] for fault in verdict.faults]


@pytest.mark.parametrize("orderly", [False, True])
def test_all_is_well(orderly: bool) -> None:
    assert faults(consumed(), look(1.2, 3), look(9, 8, last=True), orderly=orderly) == []


def test_a_message_that_nobody_was_done_with() -> None:
    assert faults(consumed(ends=7)) == ["I6"]
    assert faults([one for one in consumed() if (one["kind"], one["offset"]) != ("done", 5)]) == ["I6"]


def test_an_offset_that_was_committed_too_early() -> None:
    assert faults(consumed(), look(1.2, 4)) == ["I4"]
    assert faults(consumed(), look(1.55, 4)) == ["I4"], "given is not done"
    assert faults(consumed(), look(1.61, 4)) == []


def test_an_offset_that_is_behind_at_the_end() -> None:
    assert faults(consumed(), look(9, 7, last=True)) == ["I18"]
    assert faults(consumed(), look(9, 7)) == []


def test_two_members_of_one_queue() -> None:
    both = consumed() + [line(at / 2 + 0.05, "given", at, "c") for at in range(1, 7)]
    assert faults(both) == ["one owner"]
    assert faults(both, overlap=5) == []


def test_a_queue_that_changes_hands_and_back_has_had_one_member() -> None:
    back = [line(2 + at / 4, "given", 7, "b" if at < 40 else "a") for at in range(44)]
    assert faults([*consumed(), *back], overlap=0.1) == []
    assert faults([*consumed(), line(10, "given", 7, "a"), line(20, "given", 7, "b")], overlap=0.1) == []


def test_a_message_that_comes_before_the_one_before_it_was_done() -> None:
    early = [line(0.01, "given", 1), *consumed()]
    assert faults(early, orderly=True) == ["order"]
    assert faults(early) == []
    assert faults([*consumed(), line(9, "given", 3)], orderly=True) == [], "it comes again"


def test_a_message_that_comes_again_although_it_was_committed() -> None:
    again = [*consumed(), line(8, "given", 2, "c"), line(8.1, "done", 2, "c"), line(8.5, "given", 3, "c")]
    assert faults(again, look(1.2, 3)) == ["again"], "the second one was not committed"
    assert faults(again, look(6.5, 3)) == [], "c had asked before"
    assert faults([*again, line(9, "given", 2, "c")], look(7.2, 3)) == [], "c had asked before"
    assert faults([*again, line(9, "given", 2, "c")], look(6.9, 3)) == ["again"], "it has asked anew"
    assert faults([*again, line(9.6, "given", 3, "c")], look(7.5, 4)) == ["again"], "it was without the queue meanwhile"


def test_other_topics_do_not_count() -> None:
    assert faults([*consumed(), line(0.2, "given", 1, "c", "other")], overlap=0.0) == []


def pops(lines: list[Line]) -> list[str]:
    lines = sorted(lines, key=lambda one: one["t"])
    verdict = judge_pops(lines, {"k0": 0, "k1": 0}, invisible=5, late=10)
    return [fault.partition(":")[0] for fault in verdict.faults]


def test_pops() -> None:
    well = [line(1, "given", 0), line(1.1, "done", 0), line(1, "given", 1)]
    assert pops([*well, line(6, "given", 1), line(6.1, "done", 1)]) == []
    assert pops(well) == ["I6"], "it never came again"
    assert pops([*well, line(3, "given", 1), line(3.1, "done", 1)]) == ["invisible"]
    assert pops([*well, line(17, "given", 1), line(17.1, "done", 1)]) == ["late"]
    assert pops([*well, line(6, "given", 1), line(6.1, "done", 1), line(60, "given", 0)]) == [], "its ack was lost"
