"""Blocking system calls on a few threads; never CPU work (design.md section 2)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ThreadOffload", "failure_first", "never_behind_others"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])
_MARK = "_rmq_never_behind_others"


def never_behind_others(function: F) -> F:
    """Mark a method whose calls have a thread of their own: reads that wait for a slow disk do not hold them up."""
    setattr(function, _MARK, True)
    return function


def failure_first(failure: BaseException | None) -> None:
    """Tell a caller that is being cancelled what its call failed with; the cancellation reaches it where it waits next.

    What failed is to be known whoever was cancelled: a disk tells of what it has lost once, and never again.

    :param failure: None when the call worked: then nothing happens.
    """
    task = asyncio.current_task()
    if failure is None or task is None:
        return
    # One cancellation, taken back and asked for anew: those who count them see what they saw.
    task.uncancel()
    task.cancel()
    raise failure


class ThreadOffload:
    """At most ``limit`` threads; more calls wait in turn. One thread more serves :func:`never_behind_others`.

    The threads are started at first use, and anew in a forked child.

    :param patient: a call that is cancelled while it runs, which no one can stop, is waited for. Otherwise whoever
        cancelled it would close, rename or write what it still works on. What it fails with is raised, and the
        cancellation after it (:func:`failure_first`).
    """

    __slots__ = ("_limit", "_patient", "_pid", "_pools")

    def __init__(self, limit: int = 8, *, patient: bool = True) -> None:
        self._limit = limit
        self._patient = patient
        self._pid = 0
        # The second is for calls that have a thread of their own.
        self._pools: tuple[ThreadPoolExecutor, ThreadPoolExecutor] | None = None

    async def __call__(self, what: Callable[..., T], *args: object) -> T:
        pools = self._pools
        if pools is None or self._pid != os.getpid():
            pools = self._pools = (
                ThreadPoolExecutor(self._limit, thread_name_prefix="rmq-offload"),
                ThreadPoolExecutor(1, thread_name_prefix="rmq-offload-own"),
            )
            self._pid = os.getpid()
        job = pools[hasattr(what, _MARK)].submit(what, *args)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if self._patient and not job.cancel():
                await _ended(job)
                failure_first(job.exception())
            raise

    def close(self) -> None:
        """Wait for what is running and end the threads; a later call starts them again."""
        pools, self._pools = self._pools, None
        if pools is not None and self._pid == os.getpid():
            for pool in pools:
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
