"""What one task waits for, once, where very many tasks wait: one object.

A future of asyncio and the iterator that ``await`` makes of it are two, of more than twice the memory. Of a hundred
thousand that wait, the interpreter's collector goes through all, again and again: that is most of what waiting costs.
Tasks take any object that asyncio's documentation calls future-like (``asyncio.isfuture``).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar, cast

__all__ = ["Awaited"]

T = TypeVar("T")

_PENDING: Any = object()


class Awaited(ABC, Generic[T]):
    """A value that one coroutine awaits. On the loop only.

    A class of it says by :meth:`get_loop` what loop that is. Errors are no matter of its own: who awaits may be given
    one as the value. Cancelling the task cancels it.

    :ivar value: what it was told, or the error of its cancellation; another object until then.
    """

    __slots__ = ("_asyncio_future_blocking", "_context", "_wake", "value")

    def __init__(self) -> None:
        self._asyncio_future_blocking: bool = False
        self.value: T | asyncio.CancelledError = _PENDING
        self._wake: Callable[[Any], object] | None = None
        self._context: Context | None = None

    def done(self) -> bool:
        """It has a value, or was cancelled."""
        return self.value is not _PENDING

    def tell(self, value: T) -> None:
        """Give it its value; nothing where it is done already."""
        if self.value is _PENDING:
            self.value = value
            if self._wake is not None:
                self.get_loop().call_soon(self._wake, self, context=self._context)

    # -- what a task asks of it ---------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, Any, T]:
        return cast("Generator[Any, Any, T]", self)

    def __iter__(self) -> Awaited[T]:
        return self

    def __next__(self) -> Awaited[T]:
        if self.value is not _PENDING:
            raise StopIteration(self.result())
        self._asyncio_future_blocking = True
        return self

    @abstractmethod
    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Where whoever awaits it runs; asked while no loop does, too: one that has stopped cancels its tasks."""

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._wake, self._context = wake, context

    def cancel(self, msg: object = None) -> bool:
        if self.value is not _PENDING:
            return False
        self.tell(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))  # type: ignore[arg-type]
        return True

    def result(self) -> T:
        value = self.value
        if isinstance(value, asyncio.CancelledError):
            raise value
        return value
