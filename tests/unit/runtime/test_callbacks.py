"""Callbacks run on few threads; one that does not return keeps no other from being called."""

from __future__ import annotations

import asyncio

from rmq.runtime.callbacks import Callbacks
from rmq.runtime.lockstep import LockstepPool, on_loop
from tests.support.virtual import in_virtual_time


@in_virtual_time
async def test_each_that_takes_its_time_gets_another_thread_for_those_behind_it() -> None:
    made = Callbacks(LockstepPool)
    loop = asyncio.get_running_loop()
    began, called = loop.time(), dict[int, float]()
    for number in range(80):
        hangs = number % 2 == 0 and number < 20

        def call(number: int = number, hangs: bool = hangs) -> None:
            called[number] = loop.time() - began
            if hangs:
                on_loop(asyncio.sleep(100))

        made.submit(call, lambda *_: None)
    await asyncio.sleep(12)
    assert called.keys() == set(range(80))
    assert list(called) == sorted(called), "they begin in order"
    assert max(called.values()) < 11
    assert made._pool.most == 12
    await asyncio.sleep(200)
    assert made._pool.most == 2
    assert not made._begun
    assert made._looking is None


@in_virtual_time
async def test_those_that_return_share_two_threads() -> None:
    made = Callbacks(LockstepPool)
    side_by_side, most = 0, 0

    def call() -> None:
        nonlocal side_by_side, most
        side_by_side += 1
        most = max(most, side_by_side)
        on_loop(asyncio.sleep(0.1))
        side_by_side -= 1

    for _ in range(40):
        made.submit(call, lambda *_: None)
    await asyncio.sleep(10)
    assert most == 2


@in_virtual_time
async def test_whoever_ends_waits_for_them_unless_none_returns() -> None:
    made = Callbacks(LockstepPool)
    loop = asyncio.get_running_loop()

    def work(seconds: float) -> None:
        on_loop(asyncio.sleep(seconds))

    began = loop.time()
    numbers = [made.submit(lambda: work(0.5), lambda *_: None) for _ in range(40)]
    assert await made.until_returned(numbers) == 0
    assert 9 < loop.time() - began < 11
    began = loop.time()
    made.submit(lambda: work(60), lambda *_: None)
    assert await made.until_returned() == 1
    assert 4.9 < loop.time() - began < 5.2
    assert await made.until_returned(numbers) == 0


@in_virtual_time
async def test_those_that_wait_for_one_another_do_not() -> None:
    made = Callbacks(LockstepPool)
    loop = asyncio.get_running_loop()
    waited: list[float] = []

    def ends() -> None:
        assert made.here is not None
        began = loop.time()
        on_loop(made.until_returned(None, made.here))
        waited.append(loop.time() - began)

    for _ in range(2):
        made.submit(ends, lambda *_: None)
    assert await made.until_returned() == 0
    assert max(waited) < 0.1
    assert made.here is None
