"""Starts and ends of a client that meet: they come one after the other, whichever coroutines call them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

from rmq.protocol.errors import ClientError, WrongType

if TYPE_CHECKING:
    from rmq.client.instance import ClientInstance

__all__ = ["ends", "not_copied", "started_elsewhere", "starts"]

#: A coroutine method of a client; what it is made into has the same arguments.
M = TypeVar("M", bound=Callable[..., Coroutine[Any, Any, None]])


class _Life:
    """What one client is at, on one loop: of one that was left with its work undone nothing comes any more."""

    __slots__ = ("cut", "ending", "free", "loop", "starter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: Who starts it, and whether a shutdown has cut that short.
        self.starter: asyncio.Task[Any] | None = None
        self.cut = False
        #: Who shuts it down: several may wait for one end.
        self.ending: set[asyncio.Task[Any]] = set()
        #: Told when one of them is through.
        self.free: asyncio.Future[None] | None = None

    async def change(self) -> None:
        """Until a start or an end is through."""
        if self.free is None:
            self.free = self.loop.create_future()
        await asyncio.wait({self.free})

    def changed(self) -> None:
        free, self.free = self.free, None
        if free is not None and not free.done():
            free.set_result(None)


_lives: WeakKeyDictionary[Any, _Life] = WeakKeyDictionary()


def _life(client: object) -> _Life:
    life, loop = _lives.get(client), asyncio.get_running_loop()
    if life is None or life.loop is not loop:
        life = _lives[client] = _Life(loop)
    return life


def started_elsewhere(client: object) -> ClientError:
    """What a client says to who uses it on another loop than its own."""
    return ClientError(
        f"{_named(client)} was started on another event loop: start, use and shut down a client in one asyncio.run(), "
        "or, in tests, in fixtures of the loop that the tests run on"
    )


def not_copied(client: object) -> WrongType:
    """What a client says to who pickles or copies it: its connections are in one process only."""
    return WrongType(f"{client!r} cannot be copied or pickled: make a client where it is used, one in each process")


def _named(client: object) -> str:
    group = getattr(client, "group", None) or getattr(client, "name", None)
    return f"the {type(client).__name__}{f' {group}' if group else ''}"


def _elsewhere(client: Any, loop: asyncio.AbstractEventLoop) -> ClientInstance | None:
    """The instance of another loop that the client was started on."""
    instance: ClientInstance | None = getattr(client, "_instance", None)
    return None if instance is None or instance.loop in (loop, None) else instance


def starts(start: M) -> M:
    """A client's ``start``: waits for one that is under way, and for an end; a shutdown meanwhile makes it a
    ClientError, and so does its being started on another loop. It ends by itself what it has begun when it fails or is
    cancelled."""

    @wraps(start)
    async def started(client: Any, /, *arguments: Any, **named: Any) -> None:
        life, task = _life(client), asyncio.current_task()
        assert task is not None
        if life.starter is task:  # that of its base class
            return await start(client, *arguments, **named)
        while life.starter is not None or life.ending - {task}:
            await life.change()
        if _elsewhere(client, life.loop) is not None:
            raise started_elsewhere(client)
        life.starter, life.cut = task, False
        try:
            await start(client, *arguments, **named)
        except asyncio.CancelledError:
            if life.cut and not task.uncancel():
                raise ClientError(f"{_named(client)} was shut down while it started") from None
            raise
        finally:
            life.starter = None
            life.changed()

    return cast(M, started)


def ends(end: M) -> M:
    """A client's ``shutdown``: cuts a start short that is under way, and waits for its end.

    What was started on a loop that is closed by now ended with it, and is forgotten (``_forget``)."""

    @wraps(end)
    async def ended(client: Any, /, *arguments: Any, **named: Any) -> None:
        life, task = _life(client), asyncio.current_task()
        assert task is not None
        if life.starter is task or task in life.ending:  # a start that failed, or that of its base class
            return await end(client, *arguments, **named)
        while life.starter is not None:
            if not life.cut:
                life.cut = True
                life.starter.cancel()
            await life.change()
        if (left := _elsewhere(client, life.loop)) is not None:
            if left.loop is None or not left.loop.is_closed():
                raise started_elsewhere(client)
            await client._forget()
            left.forget()
            return None
        life.ending.add(task)
        try:
            await end(client, *arguments, **named)
        finally:
            life.ending.discard(task)
            life.changed()

    return cast(M, ended)
