"""The queues a push consumer owns: taken and given up by rebalancing, pulled one task each (Java: RebalancePushImpl,
PullMessageService)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from rmq.client.allocate import AllocateMessageQueueStrategy
from rmq.client.consumer import rebalance
from rmq.client.consumer.locks import QueueLocks
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.pulling import Puller
from rmq.client.consumer.service import Service
from rmq.client.consumer.statistics import TopicStatistics
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import PullResult, PullStatus
from rmq.client.settings import ConsumeFromWhere, PushConsumerSettings
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, RMQError
from rmq.protocol.names import is_retry_topic
from rmq.remoting.conn import Conn
from rmq.runtime import patience
from rmq.runtime.aside import logger
from rmq.runtime.tasks import TaskOwner

__all__ = ["Delivery"]

log = logger(__name__)

_FULL = 0.05
_PAUSED = 1.0
_UNLOCKED = 0.1
_FLOW_CONTROL = 0.02
_LOCK_RENEWAL = 20.0
#: After how long locks that were refused or lost are asked for again.
_LOCK_AGAIN = 1.0
#: Seconds that the last owners of queues have to note their offsets, once in a rebalance.
_HANDOVER = 0.2
#: How far our clock may be ahead of a broker's: so much earlier we begin in a queue that came after us.
_CLOCKS_APART_MS = 60_000
#: How long a shutdown waits for a rebalance under way.
_REBALANCE_WAIT = 5.0
#: How long a reset waits for the listener call under way on the queue.
_RESET_WAIT = 10.0


class Delivery:
    """From assignment to listener.

    :param on_changed: told (topic, all queues, ours) when what we own of a topic changed; awaited.
    """

    def __init__(
        self,
        *,
        instance: ClientInstance,
        group: str,
        settings: PushConsumerSettings,
        store: OffsetStore,
        strategy: AllocateMessageQueueStrategy,
        subscriptions: Mapping[str, SubscriptionData],
        statistics: Callable[[str], TopicStatistics],
        tasks: TaskOwner,
        on_changed: Callable[[str, list[MessageQueue], list[MessageQueue]], object],
    ) -> None:
        self._instance = instance
        self._group = group
        self._settings = settings
        self._store = store
        self._strategy = strategy
        self._subscriptions = subscriptions
        self._statistics = statistics
        self._tasks = tasks
        self._on_changed = on_changed
        self._clock = instance.world.clock
        self._timestamp = rebalance.timestamp_ms(settings.consume_timestamp, self._clock.now_ms())
        self._puller = Puller(instance, group)
        self._queue_locks = QueueLocks(instance, group)
        self.service: Service
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        #: Given up, and their listener's last call is under way still.
        self._releasing: dict[MessageQueue, ProcessQueue] = {}
        self._failing: set[MessageQueue] = set()
        #: Topic -> when we first looked at it (milliseconds since the epoch), and the queues it had then.
        self._first_looks: dict[str, tuple[int, frozenset[MessageQueue]]] = {}
        #: Topics whose last rebalance failed: said once while it lasts.
        self._waiting: set[str] = set()
        #: Topics with queues whose locks somebody else has: said once while it lasts.
        self._refused: set[str] = set()
        self._lock_again: asyncio.Task[None] | None = None
        #: This rebalance has given last owners their time.
        self._waited = False
        self._lock = asyncio.Lock()
        self.paused = False
        self._stopped = False

    @property
    def locks(self) -> bool:
        """Queues must be locked at their broker."""
        return self._settings.orderly and not self._settings.broadcasting

    def start(self) -> None:
        if self.locks:
            self._tasks.every(_LOCK_RENEWAL, self.renew_locks, "locks")
            self._instance.remoting.on_close.append(self._connection_lost)

    # -- rebalance ----------------------------------------------------------------------------------------------------

    async def rebalance(self) -> None:
        """Take and give up queues as the group stands now; one at a time."""
        async with self._lock:
            if self._stopped:
                return
            self._waited = False
            for topic in list(self._subscriptions):
                await self._try_topic(topic)
            for queue, pq in list(self.queues.items()):
                if queue.topic not in self._subscriptions:
                    await self._drop(pq)

    async def _try_topic(self, topic: str) -> None:
        try:
            await self._rebalance_topic(topic)
            self._waiting.discard(topic)
        except RMQError as error:
            level = logging.DEBUG if topic in self._waiting else logging.WARNING
            log.log(level, "group %s: rebalance of %s waits: %s", self._group, topic, error)
            self._waiting.add(topic)

    async def _rebalance_topic(self, topic: str) -> None:
        if self._stopped:
            return
        queues = self._instance.routes.subscribe_queues(topic)
        if queues is None:
            await self._instance.refresh_route(topic)
            queues = self._instance.routes.subscribe_queues(topic)
            if queues is None:
                self._note_missing(topic)
                return
            await self._instance.beats.beat()  # its brokers may not know us yet
        self._first_looks.setdefault(topic, (self._clock.now_ms(), frozenset(queues)))
        shared = False
        if self._settings.broadcasting:
            mine = queues
        else:
            ids = await rebalance.consumer_ids(self._instance, self._group, topic)
            mine = rebalance.our_share(self._strategy, self._group, self._instance.client_id, queues, ids)
            shared = len(ids) > 1
        if await self._apply(topic, set(mine), shared=shared):
            result = self._on_changed(topic, queues, sorted(mine))
            if asyncio.iscoroutine(result):
                await result
        self._start_pulls()

    def _note_missing(self, topic: str) -> None:
        if is_retry_topic(topic) or topic in self._first_looks:
            return
        self._first_looks[topic] = self._clock.now_ms(), frozenset()
        log.warning(
            "group %s: no broker has the topic %s: either the name is wrong, or nobody has sent to it yet; "
            "it is looked for again",
            self._group,
            topic,
        )

    def _beginning(self, queue: MessageQueue) -> tuple[ConsumeFromWhere, int]:
        """Where a group without an offset starts: LAST in a queue that came after us means what came after us."""
        policy = self._settings.consume_from_where
        since, queues = self._first_looks[queue.topic]
        if queue in queues or is_retry_topic(queue.topic) or policy is not ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
            return policy, self._timestamp
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, since - _CLOCKS_APART_MS

    async def _apply(self, topic: str, mine: set[MessageQueue], *, shared: bool) -> bool:
        changed = False
        for queue, pq in list(self.queues.items()):
            if queue.topic != topic:
                continue
            task = self._pulls.get(queue)
            if queue not in mine or pq.dropped or task is None or task.done():
                changed = True
                await self._drop(pq)
        new = sorted(queue for queue in mine if queue not in self.queues and queue not in self._releasing)
        asked = self._clock.monotonic()
        if self.locks:
            new = await self._lock_new(topic, new)
        elif new and shared and not self._waited:
            # The last owner has heard of it when we have: what it notes now is where we go on.
            self._waited = True
            await asyncio.sleep(_HANDOVER)
        for queue in new:
            if self._stopped:
                break
            if not self._settings.broadcasting:
                self._store.remove(queue)
            try:
                offset = await rebalance.start_offset(self._instance, self._store, queue, *self._beginning(queue))
            except RMQError as error:
                log.warning("group %s: %s is taken with the next rebalance: %s", self._group, queue, error)
                continue
            if not self._stopped:
                self._take(queue, offset, asked)
                changed = True
        if self.locks and (left := [queue for queue in new if queue not in self.queues]):
            await self._queue_locks.unlock(left)
        return changed

    def _take(self, queue: MessageQueue, offset: int, asked: float) -> None:
        pq = ProcessQueue(queue, offset)
        if self.locks:
            self._mark_locked(pq, asked)
        self.queues[queue] = pq
        self.service.open(pq)

    def _start_pulls(self) -> None:
        """Pull from the queues that were taken; after the brokers were told of the new subscription version."""
        for queue, pq in self.queues.items():
            if queue not in self._pulls and not self._stopped:
                self._pulls[queue] = self._tasks.spawn(self._pull_loop(pq), f"pull {queue}")

    async def _drop(self, pq: ProcessQueue) -> None:
        """Give a queue up: no more pulls, keep its offset, let go of its lock."""
        queue = pq.queue
        pq.dropped = True
        self.queues.pop(queue, None)
        self._puller.forget(queue)
        task = self._pulls.pop(queue, None)
        if task is not None:
            task.cancel()
        worker = self.service.close(pq)
        if worker is not None and pq.running:
            self._releasing[queue] = pq
            self._tasks.spawn(self._release_later(pq, worker), f"release {queue}")
            return
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
        if not self._settings.broadcasting:
            self._store.remove(queue)
        if self.locks:
            await self._queue_locks.unlock([queue])

    # -- locks --------------------------------------------------------------------------------------------------------

    async def _lock_new(self, topic: str, new: list[MessageQueue]) -> list[MessageQueue]:
        """Ask for the locks of queues that are to be ours. :returns: those we have; the others are asked for again."""
        again = topic in self._refused
        held = await self._queue_locks.lock(new, level=logging.DEBUG if again else logging.WARNING)
        if left := len(new) - len(held):
            if not again:
                text = "group %s: %d queues of %s are locked by their last owner still"
                log.info(text, self._group, left, topic)
            self._refused.add(topic)
            self._ask_again()
        else:
            self._refused.discard(topic)
        return [queue for queue in new if queue in held]

    def _ask_again(self) -> None:
        """Look after the locks that were refused or lost, soon: the next rebalance may be far away."""
        if self._lock_again is None and not self._stopped and not self._tasks.closed:
            self._lock_again = self._tasks.spawn(self._locks_again(), "locks again")

    async def _locks_again(self) -> None:
        await asyncio.sleep(_LOCK_AGAIN)
        self._lock_again = None
        async with self._lock:
            for topic in sorted(self._refused & self._subscriptions.keys()):
                await self._try_topic(topic)
        if any(not pq.locked for pq in self.queues.values()):
            await self.renew_locks(level=logging.DEBUG)
            if any(not pq.locked for pq in self.queues.values()):
                self._ask_again()

    def _mark_locked(self, pq: ProcessQueue, asked: float) -> None:
        pq.locked = True
        pq.last_lock = asked
        pq.last_lock_ms = self._clock.now_ms()

    async def renew_locks(self, *, level: int = logging.WARNING) -> None:
        """Keep the locks of our queues (every 20 s: a broker lets go after 60 s)."""
        queues = list(self.queues)
        asked = self._clock.monotonic()
        held = await self._queue_locks.lock(queues, wanted=self.queues.__contains__, level=level)
        for queue in queues:
            pq = self.queues.get(queue)
            if pq is None:
                continue
            if queue in held:
                self._mark_locked(pq, asked)
            elif pq.locked:
                pq.locked = False
                log.warning("group %s: the lock of %s was lost: it waits for it", self._group, queue)
                self._ask_again()

    async def relock(self, queue: MessageQueue) -> bool:
        """Ask for one queue's lock again; its worker does so ten times a second, the renewal of all tells the log."""
        if self._queue_locks.busy(queue.broker_name):
            return False
        asked = self._clock.monotonic()
        held = await self._queue_locks.lock([queue], wanted=self.queues.__contains__, level=logging.DEBUG)
        pq = self.queues.get(queue)
        if pq is None or queue not in held:
            return False
        self._mark_locked(pq, asked)
        return True

    def _connection_lost(self, conn: Conn) -> None:
        """Without a connection our locks are not ours for long (broker/groups/locks.py): nothing is begun on them."""
        for queue, pq in self.queues.items():
            if pq.locked and self._instance.routes.master_addr(queue.broker_name) == conn.address:
                pq.locked = False
                self._ask_again()

    # -- pulling ------------------------------------------------------------------------------------------------------

    def _wait_before_pull(self, pq: ProcessQueue) -> float:
        """Seconds to wait before the next pull; 0 = pull now."""
        settings = self._settings
        if self.paused:
            return _PAUSED
        count_limit, size_limit = settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue
        if settings.pull_threshold_for_topic > 0 or settings.pull_threshold_size_for_topic > 0:
            sharing = sum(queue.topic == pq.queue.topic for queue in self.queues) or 1
            if settings.pull_threshold_for_topic > 0:
                count_limit = max(1, settings.pull_threshold_for_topic // sharing)
            if settings.pull_threshold_size_for_topic > 0:
                size_limit = max(1, settings.pull_threshold_size_for_topic // sharing)
        if pq.count > count_limit or pq.size > size_limit:
            return _FULL
        if settings.orderly:
            return _UNLOCKED if self.locks and not pq.locked else 0.0
        return _FULL if pq.span > settings.consume_concurrently_max_span else 0.0

    async def _pull_loop(self, pq: ProcessQueue) -> None:
        queue = pq.queue
        settings = self._settings
        while not pq.dropped:
            # Waiting because of a limit, a pause or a lock is not being dead (field case B040).
            pq.last_pull_ms = self._clock.now_ms()
            wait = self._wait_before_pull(pq)
            if wait > 0:
                await asyncio.sleep(wait)
                continue
            subscription = self._subscriptions.get(queue.topic)
            if subscription is None:
                return
            began = self._clock.monotonic()
            try:
                result = await self._puller.pull(
                    queue,
                    subscription,
                    pq.next_offset,
                    max_nums=settings.pull_batch_size,
                    timeout=settings.consumer_timeout_when_suspend,
                    suspend=settings.broker_suspend_max_time,
                    commit_offset=0 if settings.broadcasting else max(0, self._store.known(queue)),
                    post_subscription=settings.post_subscription_when_pull,
                )
            except RMQError as error:
                await self._pull_failed(queue, error)
                continue
            if self.queues.get(queue) is not pq:
                return
            if self._subscriptions.get(queue.topic) is not subscription:
                continue  # it brings what nobody wants any more, or what is wanted otherwise now
            self._failing.discard(queue)
            if result.status is PullStatus.OFFSET_ILLEGAL:
                await self._offset_illegal(pq, result)
                return
            if result.status is PullStatus.FOUND:
                now = self._clock.monotonic()
                self._statistics(queue.topic).on_pull(len(result.messages), now - began, now)
            self._take_in(pq, result)
            if settings.pull_interval > 0:
                await asyncio.sleep(settings.pull_interval)

    def _take_in(self, pq: ProcessQueue, result: PullResult) -> None:
        pq.next_offset = result.next_begin_offset
        messages = result.messages
        if messages:
            if is_retry_topic(pq.queue.topic):
                for message in messages:
                    message.topic = message.properties.get("RETRY_TOPIC") or message.topic
            pq.put(messages)
            self.service.submit(pq, messages)
        elif pq.count == 0:
            # Nothing matched and nothing waits: the offset moves all the same (field case B030).
            self._store.update(pq.queue, pq.next_offset)

    async def _pull_failed(self, queue: MessageQueue, error: RMQError) -> None:
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(_FLOW_CONTROL)
            return
        expected = isinstance(error, ResponseError) and error.code in (
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
        )
        if expected:
            self._instance.beats.soon()
        first = queue not in self._failing
        self._failing.add(queue)
        log.log(
            logging.WARNING if first and not expected else logging.DEBUG,
            "group %s: pull from %s failed, tried again every %g s: %s",
            self._group,
            queue,
            self._settings.pull_time_delay_when_exception,
            error,
        )
        await asyncio.sleep(self._settings.pull_time_delay_when_exception)

    async def _offset_illegal(self, pq: ProcessQueue, result: PullResult) -> None:
        """The broker has no such offset: go where it says (21), once, and keep that."""
        queue = pq.queue
        log.warning(
            "group %s: %s has offsets %d to %d, not %d: goes on at %d",
            self._group,
            queue,
            result.min_offset,
            result.max_offset,
            pq.next_offset,
            result.next_begin_offset,
        )
        self._store.update(queue, result.next_begin_offset, increase_only=False)
        await self._store.persist([queue], wait=True)
        pq.dropped = pq.void = True
        self._instance.spawn_rebalance()

    # -- from outside -------------------------------------------------------------------------------------------------

    def settled(self, pq: ProcessQueue, offset: int) -> None:
        """A listener settled messages: note the offset."""
        self._store.update(pq.queue, offset)

    async def persist(self, *, wait: bool = False) -> None:
        await self._store.persist(list(self.queues), wait=wait)

    async def reset(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go to other offsets (220). Messages held are forgotten, and no late result undoes it (field case B018)."""
        async with self._lock:
            mine = [(pq, offsets[queue]) for queue, pq in self.queues.items() if queue in offsets]
            for pq, _ in mine:
                pq.dropped = pq.void = True
                task = self._pulls.get(pq.queue)
                if task is not None:
                    task.cancel()
            workers = {worker for pq, _ in mine if (worker := self.service.close(pq)) is not None}
            if workers:
                await asyncio.wait(workers, timeout=_RESET_WAIT)
            for pq, offset in mine:
                log.info("group %s: %s is reset to offset %d", self._group, pq.queue, offset)
                self._store.update(pq.queue, offset, increase_only=False)
                await self._store.persist([pq.queue], wait=True)
        self._instance.spawn_rebalance()

    def stop_pulling(self) -> None:
        """No more pulls and no more queues."""
        self._stopped = True
        if self.locks and self._connection_lost in self._instance.remoting.on_close:
            self._instance.remoting.on_close.remove(self._connection_lost)
        for task in self._pulls.values():
            task.cancel()
        self._pulls.clear()

    async def give_up(self) -> None:
        """After the last listener call: keep every offset, give back every lock."""
        try:
            async with patience.timeout(_REBALANCE_WAIT), self._lock:
                pass
        except TimeoutError:
            log.warning("group %s: a rebalance under way does not end, the shutdown goes on without it", self._group)
        queues = [*self.queues, *(queue for queue, pq in self._releasing.items() if not pq.running)]
        await self._store.persist(queues, wait=True)
        for pq in self.queues.values():
            pq.dropped = True
        self.queues.clear()
        if self.locks:
            await self._queue_locks.unlock(queues, wait=True)

    def held(self) -> list[MessageExt]:
        """Every message held now."""
        return [message for pq in self.queues.values() for message in pq.messages.values()]
