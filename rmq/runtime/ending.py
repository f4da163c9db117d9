"""The end of what consists of parts: each part ends by itself, whatever becomes of the others."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from rmq.runtime.aside import logger

__all__ = ["Stop", "end_each"]

log = logger(__name__)

#: Ends one part; a plain or a coroutine function.
Stop = Callable[[], Awaitable[object] | object]


async def end_each(whole: str, parts: dict[str, Stop]) -> bool:
    """End the parts one after the other. One that fails is logged once, and the next one ends all the same.

    :param whole: what ends, for the log.
    :param parts: name of the part -> what ends it, in order.
    :returns: whether all of them ended as they should.
    """
    clean = True
    for name, stop in parts.items():
        try:
            result = stop()
            if inspect.isawaitable(result):
                await result
        except Exception:
            clean = False
            log.exception("%s: %s did not end cleanly; the rest ends all the same", whole, name)
    return clean
