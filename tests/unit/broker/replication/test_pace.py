"""A backlog that is sent while producers send: in turns with a slave that is near, in bursts to one that is not."""

from __future__ import annotations

from rmq.broker.replication.pace import Pace

TURN = 64 << 10


def rests(pace: Pace, turns: int, kept: float = 0.0001, unheard: int = 10 * TURN) -> list[float]:
    return [pace.on_sent(TURN, unheard, 5.0, kept) for _ in range(turns)]


def test_a_slave_that_says_what_it_has_gets_more_at_once() -> None:
    pace = Pace()
    for _ in range(5):
        assert rests(pace, 1, unheard=TURN) == [0]
        assert rests(pace, 1, unheard=2 * TURN) == [0.001]
        assert not pace.on_heard(2 * TURN, 5.0005)
        assert pace.on_heard(TURN, 5.0005)


def test_one_that_cannot_in_time_gets_bursts_that_grow_until_it_does() -> None:
    pace = Pace()
    for burst in (1, 1, 2, 4, 4):
        assert rests(pace, burst) == [0] * (burst - 1) + [0.001]
        pace.on_rested()
    assert rests(pace, 4) == [0, 0, 0, 0.001]
    assert pace.on_heard(0, 5.1)
    assert rests(pace, 1) == [0.001]
    pace.on_rested()
    assert rests(pace, 1) == [0.001]


def test_a_machine_that_is_slow_rests_as_long_as_it_was_busy_whatever_is_heard() -> None:
    pace = Pace()
    assert rests(pace, 1, kept=0.01) == [0.01]
    assert not pace.on_heard(0, 5.009)
    assert pace.on_heard(0, 5.011)
    assert rests(pace, 1) == [0.001]


def test_a_backlog_that_ends_leaves_nothing_to_the_next() -> None:
    pace = Pace()
    assert rests(pace, 1) == [0.001]
    pace.on_rested()
    rests(pace, 1, kept=0.01, unheard=TURN)
    pace.on_through()
    assert rests(pace, 1) == [0.001]
