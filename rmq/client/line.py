"""Sends that leave in the order in which they were called: those to one queue, or of one arg of selectors.

What holds one of them up (a hook that takes its time, a route that is asked for, a connection that has to be opened)
holds up those behind it in its line, and nobody else; they do all of that meanwhile, and only their leaving waits.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from rmq.client.message import MessageQueue
from rmq.protocol.errors import RequestTimeout
from rmq.runtime import patience

__all__ = ["Line", "Place"]

#: Args that are compared. Others may call functions of the application's for that: all of them are one line.
_COMPARED = (str, int, bytes, bool, type(None))


class Place:
    """Of one send, which leaves when its turn comes; as a block it is given up at the end, if not before."""

    __slots__ = ("_after", "_before", "_key", "_lasts", "_turn")

    def __init__(self, lasts: dict[object, Place], key: object) -> None:
        self._lasts = lasts
        self._key = key
        #: Done when its turn has come; there while somebody waits for it.
        self._turn: asyncio.Future[None] | None = None
        self._after: Place | None = None
        self._before = before = lasts.get(key)
        if before is not None:
            before._after = self
        lasts[key] = self

    @property
    def first(self) -> bool:
        """Its turn has come."""
        return self._before is None

    async def come(self, seconds: float) -> None:
        """Wait for its turn. :raises RequestTimeout: it did not come in time."""
        if self._before is None:
            return
        self._turn = asyncio.get_running_loop().create_future()
        try:
            async with patience.timeout(seconds):
                await self._turn
        except TimeoutError:
            raise RequestTimeout(
                f"waited {seconds:.3g} s for a send of the same queue or arg called before it, and was not sent"
            ) from None

    def leave(self) -> None:
        """It has left, or never will. Again it does nothing."""
        before, after = self._before, self._after
        if after is not None:
            after._before = before
            if before is None and (turn := after._turn) is not None and not turn.done():
                turn.set_result(None)
        elif self._lasts.get(self._key) is self:
            if before is None:
                del self._lasts[self._key]
            else:
                self._lasts[self._key] = before
        if before is not None:
            before._after = after
        self._before = self._after = None

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


class Line:
    """The lines of one producer. On its loop only."""

    def __init__(self) -> None:
        #: The last place of each line in which anybody stands.
        self._lasts: dict[object, Place] = {}

    def place(self, queue: MessageQueue | None, arg: object) -> Place:
        """Behind every send that was called before.

        :param queue: where it goes. None: a selector chooses, by ``arg``.
        """
        key: object = None
        if queue is None:
            if type(arg) in _COMPARED:
                key = (type(arg), arg)
        elif type(queue) is MessageQueue and type(queue.queue_id) is int and type(queue.broker_name) is str:
            key = (queue.broker_name, queue.queue_id)
        return Place(self._lasts, key)
