"""What is done with a half message that nobody has settled."""

import pytest

from rmq.broker.transaction.check import Verdict, judge

NOW = 1_700_000_100_000
HOURS = 72 * 3_600_000


def verdict(table: dict[str, str], age: int, *, stored_ago: int | None = None) -> Verdict:
    stored = NOW - (age if stored_ago is None else stored_ago)
    return judge(table, NOW - age, stored, started=NOW - 10, now=NOW, timeout=6000, most=15, keep=HOURS)


@pytest.mark.parametrize(
    ("table", "age", "expected"),
    [
        ({}, 5999, Verdict.STOP),
        ({}, 6000, Verdict.CHECK),
        ({"TRANSACTION_CHECK_TIMES": "14"}, 6000, Verdict.CHECK),
        ({"TRANSACTION_CHECK_TIMES": "15"}, 6000, Verdict.DISCARD),
        ({"TRANSACTION_CHECK_TIMES": "x"}, 6000, Verdict.CHECK),
        ({}, HOURS + 1, Verdict.DISCARD),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}, 29_999, Verdict.LATER),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}, 30_000, Verdict.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, 5999, Verdict.LATER),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, 6000, Verdict.CHECK),
    ],
)
def test_by_age_and_tries(table: dict[str, str], age: int, expected: Verdict) -> None:
    assert verdict(table, age) is expected


def test_what_was_stored_in_this_pass_waits_for_the_next() -> None:
    assert verdict({}, 60_000, stored_ago=5) is Verdict.STOP


def test_a_clock_that_went_back_does_not_hold_a_message_for_ever() -> None:
    assert verdict({}, -5000, stored_ago=20) is Verdict.CHECK
