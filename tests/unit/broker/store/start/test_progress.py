"""Long starts say how far they are, short ones say nothing; a bar is told everything."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from rmq.broker.store.start.progress import SpokenProgress
from rmq.broker.store.store import Store
from rmq.testing.simloop import run
from rmq.testing.simworld import SimClock, Simulation
from tests.support.scenes.store import die, opened, put, small


class Slow(SimClock):
    """Two seconds pass whenever somebody asks."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 2.0
        return self.now


def test_a_line_every_five_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told: list[tuple[str, int, int]] = []
    speak = SpokenProgress(Slow(), lambda *what: told.append(what))
    for done in range(1, 9):
        speak("reading", done << 30, 8 << 30)
    speak("", 0, 0)
    assert [record.getMessage() for record in caplog.records] == [
        "reading: 50 % of 8.0 GiB, about 6 s to go",
        "reading: 87 % of 8.0 GiB, about 2 s to go",
    ]
    assert told[0] == ("reading", 1 << 30, 8 << 30)
    assert told[-1] == ("", 0, 0)


@pytest.mark.parametrize("lost", ["nothing", "queues", "a queue"])
def test_a_start_tells_how_far_it_is(lost: str) -> None:
    async def main() -> None:
        simulation = Simulation(1)
        node = simulation.node("a")
        store = await opened(node.world, small())
        for number in range(200):
            store.append([put(store.queues.get_or_create("T", number % 3), b"x" * 100)])
        await store.force()
        world = simulation.kill(node)
        await die(store)
        for queue in {"nothing": (), "queues": (0, 1, 2), "a queue": (1,)}[lost]:
            for name in world.files.list(f"/store/consumequeue/T/{queue}"):
                world.files.unlink(f"/store/consumequeue/T/{queue}/{name}")
        told: list[tuple[str, int, int]] = []
        store = Store(replace(world), small())
        store.show_progress = lambda *what: told.append(what)
        await store.load()
        await store.stop()
        assert told[-1] == ("", 0, 0)
        assert {what for what, _, _ in told} == {
            "checking the commit log", "", *({"filling consume queues"} if lost == "a queue" else ()),
        }  # fmt: skip
        assert all(0 < done <= total for what, done, total in told if what)

    run(main())
