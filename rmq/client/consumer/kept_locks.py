"""The locks of the queues that an orderly group's member has: asked for, renewed, lost, and asked for again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Set

from rmq.client.consumer.locks import QueueLocks
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.remoting.conn import Conn
from rmq.runtime.aside import logger
from rmq.runtime.tasks import TaskOwner

__all__ = ["KeptLocks"]

log = logger(__name__)

_RENEWAL = 20.0
#: After how long locks that were refused or lost are asked for again.
_AGAIN = 1.0


class KeptLocks:
    """Queues that must be locked at their broker, and whether they are.

    :param take_again: told which topics have queues whose locks were refused, every second while that lasts.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        tasks: TaskOwner,
        take_again: Callable[[Set[str]], Awaitable[None]],
    ) -> None:
        self._instance = instance
        self._group = group
        self._tasks = tasks
        self._take_again = take_again
        self._clock = instance.world.clock
        self._locks = QueueLocks(instance, group)
        self._kept: dict[MessageQueue, ProcessQueue] = {}
        #: The master that each lock was asked of last.
        self._at: dict[MessageQueue, str | None] = {}
        #: Topics with queues whose locks somebody else has: said once while it lasts.
        self._refused: set[str] = set()
        self._again: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        self._tasks.every(_RENEWAL, self.renew, "locks")
        self._instance.remoting.on_close.append(self._connection_lost)
        self._instance.on_moved.append(self._masters_moved)

    def stop(self) -> None:
        """Ask for nothing more that was refused; what is kept is renewed until it is given back."""
        self._stopped = True
        if self._connection_lost in self._instance.remoting.on_close:
            self._instance.remoting.on_close.remove(self._connection_lost)
            self._instance.on_moved.remove(self._masters_moved)

    async def ask(self, topic: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Ask for the locks of queues that are to be ours. :returns: those we have; the others are asked for again."""
        again = topic in self._refused
        held = await self._locks.lock(queues, level=logging.DEBUG if again else logging.WARNING)
        if left := len(queues) - len(held):
            if not again:
                text = "group %s: %d queues of %s are locked by their last owner still"
                log.info(text, self._group, left, topic)
            self._refused.add(topic)
            self._ask_again()
        else:
            self._refused.discard(topic)
        return [queue for queue in queues if queue in held]

    def keep(self, pq: ProcessQueue, asked: float) -> None:
        """A queue was taken whose lock was asked for at ``asked`` (monotonic seconds)."""
        self._kept[pq.queue] = pq
        self._mark(pq, asked)

    def forget(self, queue: MessageQueue) -> None:
        """A queue is no longer ours: its lock is not renewed; :meth:`give_back` is for when its last call has ended."""
        self._kept.pop(queue, None)
        self._at.pop(queue, None)

    async def give_back(self, queues: list[MessageQueue], *, wait: bool = False) -> None:
        await self._locks.unlock(queues, wait=wait)

    def _ask_again(self) -> None:
        """Look after the locks that were refused or lost, soon: the next rebalance may be far away."""
        if self._again is None and not self._stopped and not self._tasks.closed:
            self._again = self._tasks.spawn(self._look_again(), "locks again")

    async def _look_again(self) -> None:
        await asyncio.sleep(_AGAIN)
        self._again = None
        await self._take_again(self._refused)
        if any(not pq.locked for pq in self._kept.values()):
            await self.renew(level=logging.DEBUG)
            if any(not pq.locked for pq in self._kept.values()):
                self._ask_again()

    def _mark(self, pq: ProcessQueue, asked: float) -> None:
        pq.locked = True
        self._at[pq.queue] = self._instance.routes.master_addr(pq.queue.broker_name)
        pq.last_lock = asked
        pq.last_lock_ms = self._clock.now_ms()

    async def renew(self, *, level: int = logging.WARNING) -> None:
        """Keep the locks of our queues (every 20 s: a broker lets go after 60 s)."""
        queues = list(self._kept)
        asked = self._clock.monotonic()
        held = await self._locks.lock(queues, wanted=self._kept.__contains__, level=level)
        for queue in queues:
            pq = self._kept.get(queue)
            if pq is None:
                continue
            if queue in held:
                self._mark(pq, asked)
            elif pq.locked:
                pq.locked = False
                log.warning("group %s: the lock of %s was lost: it waits for it", self._group, queue)
                self._ask_again()

    async def relock(self, queue: MessageQueue) -> bool:
        """Ask for one queue's lock again; its worker does so ten times a second, the renewal of all tells the log."""
        if self._locks.busy(queue.broker_name):
            return False
        asked = self._clock.monotonic()
        held = await self._locks.lock([queue], wanted=self._kept.__contains__, level=logging.DEBUG)
        pq = self._kept.get(queue)
        if pq is None or queue not in held:
            return False
        self._mark(pq, asked)
        return True

    def _connection_lost(self, conn: Conn) -> None:
        """Without a connection our locks are not ours for long (broker/groups/locks.py): nothing is begun on them."""
        for queue, pq in self._kept.items():
            if pq.locked and self._instance.routes.master_addr(queue.broker_name) == conn.address:
                pq.locked = False
                self._ask_again()

    def _masters_moved(self) -> None:
        """Locks are their master's: another one knows nothing of them, and grants them to whoever comes first."""
        for queue, pq in self._kept.items():
            master = self._instance.routes.master_addr(queue.broker_name)
            if pq.locked and master is not None and master != self._at.get(queue):
                pq.locked = False
                self._ask_again()
