"""What is done with a half message that nobody has settled."""

import pytest

from rmq.broker.transaction.check import Verdict, judge

NOW = 1_700_000_100_000
HOURS = 72 * 3_600_000


def verdict(table: dict[str, str], age: int, *, born_ago: int | None = None, seen: bool = False) -> Verdict:
    born = NOW - (age if born_ago is None else born_ago)
    return judge(table, born, NOW - age, now=NOW, timeout=6000, most=15, keep=HOURS, seen=seen)


@pytest.mark.parametrize(
    ("table", "age", "expected"),
    [
        ({}, 5999, Verdict.STOP),
        ({}, 6000, Verdict.CHECK),
        ({"TRANSACTION_CHECK_TIMES": "14"}, 1, Verdict.CHECK),
        ({"TRANSACTION_CHECK_TIMES": "15"}, 6000, Verdict.DISCARD),
        ({"TRANSACTION_CHECK_TIMES": "x"}, 6000, Verdict.CHECK),
        ({"TRANSACTION_CHECK_TIMES": "1", "CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}, 1, Verdict.CHECK),
        ({}, HOURS + 1, Verdict.DISCARD),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}, 29_999, Verdict.LATER),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}, 30_000, Verdict.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, 1_000, Verdict.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, 5999, Verdict.LATER),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, 6000, Verdict.CHECK),
    ],
)
def test_by_age_and_tries(table: dict[str, str], age: int, expected: Verdict) -> None:
    assert verdict(table, age) is expected


@pytest.mark.parametrize("born_ago", [-3_600_000, 4 * 24 * 3_600_000])
def test_a_producer_s_wrong_clock_changes_nothing(born_ago: int) -> None:
    assert verdict({}, 5999, born_ago=born_ago) is Verdict.STOP
    assert verdict({}, 6000, born_ago=born_ago) is Verdict.CHECK


def test_a_copy_that_java_made_of_an_immune_half_is_as_old_as_the_first() -> None:
    table = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "30", "TRAN_PREPARED_QUEUE_OFFSET": "4"}
    assert verdict(table, 5, born_ago=31_000) is Verdict.CHECK


def test_a_clock_that_went_back_does_not_hold_a_message_for_ever() -> None:
    assert verdict({}, -5000, seen=True) is Verdict.CHECK
    assert verdict({}, -5000) is Verdict.STOP
