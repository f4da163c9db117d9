"""Blocking calls that a signal handler interrupts, at every instruction: it raises, or makes calls of its own."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from rmq.protocol.errors import ClientError, RequestTimeout
from rmq.runtime import bridge as shared
from rmq.runtime import thread_bridge as module
from rmq.runtime.bridge import Waiter
from rmq.runtime.pool import Post
from rmq.runtime.thread_bridge import ThreadBridge
from tests.support.daemons import PATIENCE


@pytest.fixture(name="made")
def make_bridge() -> Iterator[ThreadBridge]:
    made = ThreadBridge()
    yield made
    made.exit()


async def echo(value: object) -> object:
    await asyncio.sleep(0)
    return value


def by_waiter(made: ThreadBridge, value: object) -> object:
    """The way of a producer's first attempt."""
    waiter: Waiter[object] = made.waiter()
    made.post(made.answer, waiter, value)
    return made.wait(waiter, PATIENCE)


def by_coroutine(made: ThreadBridge, value: object) -> object:
    return made.run(echo(value), PATIENCE)


WAYS = pytest.mark.parametrize("call", [by_waiter, by_coroutine])


class At:
    """Does something before the n-th instruction that this thread runs of the bridge, as a signal handler would."""

    def __init__(self, number: int, what: Callable[[], object]) -> None:
        self._left = number
        self._what = what
        self.done = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in (module.__file__, shared.__file__):
            return None
        frame.f_trace_opcodes = True
        return self._instruction

    def _instruction(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode" and not self.done:
            self._left -= 1
            if self._left < 0:
                self.done = True
                sys.settrace(None)
                self._what()
        return self._instruction

    def __enter__(self) -> At:
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


class _Interrupt(BaseException):
    """What a signal handler raises."""


def _raise() -> None:
    raise _Interrupt


@WAYS
def test_a_call_interrupted_at_any_instruction_leaves_nothing_to_the_next(
    made: ThreadBridge, call: Callable[[ThreadBridge, object], object]
) -> None:
    for number in itertools.count():
        with warnings.catch_warnings(), At(number, _raise) as interrupt:
            warnings.simplefilter("ignore")  # a coroutine that was made and not handed over yet
            try:
                assert call(made, "first") == "first"
            except _Interrupt:
                pass
        told = threading.Event()
        made.post(told.set)
        assert told.wait(PATIENCE), number  # the loop was noted to be awake, and nobody woke it
        assert call(made, number) == number
        with ThreadPoolExecutor(1) as other:
            assert other.submit(call, made, number).result(PATIENCE) == number
        if not interrupt.done:
            break
    assert number > 50  # the way has as many instructions, and each was one to stop at


@WAYS
def test_a_call_made_inside_another_at_any_instruction_gets_its_own_result(
    made: ThreadBridge, call: Callable[[ThreadBridge, object], object]
) -> None:
    for number in itertools.count():
        inner: list[object] = []
        with At(number, lambda: inner.append(call(made, "inner"))) as interrupt:  # noqa: B023 - called in this turn
            assert call(made, number) == number
        if not interrupt.done:
            break
        assert inner == ["inner"]
    assert number > 50


def test_a_loop_that_ended_lets_every_caller_go(made: ThreadBridge) -> None:
    waits = threading.Event()
    ended: list[BaseException] = []

    async def for_ever() -> None:
        waits.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            made.run(for_ever())
        except ClientError as error:
            ended.append(error)

    caller = threading.Thread(target=wait, daemon=True)
    caller.start()
    assert waits.wait(PATIENCE)
    made._loop.call_soon_threadsafe(made._loop.stop)
    caller.join(PATIENCE)
    assert len(ended) == 1
    for task in asyncio.all_tasks(made._loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined] # nothing is said of it in another test
    with pytest.raises(ClientError, match="its clients are stopped"):
        by_waiter(made, 1)
    with pytest.raises(ClientError, match="its clients are stopped"):
        by_coroutine(made, 1)


def test_what_ends_a_program_ends_no_loop(made: ThreadBridge) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    for _ in range(2):
        with pytest.raises(SystemExit):
            made.run(leave(), PATIENCE)
    assert by_coroutine(made, 1) == 1


@pytest.mark.parametrize("seconds", [0.01, None])
def test_no_call_waits_for_a_loop_that_stands_still(
    made: ThreadBridge, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GRACE", 0.01)
    monkeypatch.setattr(module, "_STANDSTILL", 0.01)
    go_on = threading.Event()
    made.post(go_on.wait, PATIENCE)
    try:
        with pytest.raises(RequestTimeout, match=r"the SDK's loop stands still in wait \(.*threading.py"):
            made.run(echo(1), seconds)
    finally:
        go_on.set()
    assert made.run(echo(2)) == 2


def test_an_answer_within_the_last_moment_of_a_loop_that_stood_still_is_not_waited_for_again(
    made: ThreadBridge,
) -> None:
    class Lock:
        """Free at the third look, which is the one that is made when the loop has not turned for long."""

        def __init__(self) -> None:
            self.looks = iter([False, False, True])

        def acquire(self, timeout: float) -> bool:
            return next(self.looks)  # a look after that would be for ever

    go_on = threading.Event()
    made.post(go_on.wait, PATIENCE)
    waiter: Waiter[object] = made.waiter()
    waiter.lock = Lock()  # type: ignore[assignment]
    try:
        made.wait(waiter)
    finally:
        go_on.set()


def test_a_call_that_takes_long_on_a_loop_that_turns_is_waited_for(
    made: ThreadBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STANDSTILL", 0.001)
    looks = 0
    hand_over = Post.__call__

    def counted(post: Post, what: Callable[..., object], *args: object) -> None:
        nonlocal looks
        looks += 1
        hand_over(post, what, *args)

    monkeypatch.setattr(Post, "__call__", counted)

    async def long() -> str:
        while looks < 5:  # noqa: ASYNC110 - a thread makes it true
            await asyncio.sleep(0)
        return "done"

    assert made.run(long()) == "done"
