"""Coroutine functions that blocking clients are given: they run on a thread of their own, which they may block
(:mod:`rmq.runtime.coroutines`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from rmq.client.offset_storage import OffsetStorage
from rmq.runtime.bridge import Bridge

__all__ = ["elsewhere", "options_elsewhere"]

F = TypeVar("F", bound=Callable[..., Any])


def elsewhere(function: F, bridge: Callable[[], Bridge]) -> F:
    """The same function where it is a plain one; else one that runs there, and looks like it.

    :param bridge: of the process that calls it: another one after a fork.
    """
    if not callable(function) or not _is_coroutine_function(function):
        return function

    @functools.wraps(function)
    async def there(*given: Any) -> Any:
        return await bridge().elsewhere(functools.partial(function, *given))

    there.__qualname__ = getattr(function, "__qualname__", type(function).__name__)
    return there  # type: ignore[return-value]


def options_elsewhere(options: Any, bridge: Callable[[], Bridge]) -> Any:
    """Keyword arguments of a consumer, with what of them is coroutine functions."""
    made = dict(options)
    if (told := made.get("message_queue_listener")) is not None:
        made["message_queue_listener"] = elsewhere(told, bridge)
    if isinstance(store := made.get("offset_store"), OffsetStorage):
        made["offset_store"] = _Storage(store, bridge)
    return made


class _Storage:
    """An offset storage whose coroutine functions run there."""

    def __init__(self, storage: OffsetStorage, bridge: Callable[[], Bridge]) -> None:
        self.__wrapped__ = storage
        self.read = elsewhere(storage.read, bridge)
        self.write = elsewhere(storage.write, bridge)


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - an object of that kind
