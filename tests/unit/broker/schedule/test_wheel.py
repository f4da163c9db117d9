"""The order of delivery, and which messages are dealt with."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.broker.schedule.done import DoneMap, decode_marks, encode_marks
from rmq.broker.schedule.wheel import Wheel

NOW = 1_790_000_000_000


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "pass"]), st.integers(0, 5000), st.integers(1, 7)), max_size=60),
)
def test_takes_what_is_due_in_order_of_time_and_of_arrival(steps: list[tuple[str, int, int]]) -> None:
    wheel, now = Wheel(), NOW
    model: list[tuple[int, int]] = []
    for index, (step, number, limit) in enumerate(steps):
        if step == "add":
            # Some are due before now: the clock went on while they were being stored.
            due = now + number - 500
            wheel.add(due, index)
            model.append((due, index))
        else:
            now += number
            due_now = sorted(one for one in model if one[0] <= now)[:limit]
            assert wheel.take(now, limit) == due_now
            model = [one for one in model if one not in due_now]
        assert len(wheel) == len(model)
        first = wheel.next_due()
        if model:
            assert first is not None
            assert min(model)[0] - 1000 < first <= min(model)[0]
        else:
            assert first is None
    assert wheel.take(now + 10_000_000, 1000) == sorted(model)


def test_nothing_is_taken_a_millisecond_early() -> None:
    wheel = Wheel()
    wheel.add(NOW + 1500, 7)
    assert wheel.take(NOW + 1499, 10) == []
    assert wheel.take(NOW + 1500, 10) == [(NOW + 1500, 7)]


def test_a_million_messages_take_a_few_megabytes() -> None:
    wheel = Wheel()
    chance = random.Random(1)
    for index in range(200_000):
        wheel.add(NOW + chance.randrange(600_000), index)
    size = sum(sys.getsizeof(slot) for slot in wheel._slots.values()) + sys.getsizeof(wheel._slots)
    assert size < 200_000 * 12
    assert len(wheel.take(NOW + 600_000, 1 << 30)) == 200_000


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 30), st.lists(st.integers(0, 300), max_size=300))
def test_done_is_what_was_said_to_be_done(floor: int, indexes: list[int]) -> None:
    done, model = DoneMap(floor), set(range(floor))
    for index in indexes:
        done.add(index)
        model.add(index)
        assert done.floor == next(i for i in range(400) if i not in model)
    assert [i for i in range(320) if i in done] == [i for i in range(320) if i in model]
    assert list(done.missing(0, 320)) == [i for i in range(320) if i not in model]


def test_what_is_done_in_front_takes_no_memory() -> None:
    done = DoneMap(5)
    for index in range(5, 1_200_000):  # more bits than may stay
        done.add(index)
    assert done.floor == 1_200_000
    assert len(done._bits) <= 1 << 17
    assert 1_199_999 in done
    assert 1_200_000 not in done


def test_what_has_left_the_queue_is_done() -> None:
    done = DoneMap()
    done.add(12)
    done.skip_to(10)
    assert (done.floor, 9 in done, 10 in done) == (10, True, False)
    done.add(10)
    done.add(11)
    assert done.floor == 13


@given(st.sets(st.integers(0, 1 << 40), min_size=1, max_size=50))
def test_marks(indexes: set[int]) -> None:
    assert {index for part in decode_marks(encode_marks(indexes), 1 << 41) for index in part} == indexes


def test_marks_are_ranges() -> None:
    assert encode_marks([9, 3, 8, 7]) == b"3,7-9"
    for text in (
        b"",
        b"x",
        b"3,,4",
        b"\xff",
        b"1-x",
        b"-3",
        b"3-12",
        b"9000000000000",
        b"0-9000000000000",
        b"9" * 5000,
    ):
        with pytest.raises(ValueError, match="names no message of 12"):
            decode_marks(text, 12)
    assert decode_marks(b"11", 12) == [range(11, 12)]


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 90), st.integers(0, 40)), max_size=6))
def test_ranges_are_done_as_their_members_are(floor: int, ranges: list[tuple[int, int]]) -> None:
    whole, each = DoneMap(floor), DoneMap(floor)
    for start, size in ranges:
        whole.add_all(range(start, start + size))
        for index in range(start, start + size):
            each.add(index)
    assert whole.floor == each.floor
    assert [index in whole for index in range(140)] == [index in each for index in range(140)]
