"""Tasks end with their owner and never die in silence."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rmq.runtime.tasks import TaskOwner
from rmq.testing import simloop


def test_closing_ends_every_task() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def work(name: str) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(1)  # tidying takes time and is awaited
                ended.append(name)

        async with TaskOwner("service") as owner:
            owner.spawn(work("a"), "a")
            task = owner.spawn(work("b"), "b")
            assert task.get_name() == "service.b"
            await asyncio.sleep(0)
            assert len(owner) == 2
        assert sorted(ended) == ["a", "b"]
        assert len(owner) == 0
        with pytest.raises(RuntimeError, match="service is closed: c is not started"):
            owner.spawn(work("c"), "c")

    simloop.run(main())


def test_a_task_that_dies_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def die() -> None:
            raise ValueError("reason")

        async with TaskOwner("service") as owner:
            owner.spawn(die(), "mortal")
            await asyncio.sleep(1)

    simloop.run(main())
    (record,) = caplog.records
    assert record.getMessage() == "task service.mortal died"
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


def test_every_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        plain: list[float] = []
        slow: list[float] = []
        pause = 10.0

        def tick() -> None:
            plain.append(loop.time() - began)
            if len(plain) == 2:
                raise ValueError("once")

        async def tick_slowly() -> None:
            nonlocal pause
            slow.append(loop.time() - began)
            pause = 20.0
            await asyncio.sleep(5)

        async with TaskOwner("service") as owner:
            owner.every(10, tick, "plain")
            owner.every(lambda: pause, tick_slowly, "slow", first=1)
            await asyncio.sleep(59)
        assert plain == pytest.approx([10, 20, 30, 40, 50])
        assert slow == pytest.approx([1, 26, 51])

    simloop.run(main())
    assert [record.getMessage() for record in caplog.records] == ["service.plain failed; it runs again in its turn"]


def test_drain_waits_as_long_as_it_may() -> None:
    async def main() -> None:
        async with TaskOwner("service") as owner:
            owner.spawn(asyncio.sleep(1), "short")
            assert await owner.drain(5)
            owner.spawn(asyncio.sleep(100), "long")
            assert not await owner.drain(5)

    simloop.run(main())
