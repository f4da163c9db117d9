"""Starts and ends of a client that meet: they come one after the other, whichever coroutines call them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from rmq.protocol.errors import ClientError

__all__ = ["ends", "starts"]

C = TypeVar("C")
P = ParamSpec("P")
_Method = Callable[Concatenate[C, P], Coroutine[Any, Any, None]]


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


def starts(start: _Method[C, P]) -> _Method[C, P]:
    """A client's ``start``: waits for one that is under way, and for an end; a shutdown meanwhile makes it a
    ClientError. It ends by itself what it has begun when it fails or is cancelled."""

    @wraps(start)
    async def started(client: C, /, *arguments: P.args, **named: P.kwargs) -> None:
        life, task = _life(client), asyncio.current_task()
        assert task is not None
        if life.starter is task:  # that of its base class
            return await start(client, *arguments, **named)
        while life.starter is not None or life.ending - {task}:
            await life.change()
        life.starter, life.cut = task, False
        try:
            await start(client, *arguments, **named)
        except asyncio.CancelledError:
            if life.cut and not task.uncancel():
                raise ClientError(f"{client!r} was shut down while it started") from None
            raise
        finally:
            life.starter = None
            life.changed()

    return started


def ends(end: _Method[C, P]) -> _Method[C, P]:
    """A client's ``shutdown``: cuts a start short that is under way, and waits for its end."""

    @wraps(end)
    async def ended(client: C, /, *arguments: P.args, **named: P.kwargs) -> None:
        life, task = _life(client), asyncio.current_task()
        assert task is not None
        if life.starter is task or task in life.ending:  # a start that failed, or that of its base class
            return await end(client, *arguments, **named)
        while life.starter is not None:
            if not life.cut:
                life.cut = True
                life.starter.cancel()
            await life.change()
        life.ending.add(task)
        try:
            await end(client, *arguments, **named)
        finally:
            life.ending.discard(task)
            life.changed()

    return ended
