"""What one task waits for, in one object: a task takes it as it takes a future."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from rmq.runtime.awaited import Awaited
from tests.support.virtual import in_virtual_time


class Told(Awaited[object]):
    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop


async def got(awaited: Awaited[object]) -> object:
    return await awaited


@pytest.mark.parametrize("kind", [asyncio.Task, asyncio.tasks._PyTask])  # type: ignore[attr-defined]
def test_both_kinds_of_tasks_wait_for_it(kind: type[asyncio.Task[object]]) -> None:
    async def main() -> None:
        for value in (7, (1, 2), ValueError("a value like any other"), None):
            awaited: Awaited[object] = Told()
            task = kind(got(awaited), loop=asyncio.get_running_loop())  # type: ignore[call-arg]
            await asyncio.sleep(0)
            assert not task.done()
            assert not awaited.done()
            awaited.tell(value)
            awaited.tell("too late")
            assert await task is value
            assert await got(awaited) is value  # what has its value already waits for nothing

    asyncio.run(main())


@pytest.mark.parametrize("kind", [asyncio.Task, asyncio.tasks._PyTask])  # type: ignore[attr-defined]
def test_a_task_that_is_cancelled_waits_no_longer(kind: type[asyncio.Task[object]]) -> None:
    async def main() -> None:
        awaited: Awaited[object] = Told()
        task = kind(got(awaited), loop=asyncio.get_running_loop())  # type: ignore[call-arg]
        await asyncio.sleep(0)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await task
        assert awaited.done()
        awaited.tell("nobody hears it")
        assert isinstance(awaited.value, asyncio.CancelledError)

    asyncio.run(main())


def test_a_loop_that_ends_cancels_who_waits() -> None:
    """``asyncio.run`` cancels tasks while the loop stands."""
    waits: list[asyncio.Task[object]] = []

    async def main() -> None:
        waits.append(asyncio.ensure_future(got(Told())))
        await asyncio.sleep(0)

    asyncio.run(main())
    assert waits[0].cancelled()


@in_virtual_time
async def test_a_task_that_was_told_and_has_not_gone_on_can_be_cancelled() -> None:
    awaited: Awaited[object] = Told()
    task = asyncio.ensure_future(got(awaited))
    await asyncio.sleep(0)
    awaited.tell("told")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert awaited.value == "told"


@in_virtual_time
async def test_time_limits_hold_around_it() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(got(Told()), 3.0)


@in_virtual_time
async def test_who_waits_goes_on_in_its_own_context() -> None:
    request: ContextVar[str] = ContextVar("request")

    async def one(name: str, awaited: Awaited[object]) -> str:
        request.set(name)
        await awaited
        return request.get()

    waits: list[Awaited[object]] = [Told(), Told()]
    tasks = [asyncio.ensure_future(one(str(number), each)) for number, each in enumerate(waits)]
    await asyncio.sleep(0)
    request.set("of who tells")
    for each in reversed(waits):
        each.tell(None)
    assert await asyncio.gather(*tasks) == ["0", "1"]
