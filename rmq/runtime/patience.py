"""Time limits of a loop that may itself be late: the process stood still (SIGSTOP, a busy machine), or the loop did.

What came in meanwhile lies in the sockets. It is read before anything expires: a timer that fires late is put off by a
tenth of a second, in which the loop reads.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

__all__ = ["LATE", "MOST_PUT_OFF", "READING", "Standstill", "timeout"]

#: A timer that fires this many seconds late tells of a loop that did not read for so long.
LATE = 0.1
#: Seconds that the loop then gets to read what has come, and how often in a row.
READING = 0.1
MOST_PUT_OFF = 10

#: Seconds between two looks whether the loop turns, and how late one is of a loop that does.
_LOOK = 0.1
_TURNS = 0.01


class Standstill:
    """How long the loop stood still while a block ran: time that was nobody's, and is not to be counted.

    :ivar seconds: as far as that is noticed; right behind the block.
    """

    __slots__ = ("_due", "_handle", "_loop", "seconds")

    _due: float
    _handle: asyncio.TimerHandle

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Standstill:
        self._loop = asyncio.get_running_loop()
        self._arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        self._note()

    def _arm(self) -> None:
        self._due = self._loop.time() + _LOOK
        self._handle = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._note()
        self._arm()

    def _note(self) -> None:
        late = self._loop.time() - self._due
        if late > _TURNS:
            self.seconds += late


class timeout:
    """``asyncio.timeout`` that a late loop does not cut short, and that holds in a task that is being cancelled.

    There, in the clean stop of whatever was told to end, asyncio's own ends the stop with a CancelledError before
    Python 3.11.3.

    :param seconds: from entering the block; what is in it gets a CancelledError then, and its caller TimeoutError.
        None = there is no limit.
    """

    __slots__ = ("_at", "_cancelling", "_fired", "_handle", "_put_off", "_seconds", "_task")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._put_off = 0
        self._fired = False
        self._handle: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        if self._seconds is not None:
            self._at = loop.time() + self._seconds
            self._handle = loop.call_at(self._at, self._fire, loop)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._fired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        if now - self._at > LATE and self._put_off < MOST_PUT_OFF:
            self._put_off += 1
            self._at = now + READING
            self._handle = loop.call_at(self._at, self._fire, loop)
        else:
            self._fired = True
            self._task.cancel()
