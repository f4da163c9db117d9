"""An event loop on a thread of its own, for callers that block."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from rmq.runtime.aside import finish_records, records_aside
from rmq.runtime.loop import loop_factory

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads: for a cluster beside blocking code, not for hot paths.

    :param name: of the thread.
    """

    def __init__(self, name: str = "rmq-loop") -> None:
        self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def _serve(self) -> None:
        with records_aside():
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result.

        :param timeout: seconds; None = for ever.
        :raises TimeoutError: it took longer; it is cancelled then.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel what still runs, end the loop and the thread."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_finish(), self._loop).result(10)
        self._end(10.0)
        self._loop.close()
        atexit.unregister(self._end)

    def _end(self, seconds: float = 1.0) -> None:
        """End loop and thread: one that was not stopped must not outlive the interpreter, which would crash it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(seconds)
            finish_records(seconds)


async def _finish() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
