"""The end of what consists of parts: each part ends by itself, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from rmq.runtime.aside import logger

__all__ = ["Parts", "Stop", "end_each"]

log = logger(__name__)

#: Ends one part; a plain or a coroutine function. False says that it did not end as it should, and has told why.
Stop = Callable[[], Awaitable[object] | object]


async def end_each(whole: str, parts: dict[str, Stop]) -> bool:
    """End the parts one after the other. One that fails is logged once, and the next one ends all the same.

    :param whole: what ends, for the log.
    :param parts: name of the part -> what ends it, in order.
    :returns: whether all of them ended as they should.
    :raises CancelledError: whoever waits here was cancelled; the part that was ending then may not have ended, and all
        later ones have.
    """
    clean, cancelled = True, None
    for name, stop in parts.items():
        try:
            result = stop()
            if inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:
            clean = False
            log.exception("%s: %s did not end cleanly; the rest ends all the same", whole, name)
        else:
            clean = clean and result is not False
    if cancelled is not None:
        raise cancelled
    return clean


class Parts:
    """The parts of a whole that have begun: a stack, whose newest part ends first.

    A part is pushed just before it begins, so that one that began half is ended, too: what ends a part can end one that
    has not begun. A start that fails unwinds what it has pushed, and that is all a stop does.

    :param whole: what consists of them, for the log.
    """

    def __init__(self, whole: str) -> None:
        self._whole = whole
        self._begun: list[tuple[str, Stop]] = []

    def push(self, name: str, stop: Stop) -> None:
        """A part begins.

        :param name: for the log.
        :param stop: ends it.
        """
        self._begun.append((name, stop))

    async def unwind(self) -> list[str]:
        """End every part, the newest first; the names of those that did not end as they should.

        :raises CancelledError: see :func:`end_each`.
        """
        failed, cancelled = [], None
        while self._begun:
            name, stop = self._begun.pop()
            try:
                if not await end_each(self._whole, {name: stop}):
                    failed.append(name)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return failed

    def __len__(self) -> int:
        return len(self._begun)
