"""Listeners that fail in odd ways: the message comes again, and the queue goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rmq.aio import MessageExt
from tests.support.scenes.client import scene
from tests.support.virtual import eventually, in_virtual_time

pytestmark = pytest.mark.usefixtures("listeners")


class Ambiguous:
    """Compares like an array of numpy: with a result that has no truth value."""

    def __eq__(self, other: object) -> object:  # type: ignore[override]
        return self

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    def __repr__(self) -> str:
        raise ValueError("no text of it either")


async def await_what_was_cancelled() -> None:
    other = asyncio.ensure_future(asyncio.sleep(100))
    asyncio.get_running_loop().call_soon(other.cancel)
    await other


async def leave() -> None:
    raise SystemExit(3)


async def interrupt() -> None:
    raise KeyboardInterrupt


async def whatever() -> None:
    raise BaseException("of the application's own")


async def its_task_is_cancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.sleep(100)


async def its_task_is_cancelled_twice() -> None:
    task = asyncio.current_task()
    assert task is not None
    try:
        task.cancel()
        await asyncio.sleep(100)
    finally:
        task.cancel()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
@pytest.mark.parametrize("fail", [
    await_what_was_cancelled, leave, interrupt, whatever, its_task_is_cancelled, its_task_is_cancelled_twice
])  # fmt: skip
def test_what_failed_comes_again(fail: Callable[[], Awaitable[None]], orderly: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene(messageDelayLevel=" ".join(["1s"] * 18)) as s:
            tries: dict[str, int] = {}
            done: set[str] = set()
            consumer = s.consumer(orderly=orderly, suspend_current_queue_time=0.1)

            @consumer.on("T")
            async def handle(message: MessageExt) -> None:
                name = message.keys or ""
                tries[name] = tries.get(name, 0) + 1
                if tries[name] == 1:
                    await fail()
                done.add(name)

            async with consumer:
                await s.send(8)
                await eventually(lambda: len(done) == 8)
                await asyncio.sleep(6)
            assert set(tries.values()) == {2}
            assert {name: behind for name, behind in (await s.diff()).items() if behind} == {}

    run()


async def return_an_array() -> object:
    return Ambiguous()


async def cancel_and_return() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
@pytest.mark.parametrize(
    ("end", "listeners"),
    [(return_an_array, "coroutine"), (return_an_array, "plain"), (cancel_and_return, "coroutine")],
    indirect=["listeners"],
)
def test_what_returned_is_done(end: Callable[[], Awaitable[object]], orderly: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            calls: list[str | None] = []
            consumer = s.consumer(orderly=orderly)

            @consumer.on("T")
            async def handle(message: MessageExt) -> Any:  # as where nobody checks types
                calls.append(message.keys)
                return await end()

            async with consumer:
                await s.send(8)
                await eventually(lambda: len(calls) == 8)
                await asyncio.sleep(30)
            assert len(calls) == 8
            assert {name: behind for name, behind in (await s.diff()).items() if behind} == {}

    run()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_listener_that_the_stop_of_its_consumer_cancels_has_not_failed(orderly: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            await s.topic("One", 1)
            begun: list[int] = []
            consumer = s.consumer(orderly=orderly, await_termination_when_shutdown=1)

            @consumer.on("One")
            async def handle(message: MessageExt) -> None:
                begun.append(message.reconsume_times)
                await asyncio.sleep(1000)

            async with consumer:
                await s.send(1, "One")
                await eventually(lambda: begun)
            assert (await s.diff())[("One", 0)] == 1
            after = s.consumer(orderly=orderly)

            @after.on("One")
            async def take(message: MessageExt) -> None:
                begun.append(message.reconsume_times)

            async with after:
                await eventually(lambda: begun == [0, 0])

    run()


@pytest.mark.parametrize("listeners", ["coroutine"], indirect=True)  # plain ones are no tasks
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_loop_that_cancels_all_its_tasks_at_its_end_ends(orderly: bool) -> None:
    """As asyncio.run does with what its main coroutine has left behind."""

    @in_virtual_time
    async def run() -> None:
        async with scene() as s:
            calls = 0
            consumer = s.consumer(orderly=orderly, consume_thread_max=1, consume_thread_min=1)

            @consumer.on("T")
            async def handle(message: MessageExt) -> None:
                nonlocal calls
                calls += 1
                await asyncio.sleep(1000)

            async with consumer:
                await s.send(8)
                await eventually(lambda: calls)
                before = calls
                listening = list(consumer._delivery.service.listener_tasks)  # type: ignore[union-attr]
                for task in listening:
                    task.cancel()
                done, _ = await asyncio.wait(listening, timeout=1)
                assert done == set(listening)
                await eventually(lambda: calls > before, within=5)
                await consumer.shutdown(timeout=0)

    run()


@in_virtual_time
async def test_the_log_tells_every_try_and_the_way_to_the_dead_letters(caplog: pytest.LogCaptureFixture) -> None:
    async with scene(messageDelayLevel=" ".join(["1s"] * 18)) as s:
        consumer = s.consumer(max_reconsume_times=2)
        buried = s.consumer("undertakers")
        dead: list[str | None] = []

        @consumer.on("T")
        async def handle(message: MessageExt) -> None:
            raise ValueError("no")

        @buried.on("%DLQ%g")
        async def bury(message: MessageExt) -> None:
            dead.append(message.keys)

        async with consumer, buried:
            await s.send(1)
            await eventually(lambda: dead == ["k0"])
        lines = [record.getMessage() for record in caplog.records]
        assert [line.rpartition(", ")[2] for line in lines if "listener raised" in line] == [
            "at try 1", "at try 2", "at try 3"
        ]  # fmt: skip
        assert [line.rpartition(", ")[2] for line in lines if "goes to the dead letters" in line] == ["%DLQ%g"]
