"""The lag of the loop, measured and explained."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Any

import pytest

from rmq.remoting.lag import LoopLag
from rmq.runtime.stall import ThreadWatch, describe
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World
from tests.support.virtual import in_virtual_time, one_world


class Seen:
    """A watch that always saw the same."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.running = False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def beat(self) -> None:
        pass

    def take(self) -> str | None:
        return "task broker.x: f (rmq/x.py:1)"


class Late:
    """A clock that can be set on by hand, over the loop's."""

    def __init__(self) -> None:
        self.extra = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.extra


@in_virtual_time
async def test_stalls_are_counted_and_named() -> None:
    clock: Any = Late()
    world = replace(one_world(), clock=clock, stalls=Seen)
    lag = LoopLag(world, 50, "broker")
    lag.start()
    await asyncio.sleep(0.5)
    assert (lag.stalls, lag.greatest) == (0, pytest.approx(0.0, abs=1e-6))
    clock.extra += 0.2
    await asyncio.sleep(0.1)
    assert lag.stalls == 1
    assert lag.greatest == pytest.approx(0.2, abs=0.03)
    assert lag.stalled_seconds == pytest.approx(0.2, abs=0.03)
    clock.extra += 0.04
    await asyncio.sleep(31.0)
    assert lag.stalls == 1
    await asyncio.sleep(31.0)
    assert lag.greatest == pytest.approx(0.0, abs=1e-6)
    values = {family.name: next(iter(family.samples))[2] for family in lag.families()}
    assert values["rmq_loop_stalls_total"] == 1
    lag.stop()


def test_the_log_says_who(caplog: pytest.LogCaptureFixture) -> None:
    test_stalls_are_counted_and_named()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].startswith("broker: the event loop stood still for ")
    assert lines[0].endswith(" ms: task broker.x: f (rmq/x.py:1)")


async def test_the_watch_sees_what_runs() -> None:
    watch = ThreadWatch(0.025)
    watch.start()
    owner = TaskOwner("broker")
    found: list[str | None] = []

    async def busy() -> None:
        while True:
            # A standstill: nothing else runs until the watch has looked.
            found.append(watch.take())
            if found[-1] is not None:
                return

    try:
        await owner.spawn(busy(), "scan")
    finally:
        watch.stop()
    await owner.close()
    text = found[-1]
    assert text is not None
    assert text.startswith(("task broker.scan: ", "it was not running anything of ours"))


def test_a_stack_in_one_line() -> None:
    watch = ThreadWatch(1.0)
    assert watch.take() is None
    frame = sys._getframe()
    assert describe(frame, None) == "it was not running anything of ours: the machine was busy, or asleep"

    def inside() -> str:
        return describe(sys._getframe(), "t")

    made: list[str] = []
    loop = asyncio.new_event_loop()
    try:
        world = World.real()
        lag = LoopLag(replace(world, stalls=None), 50, "x")
        lag._monotonic = lambda: made.append(inside()) or 0.0  # type: ignore[assignment, func-returns-value]
        lag._arm(loop)
    finally:
        lag.stop()
        loop.close()
    assert "LoopLag._arm (rmq/remoting/lag.py:" in made[0]
    assert made[0].startswith("task t: ")
