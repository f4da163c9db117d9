"""Bursts and rests of a backlog that is sent while producers send."""

from __future__ import annotations

from rmq.broker.replication.pace import Pace

TURN = 64 << 10


def rests(pace: Pace, turns: int, kept: float) -> list[float]:
    return [pace.on_sent(TURN, kept) for _ in range(turns)]


def test_a_burst_of_turns_and_a_rest() -> None:
    assert rests(Pace(), 8, 0.0001) == [0, 0, 0, 0.001, 0, 0, 0, 0.001]


def test_a_machine_that_is_slow_rests_as_long_as_it_was_busy() -> None:
    pace = Pace()
    assert rests(pace, 4, 0.0025) == [0, 0, 0, 0.01]
    assert rests(pace, 4, 0.0001)[3] == 0.001


def test_a_backlog_that_ends_leaves_nothing_to_the_next() -> None:
    pace = Pace()
    rests(pace, 3, 0.01)
    pace.on_through()
    assert rests(pace, 4, 0.0) == [0, 0, 0, 0.001]
