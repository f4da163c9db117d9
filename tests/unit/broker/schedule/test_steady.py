"""Delays are measured by a clock that does not step."""

from __future__ import annotations

from rmq.broker.schedule.steady import Shifts, SteadyClock


class Hands:
    """Two clocks, moved by hand."""

    def __init__(self) -> None:
        self.wall = 1_790_000_000_000
        self.seconds = 100.0

    def now_ms(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def go(self, ms: int) -> None:
        self.wall += ms
        self.seconds += ms / 1000


def test_it_goes_on_as_the_wall_clock_would_have() -> None:
    """Field case B142."""
    hands = Hands()
    steady = SteadyClock(hands)
    begin = steady.now_ms()
    assert hands.wall - 2 <= begin <= hands.wall
    hands.go(10_000)
    hands.wall -= 3_600_000
    assert abs(steady.now_ms() - begin - 10_000) <= 1


def test_steps_are_told_and_slewing_is_not() -> None:
    hands, steps = Hands(), []
    steady = SteadyClock(hands)
    steady.on_step.append(lambda: steps.append(steady.offset()))
    hands.go(1000)
    hands.wall += 2
    assert steady.offset() == 0
    assert steps == []
    hands.wall -= 60_000
    assert 59_990 <= steady.offset() <= 60_000
    assert len(steps) == 1
    hands.go(5000)
    steady.offset()
    assert len(steps) == 1


def test_shifts_count_from_the_message_they_began_with() -> None:
    shifts = Shifts()
    shifts.begin(10, 5000)
    shifts.begin(20, -7000)
    shifts.begin(20, -8000)
    assert [shifts.due(index, 100_000) for index in (0, 9, 10, 19, 20, 99)] == [
        100_000, 100_000, 105_000, 105_000, 92_000, 92_000,
    ]  # fmt: skip
    shifts.forget(15)
    assert [shifts.due(index, 100_000) for index in (15, 19, 20)] == [105_000, 105_000, 92_000]
    shifts.cap(18, 50_000)
    assert [shifts.due(index, 100_000) for index in (15, 17, 18)] == [50_000, 50_000, 105_000]
    assert shifts.due(15, 1_000) == 6_000
