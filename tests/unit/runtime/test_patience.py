"""Time limits: they hold in a clean stop, in a task that is being cancelled, and never hide a cancellation."""

import asyncio
import re
from pathlib import Path

import pytest

import rmq
from rmq.runtime import patience
from rmq.testing.simloop import SimLoop, run


def test_a_limit_holds_in_a_task_that_is_being_cancelled() -> None:
    """With asyncio's own, before Python 3.11.3, the clean stop ended at its first limit."""
    done: list[str] = []

    async def serve() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    async with patience.timeout(5):
                        await asyncio.Event().wait()
                done.append("limit")
            async with patience.timeout(5):
                await asyncio.sleep(1)
            done.append("in time")

    async def main() -> None:
        task = asyncio.create_task(serve())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["limit", "limit", "in time"]

    run(main())


@pytest.mark.parametrize("seconds", [None, 100.0, 2.0])
def test_a_cancellation_from_outside_stays_one(seconds: float | None) -> None:
    async def main() -> None:
        async def work() -> None:
            async with patience.timeout(seconds):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_a_limit_and_a_cancellation_together_are_a_cancellation() -> None:
    async def main() -> None:
        async def work() -> None:
            async with patience.timeout(2):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        asyncio.get_running_loop().call_later(2, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_without_a_limit_it_waits() -> None:
    async def main() -> None:
        async with patience.timeout(None):
            await asyncio.sleep(1_000_000)

    run(main())


def test_nothing_else_here_uses_asyncio_s_own() -> None:
    own = re.compile(r"asyncio\.(timeout|timeout_at)\(")
    users = [path for path in Path(rmq.__path__[0]).rglob("*.py") if own.search(path.read_text())]
    assert users == []


def test_a_loop_that_stands_still_is_noticed() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        with patience.Standstill() as still:
            await asyncio.sleep(10)
        assert still.seconds == 0
        with patience.Standstill() as still:
            loop.call_later(1.03, loop.pass_time, 5.0)
            loop.call_later(8.04, loop.pass_time, 2.0)
            await asyncio.sleep(20)
        assert still.seconds == pytest.approx(7.0, abs=0.2)
        with patience.Standstill() as still:  # it stands still to the end of the block
            loop.pass_time(3.0)
        assert still.seconds == pytest.approx(3.0, abs=0.2)

    run(main())
