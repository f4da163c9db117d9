"""Waiting for SIGTERM and SIGINT: one wish to stop, and losing patience."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from rmq.protocol.errors import ClientError
from rmq.runtime import signals
from rmq.runtime.signals import signal_wait, signal_wait_on_loop


def come(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (*signals.SIGNALS, signal.SIGHUP)]


@pytest.fixture(autouse=True)
def not_under_nohup() -> Iterator[None]:
    """Who started the tests with it has them ignore a hang-up."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_the_same_wish_from_two_sides_is_one() -> None:
    before = handlers()
    with signal_wait() as came:
        come(signal.SIGINT)
        come(signal.SIGTERM)
        assert came() == "SIGINT"
    assert handlers() == before


def test_a_signal_that_another_thread_is_interrupted_by_ends_the_wait() -> None:
    """As where the main thread stands still when it comes: stopped, frozen, or about to wait."""
    with signal_wait() as came:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        sent, late = threading.Timer(0.05, come, (signal.SIGTERM,)), threading.Timer(10, came.end, ("never",))
        try:
            # It would have inherited the mask.
            sent.run = partial(_unblocked, sent.run)  # type: ignore[method-assign]
            sent.start()
            late.start()
            assert came() == "SIGTERM"
        finally:
            late.cancel()
            sent.join()
            late.join()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _unblocked(run: Callable[[], None]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    run()


def test_a_terminal_that_hangs_up_asks_to_stop_and_never_insists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_ONE_WISH", 0.0)
    before = handlers()
    with signal_wait() as came:
        come(signal.SIGHUP)
        assert came() == "SIGHUP"
        come(signal.SIGHUP)
        come(signal.SIGTERM)
        come(signal.SIGHUP)
    assert handlers() == before


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signal_wait() as came:
            come(signal.SIGHUP)
            come(signal.SIGTERM)
            assert came() == "SIGTERM"
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_later_signal_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_ONE_WISH", 0.0)
    before = handlers()

    def impatient() -> None:
        with signal_wait() as came:
            come(signal.SIGTERM)
            assert came() == "SIGTERM"
            come(signal.SIGINT)

    with pytest.raises(SystemExit, match="SIGINT again: ended at once") as ended:
        impatient()
    assert isinstance(ended.value.code, str)  # Python prints it and ends with 1
    assert handlers() == before


async def test_the_same_on_a_loop() -> None:
    before = handlers()
    with signal_wait_on_loop() as came:
        come(signal.SIGINT)
        come(signal.SIGTERM)
        assert await came() == "SIGINT"
    assert handlers() == before


async def test_a_hang_up_on_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_ONE_WISH", 0.0)
    before = handlers()
    with signal_wait_on_loop() as came:
        come(signal.SIGHUP)
        assert await came() == "SIGHUP"
        come(signal.SIGHUP)
        await asyncio.sleep(0)
    assert handlers() == before


async def test_a_later_signal_cancels_and_becomes_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_ONE_WISH", 0.0)

    async def impatient() -> None:
        with signal_wait_on_loop() as came:
            come(signal.SIGINT)
            assert await came() == "SIGINT"
            come(signal.SIGTERM)
            await asyncio.Event().wait()

    with pytest.raises(SystemExit, match="SIGTERM again: ended at once"):
        await impatient()
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


async def test_cancelling_is_not_a_signal() -> None:
    async def cancelled() -> None:
        with signal_wait_on_loop():
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(cancelled())


def test_only_the_main_thread_gets_signals() -> None:
    found: list[str] = []

    def elsewhere() -> None:
        try:
            with signal_wait():
                pass
        except ClientError as error:
            found.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == ["run() waits for signals, which only the main thread gets: use start() and shutdown()"]
