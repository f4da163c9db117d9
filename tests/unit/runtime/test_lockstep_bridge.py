"""Blocking calls in virtual time: the loop runs on the thread that waits, as long as it waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from rmq.protocol.errors import ClientError, RequestTimeout
from rmq.runtime.lockstep_bridge import LockstepBridge
from rmq.testing.simloop import SimDeadlock, SimLoop

HOUR = 3600.0


@pytest.fixture(name="loop")
def make_loop() -> SimLoop:
    return SimLoop(start=0.0)


@pytest.fixture(name="made")
def make_bridge(loop: SimLoop) -> Iterator[LockstepBridge]:
    made = LockstepBridge(loop)
    yield made
    made.close()


def test_time_passes_as_far_as_a_call_takes_and_stands_between_two(made: LockstepBridge, loop: SimLoop) -> None:
    async def there() -> int:
        await asyncio.sleep(HOUR)
        return threading.get_ident()

    assert made.run(there()) == threading.get_ident()
    assert loop.time() == HOUR
    made.advance(10 * HOUR)
    assert loop.time() == 11 * HOUR


def test_a_call_that_is_not_answered_ends_by_the_loops_clock(made: LockstepBridge, loop: SimLoop) -> None:
    with pytest.raises(RequestTimeout, match=r"no answer in 31 s of virtual time"):
        made.run(asyncio.sleep(HOUR), 30.0)
    assert loop.time() == 31.0
    made.run(asyncio.sleep(1), 30.0)
    made.advance(60.0)  # the limit of a call that was answered in time ends nothing


def test_what_nothing_will_bring_is_an_error_and_no_endless_call(made: LockstepBridge) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimDeadlock, match="every task waits"):
        made.run(never())
    made.advance(1.0)


def test_a_listener_waits_for_its_turn_while_others_have_theirs(made: LockstepBridge, loop: SimLoop) -> None:
    done: list[tuple[str, float]] = []

    def listener(name: str, seconds: float) -> None:
        made.run(asyncio.sleep(seconds), HOUR)
        done.append((name, loop.time()))

    async def both() -> None:
        ended = asyncio.Semaphore(0)
        for name, seconds in (("slow", 20.0), ("fast", 10.0)):
            made.callbacks().submit(lambda n=name, s=seconds: listener(n, s), lambda *_: ended.release())
        for _ in range(2):
            await ended.acquire()

    made.run(both())
    assert done == [("fast", 10.0), ("slow", 20.0)]


def test_threads_of_other_kinds_have_the_loop_run_for_them_too(made: LockstepBridge, loop: SimLoop) -> None:
    async def numbered(number: int) -> int:
        await asyncio.sleep(number)
        return number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number: made.run(numbered(number)), range(40))) == list(range(40))


def test_waiting_for_a_future_passes_time(made: LockstepBridge, loop: SimLoop) -> None:
    future: Future[str] = Future()
    made.post(loop.call_later, 5.0, future.set_result, "came")
    assert made.pass_time(future, 2.0) == 0.0
    assert (future.done(), loop.time()) == (False, 2.0)
    made.until_ended([future])
    assert (future.result(0), loop.time()) == ("came", 5.0)


def test_a_coroutine_cannot_wait_for_its_own_loop(made: LockstepBridge) -> None:
    async def nested() -> None:
        made.run(asyncio.sleep(0))

    with pytest.raises(ClientError, match=r"use rmq.aio in coroutines"):
        made.run(nested())


def test_the_end_stops_what_was_not_stopped_and_leaves_nothing(loop: SimLoop) -> None:
    made, ended = LockstepBridge(loop), []

    async def stop() -> None:
        await asyncio.sleep(5)
        ended.append(loop.time())

    async def endless() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("cancelled")

    made.stop_at_exit("producer", stop)
    made.post(made.spawn, endless(), ended.append)
    made.close()
    made.close()
    assert ended[:2] == [5.0, "cancelled"]
    assert loop.is_closed()
    with pytest.raises(ClientError, match="its virtual time has ended"):
        made.run(stop())
