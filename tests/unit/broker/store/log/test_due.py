"""Which delivery times an entry of a delayed message may have: what levels once said, from when it was admitted."""

from __future__ import annotations

import pytest

from rmq.broker.store.log.records import TagsRule

STORED = 1_796_004_748_542
HOURS = 7_200_000


@pytest.mark.parametrize(
    ("waits", "may"),
    [
        (HOURS, True),
        (HOURS - 3, True),  # admitted a turn of the loop before it got its store time
        (HOURS - 40_000, True),  # the clock was set back, and store times stood still
        (1_000, True),  # the level had another delay
        (1_000 - 3, True),
        (HOURS ^ 1 << 20, False),
        (HOURS + 100_500, False),
        (-HOURS, False),
        (401 * 86_400_000, False),
    ],
)
def test_what_an_entry_may_say(waits: int, may: bool) -> None:
    assert TagsRule.may_be_due(STORED + waits, STORED + HOURS, STORED) is may
