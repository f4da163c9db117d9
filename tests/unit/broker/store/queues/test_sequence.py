"""What is decided about records that are not the next of their queue, without a store."""

import pytest

from rmq.broker.store.queues.sequence import Claim, Verdict, decide, kin, weigh

SIZE = 100


def claims(*numbers: int) -> list[Claim]:
    """Records side by side that say which entries they are."""
    return [Claim(number, at * SIZE, SIZE, 0, 0, b"") for at, number in enumerate(numbers)]


def fed(end: int, *numbers: int, behind: int = 0, empty: bool = False) -> tuple[int, list[int], list[int], list[int]]:
    """Feed a queue: where it ends, what is good, what is bad, and what waits still."""
    good: list[int] = []
    bad: list[int] = []
    waiting: list[Claim] = []
    for claim in claims(*numbers):
        verdict = weigh(end, behind, waiting, claim, confirmed=False, empty=empty)
        if verdict is None:
            waiting.append(claim)
            continue
        waiting = []
        good += [one.number for one in verdict.good]
        bad += [one.number for one in verdict.bad]
        end = verdict.good[-1].number + 1
    return end, good, bad, [claim.number for claim in waiting]


@pytest.mark.parametrize(
    ("numbers", "good", "bad"),
    [
        ((4096 + 5, 6, 7), [6, 7], [4101]),  # the second goes on behind the slot of the first
        ((1, 6, 7), [6, 7], [1]),
        ((0, 5, 6), [5, 6], [0]),  # another queue's
        ((9, 10), [9, 10], []),  # some are lost
        ((6, 3, 8, 9), [6, 8, 9], [3]),
        ((-1, 6), [6], [-1]),
        ((1 << 40, 6), [6], [1 << 40]),
    ],
)
def test_following_records_tell(numbers: tuple[int, ...], good: list[int], bad: list[int]) -> None:
    assert fed(5, *numbers) == (good[-1] + 1, good, bad, [])


def test_a_queue_begins_anew_when_many_agree_and_no_record_goes_on_at_the_old_end() -> None:
    assert fed(50, *range(15)) == (50, [], [], list(range(15)))
    assert fed(50, *range(16)) == (16, list(range(16)), [], [])
    assert fed(50, *range(15), 50) == (51, [50], list(range(15)), [])


def test_no_more_is_lost_than_the_log_has_room_for() -> None:
    assert fed(5, 1 << 30, (1 << 30) + 1)[0] == 5


def last(end: int, *numbers: int, explained: bool = False, reach: int = 0, begins: bool = False) -> Verdict:
    return decide(end, 0, claims(*numbers), explained=lambda claim: explained, reach=reach, begins=begins)


def test_the_end_of_the_log_tells_what_it_can() -> None:
    assert last(5, 5 ^ 64).good == []  # a bit away from the right one
    assert [one.number for one in last(5, 5 ^ 64, explained=True).good] == [69]
    assert [one.number for one in last(5, 5 ^ 64, reach=70).good] == [69]
    assert [one.number for one in last(4, 7).good] == [7]
    assert [one.number for one in last(0, 64, begins=True).good] == [64]
    assert last(50, 0).good == []
    verdict = last(50, 0, 1)
    assert verdict.anew
    assert [one.number for one in verdict.good] == [0, 1]


def test_queues_that_are_a_bit_away() -> None:
    names = set(kin("T9", 1))
    assert {("T9", 0), ("T9", 3), ("T8", 1), ("t9", 1), ("T\N{REPLACEMENT CHARACTER}", 1)} <= names
    assert ("T9", 1) not in names
