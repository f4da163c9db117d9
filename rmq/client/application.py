"""Functions of an application that the SDK calls from its loop: on threads, so that they may take their time."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rmq.client.shown import told
from rmq.protocol.errors import ClientError, RequestTimeout
from rmq.runtime import patience
from rmq.runtime.pool import on_pool
from rmq.runtime.world import Pool, World

__all__ = ["ApplicationThreads", "call_on"]

T = TypeVar("T")

#: Functions at a time: those that hang do not keep each other from being called at once.
_MOST = 16


class ApplicationThreads:
    """The threads of one client for its application's hooks, selectors and strategies; made when they are needed.

    :param who: names the client, for the threads.
    """

    def __init__(self, world: World, who: str) -> None:
        self._world = world
        self._who = who
        self._pool: Pool | None = None

    async def call(self, function: Callable[[], T], seconds: float, what: str) -> T:
        """Call a function in the context of the running task, and wait for it; nobody else does.

        :param seconds: after which nobody waits for it any more; it goes on.
        :param what: it is, for the error.
        :raises RequestTimeout: it did not return in time. :raises Exception: what it raises.
        """
        if self._pool is None:
            self._pool = self._world.pool(_MOST, f"rmq-application-{self._who}")
            self._pool.keep(0)
        work = partial(contextvars.copy_context().run, function)
        try:
            async with patience.timeout(seconds):
                return await call_on(self._pool, work)
        except TimeoutError:
            raise RequestTimeout(f"{what} did not return in {seconds:g} s") from None

    def close(self) -> None:
        """Call nothing more."""
        if self._pool is not None:
            self._pool.close()


async def call_on(pool: Pool, function: Callable[[], T]) -> T:
    """Call a function of an application's on a thread of a pool, and wait for it.

    :raises Exception: what it raises; whatever else that is, a ClientError: it would end the loop.
    """
    result, error = await on_pool(pool, partial(_contained, function))
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _contained(function: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What it gives or raises: what would end a thread, or the loop, ends neither."""
    try:
        return function(), None
    except Exception as error:
        return None, error
    except BaseException as error:
        failed = ClientError(f"an application's function raised {told(error)}")
        failed.__cause__ = error
        return None, failed
