"""What hands messages to listeners, whichever way (Java: ConsumeMessageService)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rmq.client.consumer.listeners import Listener
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.message import MessageExt
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import Clock, Pool

__all__ = ["Listening", "Service"]


@dataclass(frozen=True, slots=True)
class Listening:
    """How listeners are called, and who is told what came of it."""

    clock: Clock
    tasks: TaskOwner
    #: Where plain listeners run.
    pool: Pool
    #: The listener for a topic.
    pick: Callable[[str], Listener | None]
    #: Told a queue and the offset that may be committed.
    settled: Callable[[ProcessQueue, int], None]
    #: Told (topic, ok, failed, seconds) for statistics.
    on_consume: Callable[[str, int, int, float], None]
    #: Told what a listener raised.
    on_failed: Callable[[BaseException], None]


class Service(Protocol):
    """Takes messages of the queues that are ours, and tells which of them were settled.

    Side by side (``concurrent.py``), one after the other (``orderly.py``), or to whoever asks (``polling.py``).
    """

    #: The tasks that call coroutine listeners: whoever runs in one of them is waited for.
    listener_tasks: set[asyncio.Task[object]]

    @property
    def busy(self) -> int:
        """Listener calls under way."""
        ...

    @property
    def full(self) -> bool:
        """It holds so much of all queues together that nothing more is to be pulled."""
        return False

    def open(self, pq: ProcessQueue) -> None:
        """A queue became ours."""

    def submit(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        """Its messages came, and stand in it already."""

    def passed(self, pq: ProcessQueue, offset: int) -> None:
        """Of an empty queue, nothing up to ``offset`` is for us."""

    def close(self, pq: ProcessQueue) -> asyncio.Task[None] | None:
        """A queue is no longer ours (``dropped`` is set): none of its messages goes to a listener any more.

        :returns: what ends with the call under way, when nobody else may have the queue before.
        """

    async def drain(self, limit: float) -> int:
        """Call no listener any more, and wait for the calls under way; what waits is left for the next owners.

        :returns: how many still run after ``limit`` seconds.
        """
        ...

    def resize(self, most: int) -> None:
        """Another number of calls at a time."""
