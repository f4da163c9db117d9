"""A bound on what one sender has under way."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from rmq.protocol.errors import TooManyRequests
from rmq.runtime import window as module
from rmq.runtime.awaited import Awaited, Together
from rmq.runtime.window import Entry, Window
from rmq.testing.simloop import SimLoop
from tests.support.virtual import in_virtual_time, one_world


def window(most: int = 2, kib: int = 1_000) -> Window:
    return Window(most, kib, one_world().clock, "the producer g")


class Turns:
    """Who got a place, in order; each keeps it until it is told to leave."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.inside: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str, size: int = 1, timeout: float = 3.0) -> None:
        for name in names:
            self.gates[name] = asyncio.Event()
            self.tasks[name] = asyncio.ensure_future(self._stay(name, size, timeout))
        await asyncio.sleep(0.001)

    async def _stay(self, name: str, size: int, timeout: float) -> None:
        if not self.window.take(size):
            place = self.window.turn(size, timeout)
            try:
                await place
            except asyncio.CancelledError:
                self.window.give_up(place, size)
                raise
        self.inside.append(name)
        try:
            await self.gates[name].wait()
        finally:
            self.window.leave(size, answered=True)

    async def go(self, *names: str) -> None:
        for name in names:
            self.gates[name].set()
        await asyncio.gather(*(self.tasks[name] for name in names))
        await asyncio.sleep(0.001)


@in_virtual_time
async def test_who_comes_first_has_a_place_first() -> None:
    turns = Turns(window(2))
    await turns.come("a", "b", "c", "d", "e")
    assert turns.inside == ["a", "b"]
    await turns.go("b")
    assert turns.inside == ["a", "b", "c"]
    await turns.go("a", "c")
    assert turns.inside == ["a", "b", "c", "d", "e"]
    await turns.go("d", "e")
    assert (turns.window.used, turns.window.used_kib) == (0, 0)


@in_virtual_time
async def test_a_small_one_does_not_overtake_a_large_one_that_waits() -> None:
    turns = Turns(window(10, kib=100))
    await turns.come("a", size=60)
    await turns.come("large", size=60)
    await turns.come("small", size=1)
    assert turns.inside == ["a"]
    await turns.go("a")
    assert turns.inside == ["a", "large", "small"]
    await turns.go("large", "small")


@in_virtual_time
async def test_one_that_is_larger_than_the_window_goes_alone() -> None:
    turns = Turns(window(10, kib=100))
    await turns.come("a")
    await turns.come("huge", size=5_000)
    assert turns.inside == ["a"]
    await turns.go("a")
    assert turns.inside == ["a", "huge"]
    await turns.come("b")
    assert turns.inside == ["a", "huge"]
    await turns.go("huge")
    assert turns.inside == ["a", "huge", "b"]
    await turns.go("b")


@in_virtual_time
async def test_who_is_cancelled_while_waiting_takes_no_place() -> None:
    turns = Turns(window(1))
    await turns.come("a", "b", "c")
    turns.tasks["b"].cancel()
    await turns.go("a")
    assert turns.inside == ["a", "c"]
    await turns.go("c")
    assert turns.window.used == 0


@in_virtual_time
async def test_who_is_cancelled_just_after_a_place_was_given_gives_it_back() -> None:
    turns = Turns(window(1))
    assert turns.window.take(1)
    await turns.come("b", "c")
    turns.window.leave(1, answered=True)
    turns.tasks["b"].cancel()  # the place is b's, which does not know it yet
    await asyncio.sleep(0.001)
    assert turns.tasks["b"].cancelled()
    assert turns.inside == ["c"]
    await turns.go("c")
    assert turns.window.used == 0


