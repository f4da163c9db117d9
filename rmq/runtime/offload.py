"""Blocking system calls on a few threads; never CPU work (design.md section 2)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ThreadOffload"]

T = TypeVar("T")


class ThreadOffload:
    """At most ``limit`` threads; more calls wait in turn.

    The threads are started at first use, and anew in a forked child.

    :param patient: a call that is cancelled while it runs, which no one can stop, is waited for. Otherwise whoever
        cancelled it would close, rename or write what it still works on.
    """

    __slots__ = ("_limit", "_patient", "_pid", "_pool")

    def __init__(self, limit: int = 8, *, patient: bool = True) -> None:
        self._limit = limit
        self._patient = patient
        self._pid = 0
        self._pool: ThreadPoolExecutor | None = None

    async def __call__(self, what: Callable[..., T], *args: object) -> T:
        pool = self._pool
        if pool is None or self._pid != os.getpid():
            pool = self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="rmq-offload")
            self._pid = os.getpid()
        job = pool.submit(what, *args)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if self._patient and not job.cancel():
                await _ended(job)
            raise

    def close(self) -> None:
        """Wait for what is running and end the threads; a later call starts them again."""
        pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.shutdown(wait=True)


async def _ended(job: Future[T]) -> None:
    """Wait for a call, however often that is cancelled."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def tell(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed in between
            loop.call_soon_threadsafe(done.set)

    job.add_done_callback(tell)
    while not job.done():
        with contextlib.suppress(asyncio.CancelledError):
            await done.wait()
