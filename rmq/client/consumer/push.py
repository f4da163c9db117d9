"""The push consumer (Java: DefaultMQPushConsumer)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Unpack, overload

from rmq.client.checks import seconds, typed
from rmq.client.consumer import sendback
from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.beginning import Beginning
from rmq.client.consumer.concurrent import ConcurrentService
from rmq.client.consumer.consumer import Consumer
from rmq.client.consumer.delivery import Delivery
from rmq.client.consumer.fetch import Limits
from rmq.client.consumer.inner import PushInner
from rmq.client.consumer.kept_locks import KeptLocks
from rmq.client.consumer.listeners import Batch, BatchListener, Listener, One, OneListener
from rmq.client.consumer.member import Member
from rmq.client.consumer.membership import Membership
from rmq.client.consumer.orderly import OrderlyService
from rmq.client.consumer.pop.acks import Acks
from rmq.client.consumer.pop.concurrent import PopConcurrentService
from rmq.client.consumer.pop.orderly import PopOrderlyService
from rmq.client.consumer.pop.pops import Pops
from rmq.client.consumer.pop.rebalance import BrokerRebalance
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.rebalance import Rebalance
from rmq.client.consumer.service import Listening, Service
from rmq.client.consumer.subscriptions import Subscriptions, refuse_mixture
from rmq.client.instance import instances_of
from rmq.client.life import ends, starts
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.namespace import Namespace
from rmq.client.settings import Duration, PushConsumerOptions, PushConsumerSettings, lists_options
from rmq.client.trace import hooks_of
from rmq.protocol.errors import ClientError
from rmq.runtime.aside import logger
from rmq.runtime.signals import signal_wait_on_loop
from rmq.runtime.world import Pool, World

__all__ = ["PushConsumer"]

log = logger(__name__)

_HEARTBEAT_WAIT = 1.0
#: How long a rebalance waits for what it tells the application.
_TOLD_WAIT = 10.0


def _nowhere(pq: ProcessQueue, offset: int) -> None:
    """No offset is kept of what is popped: its broker does."""


@lists_options(PushConsumerSettings)
@typed()
class PushConsumer(Consumer):
    """Gets messages as they come and hands them to listeners; coroutines of one loop may share it.

    :param group: the consumer group: the same subscriptions and the same listeners in every member.
    :param options: see :class:`~rmq.client.settings.PushConsumerOptions`.
    :raises ClientError: a name or a setting cannot be used.

    ::

        consumer = PushConsumer("order_consumers", namesrv="127.0.0.1:9876")

        @consumer.on("TopicTest", "TagA || TagB")
        async def handle(message):      # returns nothing or ConsumeResult.SUCCESS; raising = tried again later
            print(message.body)

        async with consumer:
            ...
    """

    def __init__(self, group: str, *, world: World | None = None, **options: Unpack[PushConsumerOptions]) -> None:
        self._settings: PushConsumerSettings = PushConsumerSettings.of(options)
        self._names = Namespace(self._settings.namespace)
        group = self._names.group(group, "DEFAULT_CONSUMER")
        self.group: str = group
        self._world: World = world or World.around()
        self._strategy = self._settings.strategy()
        self._trace, self._hooks = hooks_of(group, self._settings, self._world)
        self._subscriptions = Subscriptions(self._world.clock, group)
        self._listeners: dict[str, Listener] = {}
        self._default: Listener | None = None
        self._inner = PushInner(self)
        self._delivery: Delivery | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._paused = False
        self._leave: Callable[[BaseException], None] | None = None
        self._options = options

    def _renew(self) -> PushConsumer:
        """The same consumer with its listeners, not started: for a forked child."""
        made = PushConsumer(self.group, **self._options)
        made._subscriptions.table.update(self._subscriptions.table)
        made._listeners = dict(self._listeners)
        made._default = self._default
        return made

    # -- subscriptions and listeners ----------------------------------------------------------------------------------

    @overload
    def on(
        self, topic: str, expression: str = "*", *, sql: bool = False, batch: Literal[False] = False
    ) -> Callable[[One], One]: ...

    @overload
    def on(
        self, topic: str, expression: str = "*", *, sql: bool = False, batch: Literal[True]
    ) -> Callable[[Batch], Batch]: ...

    @overload
    def on(self, topic: str, expression: str = "*", *, sql: bool = False, batch: bool) -> Callable[[Any], Any]: ...

    def on(self, topic: str, expression: str = "*", *, sql: bool = False, batch: bool = False) -> Callable[[Any], Any]:
        """Subscribe a topic and make the decorated function its listener.

        It takes a message and, if it has a second parameter, the :class:`ConsumeContext`. Returning nothing, True or
        SUCCESS means done; raising, False or another :class:`ConsumeResult` means that the message comes again. What
        else it returns is taken as success, with a warning.

        :param expression: tags, ``TagA || TagB``; with ``sql=True`` a SQL92 condition.
        :param batch: the listener takes a list of up to ``consume_message_batch_max_size`` messages.
        :raises ClientError: the topic, the expression or the listener cannot be used, or the topic has a listener.
        """

        def register(function: Any) -> Any:
            listener = Listener(function, batch=batch, group=self.group, hooks=self._hooks)
            shown = self._names.plain(topic)
            if shown in self._listeners and self._names.wrap(topic) in self._subscriptions.table:
                raise ClientError(
                    f"the topic {topic} has a listener in this consumer already: each message goes to one; use a "
                    "second group for another copy of them, or unsubscribe first"
                ).about(topic=topic)
            self.subscribe(topic, expression, sql=sql)
            self._listeners[shown] = listener
            return function

        return register

    def register_message_listener(self, listener: OneListener | BatchListener, *, batch: bool = False) -> None:
        """The listener of topics that have none of their own; see :meth:`on`.

        :raises ClientError: the listener cannot be used.
        """
        self._default = Listener(listener, batch=batch, group=self.group, hooks=self._hooks)

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Receive a topic's messages; takes effect at once on a started consumer.

        :raises ClientError: the expression cannot be used.
        """
        self._subscriptions.put(self._names.wrap(topic), expression, sql=sql)
        self._changed()

    def unsubscribe(self, topic: str) -> None:
        """Receive a topic's messages no more; its queues are given up at once.

        What failed before and is still to be tried again goes to the listener that it had.
        """
        self._subscriptions.table.pop(self._names.wrap(topic), None)
        self._changed()

    def _changed(self) -> None:
        if self._membership is not None:
            self._membership.changed()

    # -- life ---------------------------------------------------------------------------------------------------------

    @starts
    async def start(self) -> None:
        """Join the group and begin to receive. Starting a started consumer does nothing.

        :raises ClientError: no subscription, no listener for one, or the group has a consumer in this client already.
        :raises ResponseError: a broker does not take a SQL92 subscription.
        """
        if (stopping := self._stopping) is not None:  # asked for by a listener, or by who did not wait for it
            await asyncio.wait({stopping})
        if self._membership is not None:
            return
        self._check_listeners()
        settings = self._settings
        if not settings.broadcasting:
            self._subscriptions.put_retry()
        if not settings.allow_mixed_subscriptions:
            refuse_mixture(self._inner.heartbeat_data(), instances_of(settings.namesrv, self._world))
        membership = await Membership.join(self._inner, self._world, settings, settings.consume_thread_max, self._trace)
        membership.pool.keep(settings.consume_thread_min)
        instance, tasks = membership.instance, membership.tasks
        member = Member(
            instance, self.group, settings, membership.store, self._subscriptions.table, self._inner.statistics, tasks
        )
        pops = self._make_pops(member, settings, membership.pool) if settings.asks_broker else None

        def share(assignment: Assignment, beginning: Beginning) -> Rebalance:
            how = (member, self._strategy, assignment, beginning, self._on_assignment)
            return Rebalance(*how) if pops is None else BrokerRebalance(*how, pops, self._subscriptions)

        self._delivery = delivery = Delivery(
            member,
            Limits.of(settings),
            lambda locks: self._make_service(member, settings, membership.pool, locks),
            share,
            in_order=settings.orderly,
            pops=pops,
        )
        delivery.pause(self._paused)
        self._membership = membership
        try:
            await membership.find_brokers()
            await self._subscriptions.check(instance)
            await membership.announce()
            if self._delivery is not delivery or tasks.closed or self._stopping is not None:
                raise ClientError(f"the consumer {self.group} was shut down while it started")
            delivery.start()
        except BaseException:
            if self._delivery is delivery:
                await self.shutdown()
            raise

    def _check_listeners(self) -> None:
        topics = [self._names.plain(topic) for topic in self._subscriptions.chosen()]
        if not topics:
            raise ClientError(f"the consumer {self.group} subscribes nothing: use @consumer.on(topic) or subscribe()")
        if self._default is None and (bare := [topic for topic in topics if topic not in self._listeners]):
            raise ClientError(
                f"the topic {bare[0]} has no listener: use @consumer.on(topic) or register_message_listener()"
            )

    def _listening(
        self, member: Member, pool: Pool, settled: Callable[[ProcessQueue, int], None] = _nowhere
    ) -> Listening:
        return Listening(
            clock=self._world.clock,
            tasks=member.tasks,
            pool=pool,
            pick=self._listener_of,
            settled=settled,
            on_consume=self._on_consume,
            on_failed=self._on_failed,
        )

    def _make_service(
        self, member: Member, settings: PushConsumerSettings, pool: Pool, locks: KeptLocks | None
    ) -> Service:
        instance, store = member.instance, member.store

        def settled(pq: ProcessQueue, offset: int) -> None:
            store.update(pq.queue, offset)

        async def give_back(message: MessageExt, delay_level: int) -> bool:
            most = 16 if settings.max_reconsume_times < 0 else settings.max_reconsume_times
            return await sendback.give_back(instance, self.group, message, delay_level, most)

        listening = self._listening(member, pool, settled)
        if settings.orderly:
            return OrderlyService(listening, settings, self._bury, locks.relock if locks is not None else None)
        return ConcurrentService(listening, settings, give_back)

    def _make_pops(self, member: Member, settings: PushConsumerSettings, pool: Pool) -> Pops:
        acks = Acks(member.instance, self.group, member.tasks)
        service = PopOrderlyService if settings.orderly else PopConcurrentService
        return Pops(member, settings, service(self._listening(member, pool), settings, acks, self._bury), acks)

    async def _bury(self, message: MessageExt) -> bool:
        return await sendback.bury(self._client, self.group, message)

    @ends
    async def shutdown(self, timeout: Duration | None = None) -> None:
        """Stop receiving, let running listeners finish, keep the offsets, leave the group.

        Messages that no listener was called for yet are left for the next owner of their queues.

        :param timeout: how long to wait for running listeners; ``await_termination_when_shutdown`` by default.
        """
        if self._membership is None:
            return
        if self._stopping is None:
            limit = self._settings.await_termination_when_shutdown if timeout is None else seconds(timeout)
            self._stopping = asyncio.get_running_loop().create_task(self._shutdown(limit), name="shutdown")
        if self._delivery is not None and self._delivery.runs_in(asyncio.current_task()):
            return  # called by a listener: it is waited for, so it cannot wait itself
        await asyncio.shield(self._stopping)

    async def _forget(self) -> None:
        self._delivery = self._stopping = None
        await super()._forget()

    async def _shutdown(self, limit: float) -> None:
        membership, delivery = self._membership, self._delivery
        assert membership is not None
        assert delivery is not None
        try:
            if left := await delivery.stop(limit):
                log.warning(
                    "group %s: %d listener calls still run after %g s; their messages come again",
                    self.group,
                    left,
                    limit,
                )
        finally:
            try:
                await membership.leave()
            finally:
                self._membership = self._delivery = self._stopping = None

    async def send_message_back(
        self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None
    ) -> None:
        """Have a message delivered to this group again, later.

        :param delay_level: -1 dead letters, 0 the broker decides, over 0 that level.
        :raises RMQError: neither the broker that holds it nor the retry topic took it.
        """
        most = 16 if self._settings.max_reconsume_times < 0 else self._settings.max_reconsume_times
        await sendback.send_message_back(self._client, self.group, message, delay_level, most, broker_name)

    async def change_invisible_time(self, message: MessageExt, invisible_time: Duration) -> None:
        """Keep a popped message for another time, from now on: for a listener that needs longer for it.

        :param message: one that this consumer popped (``client_rebalance=False``) and has not settled yet.
        :param invisible_time: until others may get it; seconds or a ``timedelta``.
        :raises ClientError: it is no such message, or its time is over.
        :raises RMQError: the broker does not say yes: it may be given to others when its time is over.
        """
        pops = self._delivery.pops if self._delivery is not None else None
        if pops is None:
            raise ClientError(f"the consumer {self.group} pops nothing: it is not started with client_rebalance=False")
        await pops.change_invisible_time(message, seconds(invisible_time, "invisible_time"))

    async def run(self) -> None:
        """Start, consume until SIGTERM, SIGINT or SIGHUP, shut down; for the main thread.

        A second signal, more than a second later, ends the process at once with exit code 1.

        :raises SystemExit: a listener did, with its code; likewise KeyboardInterrupt. Its message comes again.
        """
        with signal_wait_on_loop() as came, self._exits(came.end) as exits:
            await self.start()
            try:
                log.info("group %s: %s: stopping", self.group, await came())
            finally:
                await self.shutdown()
            for error in exits:
                raise error

    @contextmanager
    def _exits(self, end: Callable[[str], None]) -> Iterator[list[BaseException]]:
        """In the block ``end`` is told, on the loop, that a listener wants the process to end; gives what it raised."""
        raised: list[BaseException] = []

        def leave(error: BaseException) -> None:
            raised.append(error)
            end(f"a listener raised {type(error).__name__}")

        self._leave = leave
        try:
            yield raised
        finally:
            self._leave = None

    def _on_failed(self, error: BaseException) -> None:
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            if self._leave is not None:
                self._leave(error)
            else:
                text = "group %s: a listener raised %s: it ends run(), but nothing else: the process goes on"
                log.error(text, self.group, type(error).__name__)

    def suspend(self) -> None:
        """Pull nothing more until :meth:`resume`; what is held is still consumed."""
        self._paused = True
        if self._delivery is not None:
            self._delivery.pause(True)

    def resume(self) -> None:
        """Pull again."""
        self._paused = False
        if self._delivery is not None:
            self._delivery.pause(False)

    def update_core_pool_size(self, count: int) -> None:
        """Another number of listener threads (and of coroutine listeners at a time), from now on."""
        if not 1 <= count <= 1000:
            raise ClientError(f"the pool size is {count}: it must be 1 to 1000")
        self._settings.consume_thread_min = min(self._settings.consume_thread_min, count)
        self._settings.consume_thread_max = count
        if self._membership is not None:
            self._membership.pool.resize(count)
            self._membership.pool.keep(self._settings.consume_thread_min)
        if self._delivery is not None:
            self._delivery.resize(count)

    async def persist_offsets(self) -> None:
        """Keep the offsets now; done every ``persist_consumer_offset_interval`` anyway."""
        if self._delivery is not None:
            await self._delivery.assignment.persist()

    async def _rebalance(self) -> None:
        if self._delivery is not None:
            await self._delivery.rebalance()

    async def _on_assignment(self, topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        self._subscriptions.renew(topic)
        membership = self._membership
        if membership is None or membership.tasks.closed:
            return
        # Before the first pull, which names the new version; a broker that does not answer holds nobody up.
        beat = membership.tasks.spawn(membership.instance.beats.beat(), "heartbeat")
        await asyncio.wait({beat}, timeout=_HEARTBEAT_WAIT)
        telling = membership.assigned(topic, queues, mine)
        if telling is not None and not (await asyncio.wait({telling}, timeout=_TOLD_WAIT))[0]:
            log.warning("the message_queue_listener of group %s takes over %g s", self.group, _TOLD_WAIT)

    def _listener_of(self, topic: str) -> Listener | None:
        return self._listeners.get(topic) or self._default

    def _on_consume(self, topic: str, ok: int, failed: int, duration: float) -> None:
        self._inner.statistics(self._names.wrap(topic)).on_consume(ok, failed, duration, self._world.clock.monotonic())

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now; with the queue id -1 we pop from a broker, which chooses the queue."""
        if (delivery := self._delivery) is None:
            return []
        popped = () if delivery.pops is None else delivery.pops.queues
        return sorted(self._names.queues([*delivery.assignment.queues, *popped]))

    @property
    def missing(self) -> str | None:
        """Why nothing comes to it now, in one line: it is not started, or nobody answers who would have to.

        None while messages come, and while no queue is for it: the group has more members than there are queues, or
        nobody has sent to the topic yet.
        """
        if self._delivery is None:
            return "it is not started, or has stopped"
        return self._delivery.missing(self._subscriptions.chosen())

    def lag(self) -> dict[MessageQueue, int]:
        """By queue that is ours: the messages not consumed yet, of those its broker had when it last answered.

        A quiet queue is answered every ``broker_suspend_max_time``, one that gets messages at once.
        """
        return {queue: held.lag(self._inner.noted(queue)) for queue, held in self._inner.process_queues().items()}
