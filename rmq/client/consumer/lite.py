"""The lite pull consumer (Java: DefaultLitePullConsumer): the application asks, pulls go on behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from datetime import datetime
from typing import Unpack

from rmq.client import lookup
from rmq.client.checks import check_number, check_text, seconds, several_queues, typed
from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.beginning import Beginning
from rmq.client.consumer.chosen import Chosen
from rmq.client.consumer.consumer import Consumer
from rmq.client.consumer.delivery import Delivery, Share
from rmq.client.consumer.fetch import Limits
from rmq.client.consumer.inner import LiteInner
from rmq.client.consumer.member import Member
from rmq.client.consumer.membership import Membership
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.consumer.polling import Loop, PollService
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.rebalance import Rebalance
from rmq.client.consumer.statistics import TopicStatistics
from rmq.client.consumer.subscriptions import Subscriptions, refuse_mixture
from rmq.client.instance import instances_of
from rmq.client.life import ends, starts
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.namespace import Namespace
from rmq.client.settings import Duration, LitePullConsumerOptions, LitePullConsumerSettings, lists_options
from rmq.client.shown import shown
from rmq.client.trace import hooks_of
from rmq.protocol.errors import ClientError, RMQError, WrongType
from rmq.protocol.keywords import NoOthers, no_such
from rmq.runtime.aside import logger
from rmq.runtime.world import World

__all__ = ["LitePullConsumer"]

log = logger(__name__)

#: Told a topic and its queues.
QueueChangeListener = Callable[[str, list[MessageQueue]], object]


@lists_options(LitePullConsumerSettings)
@typed()
class LitePullConsumer(Consumer):
    """Gives messages to whoever asks for them, and pulls ahead within limits; one task (or thread) asks at a time.

    It shares the queues of what it subscribes with its group, or has those that it is assigned.

    :param group: the consumer group: the same subscriptions in every member.
    :param options: see :class:`~rmq.client.settings.LitePullConsumerOptions`.
    :raises ClientError: a name or a setting cannot be used.

    ::

        consumer = LitePullConsumer("reporting", namesrv="127.0.0.1:9876")
        consumer.subscribe("TopicTest")
        async with consumer:
            async for message in consumer:  # consumed when the body is done; one that raises gets it again
                print(message.body)
    """

    def __init__(self, group: str, *, world: World | None = None, **options: Unpack[LitePullConsumerOptions]) -> None:
        self._settings: LitePullConsumerSettings = LitePullConsumerSettings.of(options)
        self._names = Namespace(self._settings.namespace)
        group = self._names.group(group, "DEFAULT_CONSUMER")
        self.group: str = group
        self._world: World = world or World.around()
        self._strategy = self._settings.strategy()
        self._trace, self._hooks = hooks_of(group, self._settings, self._world, quick=True)
        self._subscriptions = Subscriptions(self._world.clock, group)
        self._inner = LiteInner(self)
        #: The queues that the application has assigned; None: it subscribes.
        self._chosen: set[MessageQueue] | None = None
        #: By topic: who is told of other queues, and the queues there were.
        self._watched: dict[str, tuple[QueueChangeListener, set[MessageQueue] | None]] = {}
        self._delivery: Delivery | None = None
        self._polled: PollService | None = None
        self._options = options
        #: Whoever asks in vain was told why.
        self._told = False

    def _renew(self) -> LitePullConsumer:
        """The same consumer, not started: for a forked child."""
        made = LitePullConsumer(self.group, **self._options)
        made._subscriptions.table.update(self._subscriptions.table)
        made._chosen = None if self._chosen is None else set(self._chosen)
        made._watched = {topic: (listener, None) for topic, (listener, _) in self._watched.items()}
        return made

    # -- what it reads ------------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Share a topic's queues with the group; takes effect at once on a started consumer.

        :param expression: tags, ``TagA || TagB``, or ``*``; with ``sql=True`` a SQL92 condition.
        :raises ClientError: it cannot be used, or queues were assigned: a consumer does one or the other.
        """
        if self._chosen is not None:
            raise ClientError(f"the consumer {self.group} was assigned its queues: one that subscribes is another one")
        self._subscriptions.put(self._names.wrap(topic), expression, sql=sql)
        self._changed()

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; its queues are given up at once."""
        self._subscriptions.table.pop(self._names.wrap(topic), None)
        self._changed()

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read these queues and no others, whatever others in the group read; takes effect at once.

        :raises ClientError: they are no queues, or the consumer subscribes: a consumer does one or the other.
        """
        if self._chosen is None and self._subscriptions.table:
            raise ClientError(f"the consumer {self.group} subscribes: one that is assigned its queues is another one")
        self._chosen = {self._names.wrap_queue(queue) for queue in several_queues(queues)}
        table = self._subscriptions.table
        for topic in {queue.topic for queue in self._chosen} - set(table):
            self._subscriptions.put(topic, "*", sql=False)
        for topic in set(table) - {queue.topic for queue in self._chosen}:
            del table[topic]
        self._changed()

    def _changed(self) -> None:
        if self._membership is not None:
            self._membership.changed()

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it is started and not shut down."""
        return self._membership is not None

    @starts
    async def start(self) -> None:
        """Join the group and begin to pull. Starting a started consumer does nothing.

        :raises ClientError: no name server is known, or the group has a consumer in this client already.
        :raises ResponseError: a broker does not take a SQL92 subscription.
        """
        if self._membership is not None:
            return
        settings = self._settings
        if not settings.allow_mixed_subscriptions:
            refuse_mixture(self._inner.heartbeat_data(), instances_of(settings.namesrv, self._world))
        membership = await Membership.join(self._inner, self._world, settings, trace=self._trace)
        instance, tasks = membership.instance, membership.tasks
        statistics = TopicStatistics()
        member = Member(
            instance, self.group, settings, membership.store, self._subscriptions.table, lambda topic: statistics, tasks
        )
        limits = Limits(
            settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue, -1, -1, settings.consume_max_span
        )
        most = settings.pull_threshold_for_all
        self._polled = polled = PollService(self._world.clock, most, self._given_up, self._hooks)

        def share(assignment: Assignment, beginning: Beginning) -> Share:
            shared = Rebalance(member, self._strategy, assignment, beginning, self._on_assignment)
            return Chosen(instance, assignment, beginning, lambda: self._chosen, shared)

        self._delivery = Delivery(member, limits, lambda locks: polled, share)
        self._delivery.start()
        self._membership = membership
        try:
            await membership.find_brokers()
            await self._subscriptions.check(instance)
            await membership.announce()
        except BaseException:
            await self.shutdown()
            raise
        if settings.auto_commit:
            tasks.every(settings.auto_commit_interval, self._auto_commit, "commit")
        tasks.every(settings.topic_metadata_check_interval, self._look_at_queues, "queues", first=0.0)

    @ends
    async def shutdown(self) -> None:
        """Pull no more, keep the offsets, leave the group; who waits for messages gets none.

        What was handed out last and not committed comes again.
        """
        membership, delivery = self._membership, self._delivery
        if membership is None or delivery is None:
            return
        if self._settings.auto_commit:
            self._note(None, consumed=False)
        self._membership = None
        try:
            await delivery.stop(0.0)
        finally:
            self._delivery = None
            await membership.leave()

    async def _forget(self) -> None:
        self._delivery = None
        await super()._forget()

    # -- messages -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: Duration | None = None, **unknown: Unpack[NoOthers]) -> list[MessageExt]:
        """Messages of one queue, ``pull_batch_size`` at most, once there are some; those of earlier polls are consumed.

        :param timeout: after which there are none; ``poll_timeout`` by default, 0 = only what is here.
        """
        if unknown:
            raise no_such(LitePullConsumer.poll, unknown)
        limit = self._settings.poll_timeout if timeout is None else seconds(timeout)
        return await self._messages().take(self._settings.pull_batch_size, None, limit)

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Messages one by one, until the shutdown. Each is consumed when the next one is asked for: what a body that
        raised or broke off had in hand is given to whoever asks next."""
        return Loop(self._messages())

    def _messages(self) -> PollService:
        self._client  # noqa: B018 - raises when not started
        assert self._polled is not None
        if self._chosen is None and not self._subscriptions.table and not self._told:
            self._told = True
            log.warning(
                "the consumer %s is asked for messages, and reads none: use subscribe() or assign()", self.group
            )
        return self._polled

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Pull nothing from these queues, and give out nothing of them, until :meth:`resume`."""
        self._assignment().pause(map(self._names.wrap_queue, several_queues(queues)))

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Go on with these queues."""
        self._assignment().resume(map(self._names.wrap_queue, several_queues(queues)))
        self._messages().wake()

    def _assignment(self) -> Assignment:
        self._client  # noqa: B018 - raises when not started
        assert self._delivery is not None
        return self._delivery.assignment

    # -- places -------------------------------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset of a queue that is ours. It is committed like what is consumed.

        :raises ClientError: the queue is not ours now, or has no such offset.
        """
        check_number(offset, "the offset to go on from")
        low, high = await self.min_offset(queue), await self.max_offset(queue)
        if not low <= offset <= high:
            raise ClientError(f"{queue} has offsets {low} to {high}, not {offset}").about(queue=queue)
        await self._seek(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of a queue that is ours. :raises ClientError: it is not."""
        await self._seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on in a queue that is ours. :raises ClientError: it is not."""
        await self._seek(queue, await self.max_offset(queue))

    async def _seek(self, queue: MessageQueue, offset: int) -> None:
        queue = self._names.wrap_queue(queue)
        assignment = self._assignment()
        async with assignment.changing:
            if not assignment.restart(queue, offset):
                raise ClientError(f"{queue} is not among the queues of the consumer {self.group} now").about(
                    queue=queue
                )
            self._messages().positions[queue] = offset

    async def commit(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Commit what was handed out of these queues (of all by default), the last of it included, and wait for it.

        :raises RMQError: it could not be kept.
        """
        store, noted = self._note(queues)
        if (error := await store.persist(noted, wait=True)) is not None:
            raise error

    def commit_async(self, queues: Collection[MessageQueue] | None = None) -> None:
        """The same without waiting; what could not be kept is tried again every
        ``persist_consumer_offset_interval``."""
        store, noted = self._note(queues)
        self._joined.tasks.spawn(store.persist(noted), "commit")

    def _note(
        self, queues: Collection[MessageQueue] | None, *, consumed: bool = True
    ) -> tuple[OffsetStore, list[MessageQueue]]:
        """Have the store know where these queues go on."""
        store, polled = self._joined.store, self._messages()
        wanted = None if queues is None else {self._names.wrap_queue(queue) for queue in several_queues(queues)}
        if consumed:
            polled.consumed(wanted)
        noted = [queue for queue in polled.positions if wanted is None or queue in wanted]
        for queue in noted:
            store.update(queue, polled.positions[queue], increase_only=False)
        return store, noted

    async def _auto_commit(self) -> None:
        store, noted = self._note(None, consumed=False)
        await store.persist(noted)

    def _given_up(self, pq: ProcessQueue, offset: int) -> None:
        if self._settings.auto_commit and self._membership is not None:
            self._membership.store.update(pq.queue, offset, increase_only=False)

    async def committed(self, queue: MessageQueue) -> int:
        """The offset that is committed of a queue; -1 = none."""
        store, queue = self._joined.store, self._names.wrap_queue(queue)
        known = store.known(queue)
        return known if known >= 0 else await store.read(queue)

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, to choose from for :meth:`assign`. :raises ClientError: it does not exist."""
        return await self.fetch_subscribe_message_queues(topic)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp: int | datetime) -> int:
        """The offset of the first message stored at a time (a datetime, or milliseconds since the epoch) or later."""
        return await self.search_offset(queue, timestamp)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return sorted(self._names.queues(self._delivery.assignment.queues)) if self._delivery is not None else []

    # -- what changes -------------------------------------------------------------------------------------------------

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: Callable[[str, list[MessageQueue]], object]
    ) -> None:
        """Have a function told when a topic has other queues than before; looked at every
        ``topic_metadata_check_interval``.

        :param listener: told the topic and all its queues; a plain function runs on a thread.
        """
        check_text(topic)
        if not callable(listener):
            raise WrongType(f"the listener is {shown(listener)}: give a function of a topic and its queues")
        self._watched[self._names.wrap(topic)] = (listener, None)
        if self._membership is not None and not self._membership.tasks.closed:
            self._membership.tasks.spawn(self._look_at_queues(), "queues")

    async def _look_at_queues(self) -> None:
        for topic, (listener, before) in list(self._watched.items()):
            try:
                now = set(await lookup.fetch_subscribe_message_queues(self._client, topic))
            except RMQError as error:
                log.debug("the queues of %s: %s", topic, error)
                continue
            current = self._watched.get(topic)
            if current is None or current[0] is not listener or now == before:
                continue
            self._watched[topic] = (listener, now)
            if before is not None:
                names = self._names
                self._joined.tell("listener of queue changes", listener, names.plain(topic), sorted(names.queues(now)))

    def _on_assignment(self, topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        if self._membership is not None:
            self._membership.assigned(topic, queues, mine)

    async def _rebalance(self) -> None:
        if self._delivery is not None:
            await self._delivery.rebalance()

    async def persist_offsets(self) -> None:
        """Keep what was committed; done every ``persist_consumer_offset_interval`` anyway."""
        if self._delivery is not None:
            await self._delivery.assignment.persist()
