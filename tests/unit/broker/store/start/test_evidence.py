"""What tells of a log's end, and where queues are not what it is: one flipped bit proves nothing."""

from __future__ import annotations

import pytest

from rmq.broker.store.start.evidence import Evidence, first_difference

SEGMENT = 1 << 20


@pytest.mark.parametrize(
    ("claims", "covered", "end", "known", "reached"),
    [
        ([(900, 200), (300, 200)], {0}, 500, -1, 1100),
        ([(SEGMENT + 900, 200), (300, 200)], {0, SEGMENT}, 500, -1, SEGMENT + 1100),
        # One bit of an entry: no other entry points there, or anywhere between.
        ([(SEGMENT * 2 + 900, 200), (300, 200)], {0, SEGMENT * 2}, 500, -1, 500),
        ([(300 | 1 << 61, 200), (300, 200)], {0, 1 << 61}, 500, -1, 500),
        # A clean stop has noted where the log ended.
        ([(900, 200), (300, 200)], {0}, 500, 500, 500),
        ([(900, 200), (1300, 200)], {0}, 500, 1500, 1500),
        # No record has such a size.
        ([(900, 0x7FFFFFF0), (300, 200)], {0}, 500, -1, 500),
        # The log is gone up to a segment's beginning, or all of it.
        ([(SEGMENT + 900, 200)], {0, SEGMENT}, SEGMENT, -1, SEGMENT + 1100),
        ([(SEGMENT + 900, 200)], {0, SEGMENT}, 0, -1, SEGMENT + 1100),
        ([], set(), 0, -1, 0),
    ],
)
def test_how_far_a_log_reached_is_what_several_entries_say(
    claims: list[tuple[int, int]], covered: set[int], end: int, known: int, reached: int
) -> None:
    evidence = Evidence(SEGMENT, known, -1, dict.fromkeys(covered, 1), {}, claims)
    assert evidence.queues_reach(end) == reached
    assert evidence.lost_tail(end, lacking=1).queues == reached
    # Where the log accounts for everything that they had, what they say of its end is of no interest.
    assert evidence.lost_tail(end, lacking=0).queues == 0


@pytest.mark.parametrize(
    ("there", "covered", "checked_from", "differs"),
    [
        ({}, {}, 0, None),
        ({0: 10, 64: 20}, {0: 10, 64: 20}, 0, None),
        ({64: 20}, {0: 99, 64: 20}, 64, None),  # nobody has looked there
        ({0: 10, 64: 20}, {0: 10, 64: 19}, 0, 64),
        ({0: 10, 64: 20}, {64: 20}, 0, 0),
        ({64: 20}, {64: 20, 128: 5}, 64, 128),  # they reach further than the log
        ({0: 0}, {}, 0, None),
    ],
)
def test_where_queues_are_not_what_the_log_is(
    there: dict[int, int], covered: dict[int, int], checked_from: int, differs: int | None
) -> None:
    assert first_difference(there, covered, checked_from) == differs


def test_any_of_them_may_know_a_further_end() -> None:
    assert Evidence(SEGMENT, 700, 900, index=800).lost_tail(500, lacking=0)[1:] == (0, 800, 900)
    assert Evidence(SEGMENT, 900, 700, index=0).lost_tail(500, lacking=0)[1:] == (0, 0, 900)
