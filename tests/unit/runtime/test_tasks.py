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


def test_what_fails_every_second_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def fail() -> None:
            raise ValueError("always")

        async with TaskOwner("service") as owner:
            owner.every(1, fail, "plain")
            await asyncio.sleep(150.5)

    simloop.run(main())
    assert len(caplog.records) == 3


def test_a_service_that_ends_is_told_of_and_its_end_with_the_owner_is_not() -> None:
    told: list[tuple[str, BaseException | None]] = []

    async def main() -> None:
        async def returns() -> None:
            await asyncio.sleep(1)

        async def raises() -> None:
            await asyncio.sleep(2)
            raise ValueError("reason")

        def no_pause() -> float:
            raise KeyError("pause")

        async with TaskOwner("service") as owner:
            owner.on_ended = lambda task, error: told.append((task.get_name(), error))
            owner.spawn(returns(), "work")
            owner.serve(returns(), "returns")
            owner.serve(raises(), "raises")
            owner.spawn(raises(), "work that raises")
            owner.every(no_pause, lambda: None, "without a pause")
            owner.serve(asyncio.sleep(1000), "cancelled").cancel()
            owner.serve(asyncio.sleep(1000), "stays")
            await asyncio.sleep(10)
            assert [task.get_name() for task in owner.services()] == ["service.stays"]

    simloop.run(main())
    assert {name: type(error) for name, error in told} == {
        "service.returns": type(None),
        "service.raises": ValueError,
        "service.work that raises": ValueError,
        "service.without a pause": KeyError,
        "service.cancelled": type(None),
    }


def test_drain_waits_as_long_as_it_may() -> None:
    async def main() -> None:
        async with TaskOwner("service") as owner:
            owner.spawn(asyncio.sleep(1), "short")
            assert await owner.drain(5)
            owner.spawn(asyncio.sleep(100), "long")
            assert not await owner.drain(5)

    simloop.run(main())
