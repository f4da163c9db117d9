"""The queues that are ours: taken, given up, paused, set to other offsets. Who says which is another matter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from rmq.client.consumer.fetch import Fetch
from rmq.client.consumer.kept_locks import KeptLocks
from rmq.client.consumer.member import Member
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.service import Service
from rmq.client.message import MessageQueue
from rmq.protocol.errors import RMQError
from rmq.runtime import patience
from rmq.runtime.aside import logger

__all__ = ["Assignment"]

log = logger(__name__)

#: How long the end waits for a change under way.
_CHANGE_WAIT = 5.0
#: How long a seek waits for the listener call under way on the queue.
_SEEK_WAIT = 10.0


class Assignment:
    """Takes queues and gives them up, whoever chose them; between, ``fetch`` pulls and ``service`` consumes.

    :param locks: where queues must be locked at their broker.
    :param beginning: asked for the offset that a new queue starts at. :raises RMQError: it cannot be known now.
    """

    def __init__(
        self,
        member: Member,
        fetch: Fetch,
        service: Service,
        locks: KeptLocks | None,
        beginning: Callable[[MessageQueue], Awaitable[int]],
    ) -> None:
        self._instance = instance = member.instance
        self._group = member.group
        self._store = member.store
        self._tasks = member.tasks
        self._fetch = fetch
        self._service = service
        self._locks = locks
        self._beginning = beginning
        #: The group's offsets are kept at brokers and go on with the next owner; else each member has its own.
        self._shared = not member.settings.broadcasting
        self._clock = instance.world.clock
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        #: By topic: how many queues are ours, be they taken yet or not.
        self.due: dict[str, int] = {}
        self._paused: set[MessageQueue] = set()
        #: Given up, and their listener's last call is under way still.
        self._releasing: dict[MessageQueue, ProcessQueue] = {}
        #: Held by whoever changes what is ours.
        self.changing = asyncio.Lock()
        self.stopped = False

    # -- taken and given up (``changing`` is held) --------------------------------------------------------------------

    async def assign(
        self,
        topic: str,
        mine: set[MessageQueue],
        before_taking: Callable[[], Awaitable[None]],
    ) -> bool:
        """Of a topic, own these queues and no others. They are pulled after :meth:`begin`.

        :param before_taking: awaited before the offsets of new queues are asked for, when their last owners hold no
            locks that would tell of their end.
        :returns: whether anything changed. What cannot be taken now is left for the next time.
        """
        changed = False
        self.due[topic] = len(mine)
        for queue, pq in list(self.queues.items()):
            if queue.topic == topic and (queue not in mine or pq.dropped or self._fetch.ended(pq)):
                changed = True
                await self.give_up(pq)
        new = sorted(queue for queue in mine if queue not in self.queues and queue not in self._releasing)
        asked = self._clock.monotonic()
        if self._locks is not None:
            new = await self._locks.ask(topic, new)
        elif new:
            await before_taking()
        for queue in new:
            if self.stopped:
                break
            if self._shared:
                self._store.remove(queue)
            try:
                offset = await self._beginning(queue)
            except RMQError as error:
                log.warning("group %s: %s is taken with the next rebalance: %s", self._group, queue, error)
                continue
            if not self.stopped:
                self._take(queue, offset, asked)
                changed = True
        if self._locks is not None and (left := [queue for queue in new if queue not in self.queues]):
            await self._locks.give_back(left)
        return changed

    def _take(self, queue: MessageQueue, offset: int, asked: float) -> None:
        self.queues[queue] = pq = ProcessQueue(queue, offset, self._instance.namespace.queue(queue))
        pq.paused = queue in self._paused
        if self._locks is not None:
            self._locks.keep(pq, asked)
        self._service.open(pq)

    def begin(self) -> None:
        """Pull from the queues that were taken; after the brokers were told of the new subscription version."""
        if not self.stopped:
            for pq in self.queues.values():
                self._fetch.begin(pq)

    def restart(self, queue: MessageQueue, offset: int) -> bool:
        """Go on at another offset of a queue, which is not committed by that; what is held of it is forgotten.

        :returns: whether the queue is ours.
        """
        pq = self.queues.get(queue)
        if pq is None or pq.dropped or self.stopped:
            return False
        pq.dropped = pq.void = True
        self._fetch.end(pq)
        self._service.close(pq)
        self._take(queue, offset, self._clock.monotonic())
        self._fetch.begin(self.queues[queue])
        return True

    async def give_up(self, pq: ProcessQueue) -> None:
        """No more pulls and calls, keep the offset, let go of the lock."""
        queue = pq.queue
        if not pq.void:  # what is only set to another offset stays paused
            self._paused.discard(queue)
        pq.dropped = True
        self.queues.pop(queue, None)
        self._fetch.end(pq)
        if self._locks is not None:
            self._locks.forget(queue)
        worker = self._service.close(pq)
        if worker is not None and pq.running:
            self._releasing[queue] = pq
            self._tasks.spawn(self._release_later(pq, worker), f"release {queue}")
        else:
            await self._release(pq)

    async def _release_later(self, pq: ProcessQueue, worker: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait({worker})
            await self._release(pq)
        finally:
            self._releasing.pop(pq.queue, None)
        self._instance.spawn_rebalance()

    async def _release(self, pq: ProcessQueue) -> None:
        queue = pq.queue
        if not pq.void:
            await self._store.persist([queue])
        if self._shared:
            self._store.remove(queue)
        if self._locks is not None:
            await self._locks.give_back([queue])

    # -- from outside -------------------------------------------------------------------------------------------------

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull nothing from those of the queues that are ours until :meth:`resume`, or until they are ours no longer.

        What is held of them, and what a pull under way brings, is still consumed.
        """
        for queue in queues:
            if (pq := self.queues.get(queue)) is not None:
                self._paused.add(queue)
                pq.paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull from these queues again."""
        for queue in queues:
            self._paused.discard(queue)
            if (pq := self.queues.get(queue)) is not None:
                pq.paused = False

    async def seek(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go to other offsets in those of the queues that are ours.

        Messages held are forgotten, and no late result undoes it (field case B018).
        """
        async with self.changing:
            mine = [(pq, offsets[queue]) for queue, pq in self.queues.items() if queue in offsets]
            for pq, _ in mine:
                pq.dropped = pq.void = True
            workers = {worker for pq, _ in mine if (worker := self._service.close(pq)) is not None}
            if workers:
                await asyncio.wait(workers, timeout=_SEEK_WAIT)
            for pq, offset in mine:
                log.info("group %s: %s is reset to offset %d", self._group, pq.queue, offset)
                self._store.update(pq.queue, offset, increase_only=False)
                await self._store.persist([pq.queue], wait=True)
        self._instance.spawn_rebalance()

    async def persist(self) -> None:
        await self._store.persist(list(self.queues))

    def stop(self) -> None:
        """No more pulls and no more queues."""
        self.stopped = True
        if self._locks is not None:
            self._locks.stop()
        self._fetch.stop()

    async def end(self) -> None:
        """After the last listener call: keep every offset, give back every lock."""
        try:
            async with patience.timeout(_CHANGE_WAIT), self.changing:
                pass
        except TimeoutError:
            log.warning("group %s: a rebalance under way does not end, the shutdown goes on without it", self._group)
        queues = [*self.queues, *(queue for queue, pq in self._releasing.items() if not pq.running)]
        await self._store.persist(queues, wait=True)
        for queue, pq in self.queues.items():
            pq.dropped = True
            if self._locks is not None:
                self._locks.forget(queue)
        self.queues.clear()
        if self._locks is not None:
            await self._locks.give_back(queues, wait=True)