@in_virtual_time
async def test_nobody_waits_for_a_window_that_stands_still() -> None:
    turns = Turns(window(1))
    began = asyncio.get_running_loop().time()
    await turns.come("a")
    await turns.come("b", timeout=3.0)
    await turns.come("c", timeout=60.0)
    with pytest.raises(TooManyRequests, match=r"the producer g has 1 sends .* none was answered in 3 s") as refused:
        await turns.tasks["b"]
    assert 3.0 <= asyncio.get_running_loop().time() - began < 4.0
    assert not refused.value.retriable  # it was not sent, and another attempt would wait, too
    await turns.go("a")
    assert turns.inside == ["a", "c"]
    await turns.go("c")
    assert turns.window.used == 0


@in_virtual_time
async def test_a_window_that_moves_is_waited_for_longer_than_an_answer() -> None:
    turns = Turns(window(1))
    names = [str(number) for number in range(10)]
    await turns.come(*names, timeout=3.0)
    for name in names:
        await asyncio.sleep(2.0)  # twenty seconds in all
        await turns.go(name)
    assert turns.inside == names


@in_virtual_time
async def test_failures_do_not_move_it() -> None:
    held = window(1)
    assert held.take(1)
    waiting = [held.turn(1, 3.0) for _ in range(5)]
    for _ in range(3):
        await asyncio.sleep(2.0)
        held.leave(1, answered=False)  # a place is free, and nothing was answered
    assert [place.done() and place.exception() is None for place in waiting] == [True, False, False, False, False]
    assert all(isinstance(place.exception(), TooManyRequests) for place in waiting[1:])


@in_virtual_time
async def test_a_loop_that_did_not_turn_is_nobodys_time() -> None:
    held = window(1)
    assert held.take(1)
    place = held.turn(1, 3.0)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    await asyncio.sleep(1.0)
    loop.pass_time(10.0)  # the loop was elsewhere: its timers come late
    await asyncio.sleep(2.0)
    assert not place.done()
    await asyncio.sleep(2.0)
    assert isinstance(place.exception(), TooManyRequests)
    held.leave(1, answered=True)


