"""The loop thread behind blocking calls, and the threads listeners run on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rmq.protocol.errors import ClientError
from rmq.runtime.bridge import Bridge, ListenerPool, Post, bridge


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


def test_results_and_errors_come_back_to_the_thread_that_asked() -> None:
    made = bridge()

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        if number == 13:
            raise KeyError(number)
        return number * 2

    def ask(number: int) -> object:
        try:
            return made.run(double(number))
        except KeyError as error:
            return repr(error)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(200)))
    assert answers == [number * 2 if number != 13 else "KeyError(13)" for number in range(200)]


def test_the_loop_thread_may_not_wait_for_itself() -> None:
    made = bridge()

    async def nested() -> None:
        made.run(asyncio.sleep(0))

    with pytest.raises(ClientError, match=r"use rmq.aio in coroutines"):
        made.run(nested())


async def until(condition: Callable[[], bool]) -> None:
    """Turn the loop until threads have done their part."""
    async with asyncio.timeout(100):
        while not condition():  # noqa: ASYNC110 - threads, not tasks, make it true
            await asyncio.sleep(0)


async def test_the_pool_is_bounded_and_makes_threads_when_they_are_needed() -> None:
    pool = ListenerPool(3, "t")
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
    pool = ListenerPool(1)
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
    pool = ListenerPool(4)
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
        pool.resize(3)
        assert pool.most == 3
    finally:
        hold.set()
        pool.close()


def test_the_end_of_a_process_stops_all_at_once_and_receivers_first(caplog: pytest.LogCaptureFixture) -> None:
    """One that takes its time is not to cost the others theirs: their offsets would not be kept."""
    made = Bridge()
    ended: list[str] = []
    meeting: list[asyncio.Event] = []

    async def stop(name: str) -> None:
        if not meeting:
            meeting.append(asyncio.Event())
            await meeting[0].wait()  # for the second receiver: one after the other, it would never come
        meeting[0].set()
        ended.append(name)

    async def fail() -> None:
        raise ClientError("a broker is away")

    async def last() -> None:
        ended.append("producer")

    made.stop_at_exit("producer", last)
    made.stop_at_exit("one", partial(stop, "one"), first=True)
    made.stop_at_exit("two", partial(stop, "two"), first=True)
    made.stop_at_exit("broken", fail, first=True)
    made.exit(limit=30.0)
    assert ended[-1] == "producer"
    assert sorted(ended[:-1]) == ["one", "two"]
    assert "a client did not stop cleanly at exit: a broker is away" in caplog.text
    assert not made._thread.is_alive()
    with pytest.raises(ClientError, match="the process ends"):
        made.run(last())


AT_THE_END = """
import atexit, threading
atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))  # called after what comes later
"""


@pytest.mark.parametrize(
    "begin",
    ["from rmq.runtime.bridge import bridge; bridge()", "from rmq.runtime.background import LoopThread; LoopThread()"],
)
def test_no_loop_outlives_the_interpreter(begin: str) -> None:
    """One that does crashes the process at its next event, with its work done and its exit code wrong."""
    ended = subprocess.run([sys.executable, "-c", AT_THE_END + begin], capture_output=True, text=True, check=True)
    assert (ended.stdout.strip(), ended.stderr) == ("['MainThread']", "")


@pytest.mark.parametrize(
    ("module", "asked", "line"),
    [
        ("gevent.monkey", "is_module_patched", r"gevent has replaced threads.*patch_all\(thread=False, queue=False"),
        ("eventlet.patcher", "is_monkey_patched", r"eventlet has replaced threads.*monkey_patch\(thread=False\)"),
    ],
)
def test_threads_that_are_none_are_refused_with_one_line(
    module: str, asked: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop on a greenlet never gives the others a turn: the first call never returned."""
    patched = [True]
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{asked: lambda what: patched[0]}))  # type: ignore[arg-type]
    with pytest.raises(ClientError, match=line):
        Bridge()
    patched[0] = False
    Bridge().exit()
