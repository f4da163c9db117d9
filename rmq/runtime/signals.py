"""SIGTERM and SIGINT for programs that run until one of them comes, and then stop in their own time."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

from rmq.protocol.errors import ClientError

__all__ = ["signal_wait", "signal_wait_on_loop"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Seconds. Signals this close together are one wish: a terminal and what runs the program (make, a shell's timeout,
#: a process manager) both pass Ctrl-C on.
_ONE_WISH = 1.0


class _Wishes:
    """What the signals so far ask for."""

    def __init__(self) -> None:
        self._first: float | None = None

    def again(self) -> bool:
        """One more has come. :returns: whether somebody has lost patience."""
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
def signal_wait() -> Iterator[Callable[[], str]]:
    """Handle the signals in the block, which gets a function that waits for one and returns its name.

    Another one, later in the block, ends the process with exit code 1.

    :raises ClientError: not on the main thread.
    """
    _check_thread()
    #: A SimpleQueue may be put to by a handler that interrupts its get; an Event may not.
    came: SimpleQueue[str] = SimpleQueue()
    wishes = _Wishes()

    def note(number: int, frame: FrameType | None) -> None:
        if wishes.again():
            raise _impatient(number)
        came.put(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield came.get
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signal_wait_on_loop() -> Iterator[Callable[[], Awaitable[str]]]:
    """The same for a coroutine on the main thread's loop."""
    _check_thread()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    came: asyncio.Queue[str] = asyncio.Queue()
    wishes = _Wishes()
    impatient: list[SystemExit] = []

    def note(number: int) -> None:
        if wishes.again():
            impatient.append(_impatient(number))
            task.cancel()
        else:
            came.put_nowait(signal.Signals(number).name)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        loop.add_signal_handler(number, note, number)
    try:
        yield came.get
    except asyncio.CancelledError:
        if impatient:
            raise impatient[0] from None
        raise
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
