"""Listeners that fail in odd ways: the message comes again, and the queue goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rmq.aio import MessageExt
from tests.support.client_scene import scene
from tests.support.virtual import eventually, in_virtual_time


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


async def return_an_array() -> object:
    return Ambiguous()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
@pytest.mark.parametrize("fail", [await_what_was_cancelled, leave, return_an_array])
def test_what_failed_comes_again(fail: Callable[[], object], orderly: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with scene(messageDelayLevel=" ".join(["1s"] * 18)) as s:
            tries: dict[str, int] = {}
            done: set[str] = set()
            consumer = s.consumer(orderly=orderly, suspend_current_queue_time=0.1)

            @consumer.on("T")
            async def handle(message: MessageExt) -> object:
                name = message.keys or ""
                tries[name] = tries.get(name, 0) + 1
                if tries[name] == 1:
                    return await fail()  # type: ignore[misc]
                done.add(name)
                return None

            async with consumer:
                await s.send(8)
                await eventually(lambda: len(done) == 8)
                await asyncio.sleep(6)
            assert set(tries.values()) == {2}
            assert {name: behind for name, behind in (await s.diff()).items() if behind} == {}

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
