"""A backlog that is sent while producers send: with a speed, and in turns with a slave that is near."""

from __future__ import annotations

import pytest

from rmq.broker.replication import pace as module
from rmq.broker.replication.pace import Pace, Speed

TURN = 64 << 10
END = 1 << 30
#: Seconds for which one turn lasts.
DUE = TURN / module._SPEED


@pytest.fixture
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WINDOW", 3 * TURN)


def sent(pace: Pace, now: float, *, unheard: int = TURN, end: int = END, kept: float = 0.00001) -> float:
    return pace.on_sent(TURN, unheard, end, now, kept)


def through(pace: Pace, now: float) -> None:
    """Nothing is due any more."""
    while not sent(pace, now):
        pass


@pytest.mark.usefixtures("_wide")
def test_a_part_that_is_due_goes_as_soon_as_the_slave_or_a_producer_gives_the_occasion() -> None:
    pace, now = Pace(Speed()), 5.0
    through(pace, now)
    now += DUE / 2
    for _ in range(20):
        assert pace.may_go_on(0, END, now)
        assert sent(pace, now) == 0.001
        assert not pace.may_go_on(0, END, now + 0.49 * DUE)
        now += DUE


@pytest.mark.usefixtures("_wide")
def test_what_is_late_comes_together_but_no_more_than_a_millisecond_s() -> None:
    pace = Pace(Speed())
    through(pace, 5.0)
    assert pace.may_go_on(0, END, 9.0)
    assert [sent(pace, 9.0) for _ in range(4)] == [0, 0, 0, 0.001]


@pytest.mark.usefixtures("_wide")
def test_what_producers_add_comes_on_top() -> None:
    pace, later, end = Pace(Speed()), 5.00005, END + 10 * TURN
    through(pace, 5.0)
    assert not pace.may_go_on(0, END, 5.0)
    assert pace.may_go_on(0, end, later)
    assert [sent(pace, later, end=end) for _ in range(11)] == [0] * 10 + [0.001]
    pace.on_through()
    sent(pace, later, end=2 * end)
    assert not pace.may_go_on(0, 2 * end, later + 0.00001)


@pytest.mark.usefixtures("_wide")
def test_a_slave_that_is_near_says_what_it_has_before_it_gets_more() -> None:
    pace = Pace(Speed())
    through(pace, 5.0)
    assert not pace.may_go_on(3 * TURN, END, 5.1)
    assert pace.may_go_on(2 * TURN, END, 5.1)
    assert sent(pace, 5.1, unheard=2 * TURN) == 0
    assert sent(pace, 5.1, unheard=3 * TURN) == 0.001


@pytest.mark.usefixtures("_wide")
def test_one_that_cannot_in_time_gets_what_is_due_all_the_same() -> None:
    pace, now = Pace(Speed()), 5.0
    through(pace, now)
    for _ in range(5):
        assert not pace.may_go_on(10 * TURN, END, now + 0.0009)
        now += 2 * DUE
        pace.on_rested(END, now)
        rests = [sent(pace, now, unheard=10 * TURN)]
        while not rests[-1]:
            rests.append(sent(pace, now, unheard=10 * TURN))
        assert 2 <= len(rests) <= 3
        assert not pace.may_go_on(10 * TURN, END, now + 1)


@pytest.mark.usefixtures("_wide")
def test_a_machine_that_is_slow_rests_as_long_as_it_was_busy_whatever_is_heard() -> None:
    pace = Pace(Speed())
    through(pace, 5.0)
    assert pace.may_go_on(0, END, 6.0)
    assert [sent(pace, 6.0, kept=0.01) for _ in range(4)] == [0, 0, 0, 0.04]
    assert not pace.may_go_on(0, END, 6.039)
    assert pace.may_go_on(0, END, 6.041)


@pytest.mark.usefixtures("_wide")
def test_a_backlog_that_ends_leaves_nothing_to_the_next() -> None:
    pace = Pace(Speed())
    for _ in range(100):  # as fast as it goes, while nobody sends
        sent(pace, 5.0, kept=0.01)
        pace.on_free()
    assert sent(pace, 5.0 + DUE / 2) == 0.001
    assert pace.may_go_on(0, END, 5.0 + 1.1 * DUE)


def test_a_turn_waits_for_the_word_of_the_one_before_it_or_for_a_millisecond() -> None:
    pace = Pace(Speed())
    assert sent(pace, 5.0) == 0.001
    assert not pace.may_go_on(TURN, END, 5.0009)
    assert pace.may_go_on(0, END, 5.0009)
    pace.on_rested(END, 5.001)
    assert [sent(pace, 5.001, unheard=turns * TURN) for turns in (2, 3)] == [0, 0]


def test_slaves_share_the_speed_and_who_takes_little_leaves_the_rest() -> None:
    speed = Speed()
    slaves = [Pace(speed) for _ in range(16)]
    slow, rests = slaves[0], dict.fromkeys(slaves, 5.0)
    took = dict.fromkeys(slaves, 0)
    now, seconds = 5.0, 0.2
    while now < 5.0 + seconds:
        now += 0.0001
        for pace in slaves:
            if now >= rests[pace] or pace.may_go_on(0, END, now):
                rests[pace] = now + max(sent(pace, now), 0.02 if pace is slow else 0.0)
                took[pace] += TURN
    assert sum(took.values()) == pytest.approx(seconds * module._SPEED, rel=0.1)
    others = [size for pace, size in took.items() if pace is not slow]
    assert max(others) < 2 * min(others)
    assert sum(others) / 15 > 1.05 * took[slow] > 0


def test_each_gets_what_producers_add() -> None:
    speed = Speed()
    slaves = [Pace(speed) for _ in range(3)]
    for pace in slaves:
        for _ in range(2):
            sent(pace, 5.0, kept=0.0)
    for pace in slaves:
        assert not pace.may_go_on(0, END, 5.0)
        assert pace.may_go_on(0, END + 4 * TURN, 5.0)
        for _ in range(4):
            sent(pace, 5.0, end=END + 4 * TURN, kept=0.0)
        assert not pace.may_go_on(0, END + 4 * TURN, 5.0)


def test_what_producers_add_while_a_slave_reads_nothing_is_backlog() -> None:
    pace = Pace(Speed())
    assert sent(pace, 5.0) == 0.001
    end = END + (1 << 30)
    turns = 0
    while pace.may_go_on(0, end, 65.0):
        sent(pace, 65.0, end=end, kept=0.0)
        turns += 1
    assert turns * TURN <= 3 << 20
