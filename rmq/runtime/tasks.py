"""Tasks have owners: nothing runs that nobody ends, and nothing dies in silence."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from rmq.runtime.aside import logger

__all__ = ["TaskOwner"]

log = logger(__name__)

#: Seconds between two tracebacks of one kind from what is called again and again.
_TOLD_SECONDS = 60.0


class TaskOwner:
    """The tasks of one service: they end when it does.

    A task that raises is logged once, with its traceback; the others go on.

    :param name: begins the names of the tasks.
    """

    __slots__ = ("_closed", "_name", "_services", "_tasks", "on_ended")

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._services: set[asyncio.Task[Any]] = set()
        self._closed = False
        #: Called, in place of the log, with a task that ended before its time and what it raised: a service that ended
        #: at all (None when it returned, or somebody cancelled it), or any other task that raised.
        self.on_ended: Callable[[asyncio.Task[Any], BaseException | None], None] | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def name(self) -> str:
        """What the names of its tasks begin with."""
        return self._name

    @property
    def closed(self) -> bool:
        return self._closed

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a task of this owner.

        :raises RuntimeError: the owner is closed.
        """
        if self._closed:
            coro.close()
            raise RuntimeError(f"{self._name} is closed: {name} is not started")
        task = asyncio.get_running_loop().create_task(coro, name=f"{self._name}.{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def serve(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a service: a coroutine that goes on until the owner closes.

        :raises RuntimeError: the owner is closed.
        """
        task = self.spawn(coro, name)
        self._services.add(task)
        return task

    def services(self) -> list[asyncio.Task[Any]]:
        """The services that run."""
        return list(self._services)

    def every(
        self,
        seconds: float | Callable[[], float],
        what: Callable[[], object | Awaitable[object]],
        name: str,
        first: float | None = None,
    ) -> asyncio.Task[Any]:
        """Call ``what`` again and again; an error in one call is logged and the next call comes all the same.

        :param seconds: the pause between the end of one call and the next, or a function that says it each time
            (a setting that may change while running).
        :param what: a plain or a coroutine function.
        :param first: the pause before the first call; ``seconds`` when not given.
        """
        return self.serve(self._repeat(seconds, what, name, first), name)

    async def _repeat(
        self,
        seconds: float | Callable[[], float],
        what: Callable[[], object | Awaitable[object]],
        name: str,
        first: float | None,
    ) -> None:
        pause = first if first is not None else seconds() if callable(seconds) else seconds
        clock = asyncio.get_running_loop().time
        #: Kind of failure -> when it was told.
        told: dict[type[Exception], float] = {}
        while True:
            await asyncio.sleep(pause)
            try:
                result = what()
                if result is not None and inspect.isawaitable(result):
                    await result
            except Exception as error:
                # What fails every second fills no log.
                if clock() - told.get(type(error), -math.inf) >= _TOLD_SECONDS:
                    told[type(error)] = clock()
                    log.exception("%s.%s failed; it runs again in its turn", self._name, name)
            pause = seconds() if callable(seconds) else seconds

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        early = not self._closed and (error is not None or task in self._services)
        self._services.discard(task)
        if early and self.on_ended is not None:
            self.on_ended(task, error)
        elif error is not None:
            log.error("task %s died", task.get_name(), exc_info=error)

    async def drain(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the tasks to end by themselves; whether they did."""
        tasks = self._tasks - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        return not self._tasks - {asyncio.current_task()}

    async def close(self) -> None:
        """Cancel every task and wait until they have ended."""
        self._closed = True
        current = asyncio.current_task()
        while tasks := [task for task in self._tasks if task is not current]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            # Done callbacks run a turn later.
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
