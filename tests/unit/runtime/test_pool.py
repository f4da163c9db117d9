"""The threads that listeners run on, and handing calls to a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rmq.runtime.pool import Post, ThreadPool


class CountingLoop:
    """Notes how often it is woken, and runs what it was given when told to."""

    def __init__(self) -> None:
        self.woken: list[Any] = []

    def call_soon_threadsafe(self, what: Any) -> None:
        self.woken.append(what)

    def turn(self) -> None:
        calls, self.woken = self.woken, []
        for call in calls:
            call()


def test_one_wake_serves_all_that_comes_before_it() -> None:
    loop = CountingLoop()
    post = Post(loop)  # type: ignore[arg-type]
    seen: list[int] = []
    for number in range(10):
        post(seen.append, number)
    assert len(loop.woken) == 1
    loop.turn()
    assert seen == list(range(10))
    post(seen.append, 10)
    assert len(loop.woken) == 1


def test_what_is_posted_while_draining_wakes_again_and_runs_next_turn() -> None:
    loop = CountingLoop()
    post = Post(loop)  # type: ignore[arg-type]
    seen: list[str] = []
    post(lambda: (seen.append("first"), post(seen.append, "second")))
    loop.turn()
    assert seen == ["first"]
    assert len(loop.woken) == 1
    loop.turn()
    assert seen == ["first", "second"]


def test_a_call_that_raises_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    loop = CountingLoop()
    post = Post(loop)  # type: ignore[arg-type]
    seen: list[int] = []
    post(lambda: 1 / 0)
    post(seen.append, 1)
    loop.turn()
    assert seen == [1]
    assert "ZeroDivisionError" in caplog.text


async def until(condition: Callable[[], bool]) -> None:
    """Turn the loop until threads have done their part."""
    async with asyncio.timeout(100):
        while not condition():  # noqa: ASYNC110 - threads, not tasks, make it true
            await asyncio.sleep(0)


async def test_the_pool_is_bounded_and_makes_threads_when_they_are_needed() -> None:
    pool = ThreadPool(3, "t")
    begun = threading.Semaphore(0)
    release = threading.Event()
    names: set[str] = set()
    done: list[object] = []

    def work() -> str:
        begun.release()
        release.wait(100)
        names.add(threading.current_thread().name)
        return "ok"

    try:
        pool.submit(lambda: "quick", lambda result, error: done.append(result))
        assert pool.threads == 1
        for _ in range(9):
            pool.submit(work, lambda result, error: done.append(result))
        assert pool.threads == 3
        release.set()
        await until(lambda: len(done) == 10)
        assert sorted(map(str, done)) == ["ok"] * 9 + ["quick"]
        assert len(names) <= 3
    finally:
        release.set()
        pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(work, lambda result, error: None)


async def test_errors_even_those_that_end_a_program_are_told_and_end_no_thread() -> None:
    pool = ThreadPool(1)
    done: list[object] = []

    def leave() -> None:
        raise SystemExit(3)

    inside: list[bool] = []
    try:
        pool.submit(leave, lambda result, error: done.append(error))
        pool.submit(lambda: inside.append(pool.inside()), lambda result, error: done.append(error))
        await until(lambda: len(done) == 2)
    finally:
        pool.close()
    assert isinstance(done[0], SystemExit)
    assert done[1] is None
    assert inside == [True]
    assert not pool.inside()


async def test_a_pool_shrinks_and_grows() -> None:
    pool = ThreadPool(4)
    hold = threading.Event()
    done: list[object] = []
    try:
        for _ in range(4):
            pool.submit(lambda: hold.wait(100), lambda result, error: done.append(result))
        assert pool.threads == 4
        pool.resize(2)
        assert pool.threads == 2
        hold.set()
        await until(lambda: len(done) == 4)
        hold.clear()
        for _ in range(4):
            pool.submit(lambda: hold.wait(100), lambda result, error: done.append(result))
        pool.resize(3)
        assert (pool.most, pool.threads) == (3, 3), "what waits begins at once"
        pool.resize(9)
        assert pool.threads == 4, "and no thread is made for nothing"
        hold.set()
        await until(lambda: len(done) == 8)
    finally:
        hold.set()
        pool.close()


async def test_threads_beyond_those_to_keep_end_when_nothing_is_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq.runtime.pool._IDLE", 0.0)
    pool = ThreadPool(4)
    pool.keep(2)
    done: list[object] = []
    together = threading.Barrier(4)
    try:
        for often in (4, 8):
            for _ in range(4):
                pool.submit(lambda: together.wait(100), lambda result, error: done.append(error))
            assert pool.threads == 4
            await until(lambda often=often: len(done) == often and pool.threads == 2)  # type: ignore[misc]
        assert done == [None] * 8
    finally:
        pool.close()
    assert pool.threads == 0
