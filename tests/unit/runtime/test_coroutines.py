"""An application's coroutines on a thread of their own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator

import pytest

from rmq.runtime import coroutines
from rmq.runtime.coroutines import CoroutineThread
from tests.support.daemons import PATIENCE

SET: contextvars.ContextVar[str] = contextvars.ContextVar("SET")


@pytest.fixture
def thread() -> Iterator[list[CoroutineThread]]:
    """The one that a test makes, ended behind it."""
    made: list[CoroutineThread] = []
    yield made
    for one in made:
        one.stop(PATIENCE)
        one._loop.close()


async def test_what_it_gives_and_raises_comes_back_with_the_callers_context(thread: list[CoroutineThread]) -> None:
    thread.append(made := CoroutineThread())
    SET.set("span")

    async def there() -> tuple[str, bool]:
        await asyncio.sleep(0)
        return SET.get(), made.inside()

    assert await made.run(there) == ("span", True)
    assert not made.inside()

    async def fail(error: BaseException) -> None:
        raise error

    for error in (ValueError("no"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            await made.run(lambda error=error: fail(error))  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="raised GeneratorExit"):  # which would end the task that waits
        await made.run(lambda: fail(GeneratorExit()))
    assert await made.run(there) == ("span", True), "it goes on"
    assert not made._calls


async def test_a_caller_that_is_cancelled_cancels_it_and_waits_for_its_end(thread: list[CoroutineThread]) -> None:
    thread.append(made := CoroutineThread())
    begun, ended = asyncio.Event(), []
    home = asyncio.get_running_loop()

    async def there() -> None:
        home.call_soon_threadsafe(begun.set)
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(0.01)
            ended.append(True)

    task = asyncio.ensure_future(made.run(there))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended
    # Before it has begun: it never does.
    task = asyncio.ensure_future(made.run(there))
    await asyncio.sleep(0)
    free = threading.Event()
    made._there(free.wait, PATIENCE)
    late = asyncio.ensure_future(made.run(there))
    await asyncio.sleep(0)
    for one in (task, late):
        one.cancel()
    await asyncio.sleep(0)
    free.set()
    assert [type(one) for one in await asyncio.gather(task, late, return_exceptions=True)] == [
        asyncio.CancelledError
    ] * 2


async def test_one_that_blocks_is_named_once_and_holds_nobody_but_coroutines_up(
    thread: list[CoroutineThread], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(coroutines, "_LOOK_SECONDS", 0.01)
    thread.append(made := CoroutineThread())
    free = threading.Event()

    async def blocks() -> None:
        free.wait(PATIENCE)

    async def until(what: Callable[[], bool]) -> None:
        for _ in range(int(PATIENCE / 0.005)):
            if what():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it has not come")

    task = asyncio.ensure_future(made.run(blocks))
    await until(lambda: made._told)
    await asyncio.sleep(0.05)
    assert not task.done()
    free.set()
    await task
    lines = [record.getMessage() for record in caplog.records if record.name == coroutines.__name__]
    assert len(lines) == 1
    assert "has blocked the thread of all its coroutines for 0.01 s, in wait (" in lines[0]
    await until(lambda: made._looking is None)
