"""SIGTERM, SIGINT and SIGHUP for programs that run until one of them comes, and then stop in their own time.

A JVM stops in order when its terminal hangs up, and so do we. What ``nohup`` started ignores that, and goes on.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Generic, TypeVar

from rmq.protocol.errors import ClientError

__all__ = ["Wait", "insists", "signal_wait", "signal_wait_on_loop", "stop_signals"]

T = TypeVar("T")

#: Ctrl-Break, and the end of a console, come as SIGBREAK on Windows.
SIGNALS: tuple[signal.Signals, ...] = (
    signal.SIGTERM, signal.SIGINT, *([signal.Signals["SIGBREAK"]] if hasattr(signal, "SIGBREAK") else ()),
)  # fmt: skip
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
#: Seconds. Signals this close together are one wish: a terminal and what runs the program (make, a shell's timeout,
#: a process manager) both pass Ctrl-C on.
_ONE_WISH = 1.0
#: Seconds that the main thread waits before it looks whether a signal has come. That interrupts another thread where
#: this one stands still, or came right before the wait; and Windows interrupts nobody who waits.
_UNINTERRUPTED = 0.5


def stop_signals() -> tuple[signal.Signals, ...]:
    """What asks this process to stop."""
    if _HANGUP is None or signal.getsignal(_HANGUP) is signal.SIG_IGN:
        return SIGNALS
    return (*SIGNALS, _HANGUP)


def insists(number: int) -> bool:
    """Whether this signal, when it comes during a stop, may be somebody who has lost patience.

    A hang-up is none: a shell passes on what the kernel has told its jobs already, a service manager sends it after
    SIGTERM.
    """
    return number != _HANGUP


@dataclass(frozen=True, slots=True)
class Wait(Generic[T]):
    """Called, it waits for a signal and gives its name. ``end(why)`` ends the wait as one would, and gives ``why``."""

    wait: Callable[[], T]
    end: Callable[[str], None]

    def __call__(self) -> T:
        return self.wait()


class _Wishes:
    """What the signals so far ask for."""

    def __init__(self) -> None:
        self._first: float | None = None

    def again(self, number: int) -> bool:
        """One more has come. :returns: whether somebody has lost patience."""
        if not insists(number):
            return False
        now = time.monotonic()
        if self._first is None:
            self._first = now
        return now - self._first > _ONE_WISH


def _check_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise ClientError("run() waits for signals, which only the main thread gets: use start() and shutdown()")


def _impatient(number: int) -> SystemExit:
    return SystemExit(f"{signal.Signals(number).name} again: ended at once, listeners that still run get no answer")


@contextmanager
def signal_wait() -> Iterator[Wait[str]]:
    """Handle the signals in the block, which gets a function that waits for one and returns its name; any thread may
    end the wait.

    Another one, later in the block, ends the process with exit code 1.

    :raises ClientError: not on the main thread.
    """
    _check_thread()
    #: A SimpleQueue may be put to by a handler that interrupts its get; an Event may not.
    came: SimpleQueue[str] = SimpleQueue()
    wishes = _Wishes()

    def note(number: int, frame: FrameType | None) -> None:
        if wishes.again(number):
            raise _impatient(number)
        came.put(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in stop_signals()}
    try:
        yield Wait(partial(_get, came), came.put)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _get(came: SimpleQueue[str]) -> str:
    while True:
        with suppress(Empty):
            return came.get(timeout=_UNINTERRUPTED)


@contextmanager
def signal_wait_on_loop() -> Iterator[Wait[Awaitable[str]]]:
    """The same for a coroutine on the main thread's loop."""
    _check_thread()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    came: asyncio.Queue[str] = asyncio.Queue()
    wishes = _Wishes()
    impatient: list[SystemExit] = []

    def note(number: int) -> None:
        if wishes.again(number):
            impatient.append(_impatient(number))
            task.cancel()
        else:
            came.put_nowait(signal.Signals(number).name)

    before = {number: signal.getsignal(number) for number in stop_signals()}
    for number in before:
        _have_loop_note(loop, number, note)
    try:
        yield Wait(came.get, came.put_nowait)
    except asyncio.CancelledError:
        if impatient:
            raise impatient[0] from None
        raise
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _have_loop_note(loop: asyncio.AbstractEventLoop, number: signal.Signals, note: Callable[[int], None]) -> None:
    try:
        loop.add_signal_handler(number, note, number)
    except NotImplementedError:  # of asyncio's loops on Windows, which a signal wakes all the same
        signal.signal(number, lambda came, frame: loop.call_soon_threadsafe(note, came) and None)
