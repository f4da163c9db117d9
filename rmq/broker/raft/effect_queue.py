"""The effects of a member's node, carried out one after the other: while one is waited for, the others wait, too."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from rmq.protocol.errors import RMQError
from rmq.raft.effects import Effect, Write
from rmq.runtime.tasks import TaskOwner

__all__ = ["EffectQueue"]

log = logging.getLogger(__name__)


class EffectQueue:
    """Those of one member, for one node after the other.

    :param tasks: owns what is waited for.
    :param carry_out: does an effect, or says what is to be waited for.
    :param failed: told what went wrong with one; it drops the others.
    :param went_on: told that one that was waited for is done, and so are those behind it that wait for nothing.
    """

    def __init__(
        self,
        tasks: TaskOwner,
        carry_out: Callable[[Effect], Coroutine[Any, Any, None] | None],
        failed: Callable[[Exception], None],
        went_on: Callable[[], None],
    ) -> None:
        self._tasks = tasks
        self._carry_out = carry_out
        self._failed = failed
        self._went_on = went_on
        self._waiting: deque[Effect] = deque()
        #: There is a node that they are of.
        self._open = False
        #: An effect is being carried out.
        self._busy = False
        #: The one that is waited for; it may be of a node that is no more.
        self._under_way: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Those that wait."""
        return len(self._waiting)

    async def begin(self) -> None:
        """A new node says what is to be done, once what the last one had under way has ended."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
        self._busy = False
        self._open = True

    def drop(self) -> None:
        """The node is no more: nothing is done behind what is under way."""
        self._open = False
        self._waiting.clear()

    def do(self, effects: list[Effect]) -> None:
        """Carry them out behind those that wait: now, where none is waited for."""
        if self._busy:
            self._waiting += map(_own, effects)
        else:
            self._waiting += effects
            self._work()
            if self._waiting:  # one is waited for
                self._waiting = deque(map(_own, self._waiting))

    def _work(self) -> None:
        self._busy = True
        while self._waiting and self._open:
            try:
                waits = self._carry_out(self._waiting.popleft())
            except Exception as error:
                self._busy = False
                _tell(error)
                self._failed(error)
                return
            if waits is not None:
                self._under_way = self._tasks.spawn(self._finish(waits), "effect")
                return
        self._busy = False

    async def _finish(self, effect: Coroutine[Any, Any, None]) -> None:
        try:
            await effect
        except Exception as error:
            self._under_way = None
            _tell(error)
            if self._open:
                self._failed(error)
            return
        self._under_way = None
        if self._open:
            self._work()
            self._went_on()


def _own(effect: Effect) -> Effect:
    """The same for who waits: bytes where a connection has received them are overwritten by what comes next."""
    if isinstance(effect, Write) and not isinstance(effect.data, bytes):
        return replace(effect, data=bytes(effect.data))
    return effect


def _tell(error: Exception) -> None:
    if not isinstance(error, OSError | RMQError):
        log.exception("what a member of the group was to do failed")
