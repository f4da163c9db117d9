"""Waits for what this member has put into the log: it is committed, or taken back, or its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError
from rmq.runtime import patience

__all__ = ["Settling"]


class Settling:
    """Of one member's changes.

    :param patience_ms: gives how long is waited, ms, as the settings say now.
    """

    def __init__(self, patience_ms: Callable[[], int]) -> None:
        self._patience_ms = patience_ms
        #: Up to where the log is committed.
        self._committed = 0
        #: Behind the last change that was written here; and whether it was taken back.
        self._written = 0
        self._lost = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def wrote(self, end: int) -> None:
        """A change is in the log, which ends at ``end``."""
        self._written, self._lost = end, False

    async def settled(self) -> None:
        """Wait until what was written so far is committed.

        :raises ResponseError: it was taken back, or its time is over.
        """
        if self._lost:
            raise _taken_back()
        if self._written <= self._committed:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._written, waiter))
        seconds = self._patience_ms() / 1000
        try:
            async with patience.timeout(seconds):
                await waiter
        except TimeoutError:
            raise ResponseError(
                ResponseCode.FLUSH_SLAVE_TIMEOUT,
                f"the group has not committed the change within {seconds:g} s: whether it will is not known",
            ) from None
        finally:
            self._waiting = [one for one in self._waiting if one[1] is not waiter]

    def committed(self, end: int) -> None:
        """The group has everything before ``end``."""
        self._committed = max(self._committed, end)
        for until, waiter in self._waiting:
            if until <= self._committed and not waiter.done():
                waiter.set_result(None)

    def cut(self, to: int) -> None:
        """The log is cut back to ``to``."""
        if self._written > max(to, self._committed):
            self._lost = True
            for until, waiter in self._waiting:
                if until > to and not waiter.done():
                    waiter.set_exception(_taken_back())


def _taken_back() -> ResponseError:
    return ResponseError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "this broker has lost the lead of its group before that had committed the change: it is not made",
    )