@in_virtual_time
async def test_other_threads_take_places_of_the_same_window() -> None:
    held = window(3)
    taken: list[bool] = []
    threads = [threading.Thread(target=lambda: taken.append(held.enter(Entry(held, 1)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [False] * 5 + [True] * 3
    assert not held.take(1)
    place = held.turn(1, 3.0)
    held.leave(1, answered=True)
    assert place.done()
    assert not held.enter(Entry(held, 1))
    for _ in range(3):
        held.leave(1, answered=True)
    assert (held.used, held.used_kib) == (0, 0)


class _Interrupt(BaseException):
    """What a signal handler raises."""


def interrupted_at(number: int, call: Callable[[], object]) -> bool:
    """Raise before the n-th instruction that a call runs of the window, as a signal handler; False: it has fewer."""
    left = number

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise _Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except _Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@in_virtual_time
async def test_a_thread_interrupted_at_any_instruction_gives_back_the_place_that_it_got_and_no_other() -> None:
    held = window(5)
    other = Entry(held, 3)
    assert held.enter(other)
    taken = 0
    for number in itertools.count():
        mine, last = Entry(held, 7), Entry(held, 2)
        interrupted = interrupted_at(number, lambda: held.enter(mine))  # noqa: B023 - called in this turn
        taken += held.used == 2
        if number % 2:  # it has been the last one until now, or it is no more
            assert held.enter(last)
        for _ in range(2):  # its call ends, and so did the send
            mine.leave()
        last.leave()
        assert (held.used, held.used_kib) == (1, 3), number
        if not interrupted:
            break
    assert number > 30
    assert 1 < taken < number, "some of them come before the place is given, and some behind it"
    other.leave()
    assert (held.used, held.used_kib) == (0, 0)


@in_virtual_time
async def test_places_are_given_in_portions_between_which_the_loop_turns() -> None:
    """What is made of a thousand at once would stand still until the last of them has a place."""
    turns = Turns(window(10_000, kib=10_000))
    names = [str(number) for number in range(1_000)]
    for name in names:
        turns.gates[name] = asyncio.Event()
        turns.tasks[name] = asyncio.ensure_future(turns._stay(name, 1, 3.0))
    begun = []
    for _ in range(20):
        await asyncio.sleep(0)
        begun.append(len(turns.inside))
    assert begun[-1] == 1_000
    assert max(after - before for before, after in itertools.pairwise([0, *begun])) == 256
    assert turns.inside == names
    await turns.go(*names)
    assert turns.window.used == 0


@in_virtual_time
async def test_nobody_overtakes_one_that_has_a_place_and_does_not_know_yet() -> None:
    turns = Turns(window(2))
    await turns.come("a", "b", "c")
    turns.gates["a"].set()
    turns.gates["b"].set()
    await asyncio.sleep(0)  # they leave: c has a place, and another one is free
    assert turns.window.used == 1
    assert turns.inside == ["a", "b"]
    assert not turns.window.take(1)
    await turns.come("d")
    assert turns.inside == ["a", "b", "c", "d"]
    await turns.go("c", "d")
    assert turns.window.take(1), "none of them is to begin"


class Thing(Awaited[object]):
    """What a window begins, and that ends when it is told to."""

    def __init__(self, run: Run, name: str) -> None:
        super().__init__(Together(asyncio.get_running_loop()))
        self.run, self.name = run, name

    def wanted(self) -> None:
        """Somebody else tells it."""

    def begin(self, timeout: float) -> None:
        self.run.begun.append(self.name)
        if self.name.startswith("bad"):
            self.end()

    def end(self) -> None:
        self.run.window.leave(1, answered=True)
        self.tell(self.name.upper())


class Run:
    def __init__(self, most: int) -> None:
        self.window = Window(most, 10_000, one_world().clock, "the producer g")
        self.begun: list[str] = []
        self.things: dict[str, Thing] = {}

    def run(self, *names: str) -> list[Thing]:
        for name in names:
            self.things[name] = Thing(self, name)
            self.window.run(self.things[name], 1, 3.0)
        return [self.things[name] for name in names]

    def end(self, *names: str) -> None:
        for name in names:
            self.things[name].end()


@in_virtual_time
async def test_what_has_its_turn_is_begun_where_a_place_is_given() -> None:
    run = Run(2)
    ended = run.run("a", "b", "c", "d")
    assert run.begun == ["a", "b"]
    run.end("b")
    assert run.begun == ["a", "b", "c"]
    ended[3].cancel()
    run.end("a", "c")
    assert run.begun == ["a", "b", "c"]  # whoever is cancelled while he waits begins nothing
    assert [await one for one in ended[:3]] == ["A", "B", "C"]
    assert run.window.used == 0


@in_virtual_time
async def test_what_ends_where_it_begins_makes_no_towers() -> None:
    """Each gives its place to the next one: 100,000 calls in each other would be too many for any interpreter."""
    run = Run(1)
    ended = run.run("good", *(f"bad {number}" for number in range(5_000)), "last")
    run.end("good")
    assert [await one for one in ended[:-1]] == ["GOOD", *(f"BAD {number}" for number in range(5_000))]
    assert len(run.begun) == 5_002
    run.end("last")
    assert run.window.used == 0


@in_virtual_time
async def test_things_are_begun_in_portions_between_which_the_loop_turns() -> None:
    run = Run(2_000)
    run.run(*map(str, range(3_000)))
    counts = []
    while len(run.begun) < 2_000:
        counts.append(len(run.begun))
        await asyncio.sleep(0)
    assert counts == list(range(256, 2_000, 256))
    # A thing that comes behind those that wait does not overtake them, and a place that comes back is theirs.
    run.run("late")
    run.end(*map(str, range(100)))
    await asyncio.sleep(0.01)
    assert run.begun == [str(number) for number in range(2_100)]


@in_virtual_time
async def test_nothing_is_begun_that_waited_for_a_window_that_stands_still() -> None:
    run = Run(1)
    ended = run.run("a", "b")
    with pytest.raises(TooManyRequests, match="none was answered in 3 s"):
        await ended[1]
    run.end("a")
    assert run.begun == ["a"]
    assert run.window.used == 0
