"""Threads that take turns with a loop in virtual time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rmq.runtime.lockstep import LockstepPool, on_loop
from tests.support.virtual import in_virtual_time


@in_virtual_time
async def test_functions_begin_in_order_and_time_passes_while_they_wait() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    pool = LockstepPool(2)
    told: list[tuple[str, float]] = []

    def work(name: str, seconds: float) -> str:
        told.append((f"{name} begins", loop.time() - began))
        on_loop(asyncio.sleep(seconds))
        return name

    for name, seconds in (("a", 3.0), ("b", 1.0), ("c", 1.0)):
        pool.submit(
            lambda name=name, seconds=seconds: work(name, seconds),  # type: ignore[misc]
            lambda result, error: told.append((f"{result} ended", loop.time() - began)),
        )
    assert told == [], "not before the loop's next turn"
    await asyncio.sleep(10)
    assert [(name, round(at, 6)) for name, at in told] == [
        ("a begins", 0), ("b begins", 0), ("b ended", 1), ("c begins", 1), ("c ended", 2), ("a ended", 3),
    ]  # fmt: skip


@in_virtual_time
async def test_errors_come_back_and_what_is_waited_for_may_fail() -> None:
    pool = LockstepPool(1)
    inside: list[bool] = []
    errors: list[object] = []

    async def fail() -> None:
        raise KeyboardInterrupt("on the loop")

    def leave() -> None:
        inside.append(pool.inside())
        with pytest.raises(KeyboardInterrupt, match="on the loop"):
            on_loop(fail())
        raise SystemExit(3)

    pool.submit(leave, lambda result, error: errors.append(error))
    await asyncio.sleep(0.1)
    assert [type(error) for error in errors] == [SystemExit]
    assert inside == [True]
    assert not pool.inside()
    with pytest.raises(RuntimeError, match="lockstep"):
        on_loop(fail())


@in_virtual_time
async def test_it_grows_and_what_was_submitted_before_the_end_is_done() -> None:
    pool = LockstepPool(1)
    done: list[int] = []
    for number in range(4):
        pool.submit(lambda: on_loop(asyncio.sleep(1)), lambda result, error, number=number: done.append(number))  # type: ignore[misc]
    await asyncio.sleep(0.5)
    pool.resize(3)
    assert pool.most == 3
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(print, lambda result, error: None)
    await asyncio.sleep(1.1)
    assert done == [0, 1, 2]
    await asyncio.sleep(1.1)
    assert done == [0, 1, 2, 3]


def test_the_end_of_the_loop_ends_the_threads() -> None:
    threads = set(threading.enumerate())

    @in_virtual_time
    async def run() -> None:
        pool = LockstepPool(4)
        for _ in range(3):
            pool.submit(lambda: on_loop(asyncio.sleep(1000)), lambda result, error: None)
        await asyncio.sleep(1)
        assert len(set(threading.enumerate()) - threads) == 3

    run()
    assert set(threading.enumerate()) <= threads
