"""The pull consumer, old style (Java: DefaultMQPullConsumer): the application asks for each pull."""

from __future__ import annotations

from typing import ClassVar, Unpack

from rmq.client.checks import check_expression, check_number, check_queue, check_topic, seconds, typed
from rmq.client.consumer import rebalance, sendback
from rmq.client.consumer.consumer import Consumer
from rmq.client.consumer.inner import PullInner
from rmq.client.consumer.membership import Membership
from rmq.client.consumer.puller import Puller
from rmq.client.life import ends, starts
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.namespace import Namespace
from rmq.client.results import ConsumeResult, PullResult
from rmq.client.settings import Duration, PullConsumerOptions, PullConsumerSettings, lists_options
from rmq.client.trace import hooks_of
from rmq.protocol import subscription
from rmq.protocol.errors import ClientError
from rmq.runtime.aside import logger
from rmq.runtime.world import World

__all__ = ["PullConsumer"]

log = logger(__name__)


@lists_options(PullConsumerSettings)
@typed(but=("queue", "offset", "max_nums"))
class PullConsumer(Consumer):
    """Pulls when asked to; coroutines of one loop may share it.

    :param options: see :class:`~rmq.client.settings.PullConsumerOptions`.

    ::

        async with PullConsumer("reporting", namesrv="127.0.0.1:9876") as consumer:
            for queue in await consumer.fetch_subscribe_message_queues("TopicTest"):
                offset = max(0, await consumer.fetch_consume_offset(queue))
                result = await consumer.pull(queue, "*", offset, 32)
                ...
                consumer.update_consume_offset(queue, result.next_begin_offset)
    """

    _kind: ClassVar[type[PullConsumerSettings]] = PullConsumerSettings
    #: For functions that it calls.
    _threads = 1

    def __init__(self, group: str, *, world: World | None = None, **options: Unpack[PullConsumerOptions]) -> None:
        self._settings: PullConsumerSettings = self._kind.of(options)
        self._names = Namespace(self._settings.namespace)
        group = self._names.group(group, "DEFAULT_CONSUMER")
        self.group: str = group
        self._world: World = world or World.around()
        for topic in self._settings.register_topics:
            check_topic(topic)
        self._strategy = self._settings.strategy()
        self._trace, self._hooks = hooks_of(group, self._settings, self._world, quick=True)
        self._topics = {self._names.wrap(topic) for topic in self._settings.register_topics}
        self._inner = PullInner(self)
        self._balanced: dict[str, list[MessageQueue]] = {}
        self._puller: Puller | None = None
        self._options = options

    def _renew(self) -> PullConsumer:
        """The same consumer, not started: for a forked child."""
        return PullConsumer(self.group, **self._options)

    # -- life ---------------------------------------------------------------------------------------------------------

    @starts
    async def start(self) -> None:
        """Join the group. Starting a started consumer does nothing.

        :raises ClientError: no name server is known, or the group has a consumer in this client already.
        """
        if self._membership is not None:
            return
        membership = await Membership.join(self._inner, self._world, self._settings, self._threads, self._trace)
        self._puller = Puller(membership.instance, self.group, self._settings.hooks)
        self._membership = membership
        try:
            for topic in self._inner.topics():
                await membership.instance.refresh_route(topic)
            await membership.announce()
        except BaseException:
            await self.shutdown()
            raise

    @ends
    async def shutdown(self) -> None:
        """Keep the offsets, leave the group, close the connections."""
        membership = self._membership
        if membership is None:
            return
        self._membership = None
        try:
            await membership.store.persist(list(membership.store.table()), wait=True)
        finally:
            self._puller = None
            await membership.leave()

    async def _forget(self) -> None:
        self._puller = None
        await super()._forget()

    # -- pulling ------------------------------------------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        max_nums: int = 32,
        *,
        sql: bool = False,
        timeout: Duration | None = None,
    ) -> PullResult:
        """Ask a queue for messages from ``offset`` on; answered at once.

        :param expression: tags, ``TagA || TagB``, or ``*``; with ``sql=True`` a SQL92 condition.
        :param max_nums: messages at most; brokers give 32 at most by default.
        :param timeout: ``consumer_pull_timeout`` by default.
        :raises ClientError: an argument that cannot be used. :raises ResponseError: the broker refused.
        """
        limit = self._settings.consumer_pull_timeout if timeout is None else seconds(timeout)
        return await self._pull(queue, expression, offset, max_nums, sql, limit, 0.0)

    async def pull_block_if_not_found(
        self, queue: MessageQueue, expression: str, offset: int, max_nums: int = 32, *, sql: bool = False
    ) -> PullResult:
        """The same, but waits up to ``broker_suspend_max_time`` for a message to come."""
        settings = self._settings
        return await self._pull(
            queue,
            expression,
            offset,
            max_nums,
            sql,
            settings.consumer_timeout_when_suspend,
            settings.broker_suspend_max_time,
        )

    async def _pull(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        max_nums: int,
        sql: bool,
        timeout: float,
        suspend: float,
    ) -> PullResult:
        self._client  # noqa: B018 - raises when not started
        assert self._puller is not None
        check_queue(queue)
        queue = self._names.wrap_queue(queue)
        check_number(offset, "the offset to pull from")
        check_number(max_nums, "max_nums")
        check_expression(expression)
        if offset < 0:
            raise ClientError(f"the offset to pull from is {offset}: it cannot be negative")
        if max_nums <= 0:
            raise ClientError(f"max_nums is {max_nums}: ask for one message at least")
        kind = subscription.SQL92 if sql else subscription.TAG
        data = subscription.build(queue.topic, expression, kind)
        if queue.topic not in self._topics:
            await self._join(queue.topic)
        result = await self._puller.pull(
            queue, data, offset, max_nums=max_nums, timeout=timeout, suspend=suspend, post_subscription=True
        )
        if result.messages and self._hooks.consumes:  # what its caller makes of them nobody knows
            told = self._hooks.begin_consume(result.messages, self._names.queue(queue))
            self._hooks.end_consume(told, ConsumeResult.SUCCESS, (), None)
        return result

    async def _join(self, topic: str) -> None:
        """A topic pulled for the first time becomes part of the group's subscription."""
        check_topic(topic)
        instance = self._client
        if topic not in instance.routes.own:
            await instance.refresh_route(topic)
        self._topics.add(topic)
        await instance.beats.beat()

    # -- offsets ------------------------------------------------------------------------------------------------------

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note where to go on; kept every ``persist_consumer_offset_interval`` and at :meth:`shutdown`."""
        store = self._joined.store
        check_queue(queue)
        check_number(offset, "the offset to go on from")
        store.update(self._names.wrap_queue(queue), offset, increase_only=False)

    async def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int:
        """Where the group goes on in a queue; -1 = it has no offset yet.

        :param from_store: ask the broker (or the file) even when an offset is noted here.
        """
        instance, store = self._joined.instance, self._joined.store
        check_queue(queue)
        queue = self._names.wrap_queue(queue)
        if not from_store and (known := store.known(queue)) >= 0:
            return known
        if queue.topic not in instance.routes.own:
            await instance.refresh_route(queue.topic)
        return await store.read(queue)

    async def persist_offsets(self) -> None:
        """Keep the noted offsets now."""
        if self._membership is not None:
            store = self._membership.store
            await store.persist(list(store.table()))

    async def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """This member's share of a topic's queues (broadcasting: all of them)."""
        topic = self._names.wrap(topic)
        if topic not in self._topics:
            await self._join(topic)
        await self._balance(topic)
        return self._names.queues(self._balanced.get(topic, ()))

    async def send_message_back(
        self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None
    ) -> None:
        """Have a message delivered to this group again, later; see ``PushConsumer.send_message_back``."""
        most = 16 if self._settings.max_reconsume_times < 0 else self._settings.max_reconsume_times
        await sendback.send_message_back(self._client, self.group, message, delay_level, most, broker_name)

    async def _rebalance(self) -> None:
        if self._membership is None:
            return
        for topic in sorted(self._topics):
            before = self._balanced.get(topic)
            await self._balance(topic)
            now = self._balanced.get(topic, [])
            if now != before and self._membership is not None:
                every = self._membership.instance.routes.subscribe_queues(topic) or []
                self._membership.assigned(topic, every, now)

    async def _balance(self, topic: str) -> None:
        instance = self._client
        queues = instance.routes.subscribe_queues(topic)
        if queues is None:
            await instance.refresh_route(topic)
            queues = instance.routes.subscribe_queues(topic) or []
        if self._settings.broadcasting:
            self._balanced[topic] = queues
            return
        ids = await rebalance.consumer_ids(instance, self.group, topic)
        share = await rebalance.our_share(self._strategy, instance, self.group, queues, ids)
        self._balanced[topic] = sorted(share)
