"""Blocking system calls on a few threads; never CPU work (design.md section 2)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ThreadOffload"]

T = TypeVar("T")


class ThreadOffload:
    """At most ``limit`` threads; more calls wait in turn.

    The threads are started at first use, and anew in a forked child.
    """

    __slots__ = ("_limit", "_pid", "_pool")

    def __init__(self, limit: int = 8) -> None:
        self._limit = limit
        self._pid = 0
        self._pool: ThreadPoolExecutor | None = None

    async def __call__(self, what: Callable[..., T], *args: object) -> T:
        pool = self._pool
        if pool is None or self._pid != os.getpid():
            pool = self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="rmq-offload")
            self._pid = os.getpid()
        return await asyncio.get_running_loop().run_in_executor(pool, what, *args)

    def close(self) -> None:
        """Wait for what is running and end the threads; a later call starts them again."""
        pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.shutdown(wait=True)
