"""The inner side of consumers (Java: MQConsumerInner): what their client and brokers ask of them (protocol.md 4.13).

It looks into the consumer it belongs to, as one unit with it: they share underscore names. Applications see none of it.
"""

from __future__ import annotations

import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rmq.client.consumer.listeners import ConsumeContext
from rmq.client.consumer.pop.queue import PopQueue
from rmq.client.consumer.process_queue import ProcessQueue
from rmq.client.consumer.statistics import TopicStatistics
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.results import ConsumeResult
from rmq.client.settings import ConsumerSettings
from rmq.protocol import subscription
from rmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq.protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq.protocol.codes import version_name
from rmq.protocol.command import VERSION

if TYPE_CHECKING:
    from rmq.client.consumer.consumer import Consumer
    from rmq.client.consumer.lite import LitePullConsumer
    from rmq.client.consumer.pull import PullConsumer
    from rmq.client.consumer.push import PushConsumer

__all__ = ["Inner", "LiteInner", "PullInner", "PushInner"]

C = TypeVar("C", bound="Consumer")
#: Consumers that messages are delivered to.
D = TypeVar("D", bound="PushConsumer | LitePullConsumer")

_RESULTS = {
    ConsumeResult.SUCCESS: "CR_SUCCESS",
    ConsumeResult.COMMIT: "CR_COMMIT",
    ConsumeResult.ROLLBACK: "CR_ROLLBACK",
    ConsumeResult.RECONSUME_LATER: "CR_LATER",
    ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT: "CR_LATER",
}


class Inner(ABC, Generic[C]):
    """What is asked of consumers of all kinds; :class:`rmq.client.instance.ConsumerMember` says by whom."""

    def __init__(self, consumer: C) -> None:
        self._of = consumer

    @property
    def group(self) -> str:
        return self._of.group

    @property
    def started_ms(self) -> int:
        """When it was started, ms; 0: it is not."""
        membership = self._of._membership
        return 0 if membership is None else membership.started_ms

    # -- its client ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def heartbeat_data(self) -> ConsumerData:
        """How brokers get to know it."""

    @abstractmethod
    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs."""

    async def rebalance(self) -> None:
        """Take and give up queues as things stand now."""
        await self._of._rebalance()

    async def persist_offsets(self) -> None:
        await self._of.persist_offsets()

    # -- brokers ------------------------------------------------------------------------------------------------------

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets of a topic's queues as they would be kept now."""
        membership = self._of._membership
        table = {} if membership is None else membership.store.table()
        return {queue: offset for queue, offset in table.items() if queue.topic == topic}

    @abstractmethod
    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go to other offsets in the queues that are ours, as an operator asked."""

    @abstractmethod
    def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What mqadmin consumerStatus shows of this member.

        :param stacks: with the stack of every thread, which Java calls jstack.
        """

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Call the listener for one message and say how it ended; no offset moves."""
        return ConsumeMessageDirectlyResult(
            consume_result="CR_THROW_EXCEPTION", remark=f"group {self.group} pulls: it has no listener"
        )

    # -- for the kinds ------------------------------------------------------------------------------------------------

    def _data(
        self, settings: ConsumerSettings, kind: str, from_where: str, subscriptions: list[SubscriptionData]
    ) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=kind,
            message_model=settings.message_model.value,
            consume_from_where=from_where,
            subscription_data_set=subscriptions,
            unit_mode=settings.unit_mode,
        )

    def _info(
        self, subscriptions: list[SubscriptionData], more: Mapping[str, str], *, stacks: bool, **tables: Any
    ) -> ConsumerRunningInfo:
        """:param more: properties besides those of every kind, or instead of them."""
        servers = self._of._client.name_servers.addresses
        properties = {
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in servers),
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
            "PROP_CLIENT_VERSION": version_name(VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self.started_ms),
        }
        return ConsumerRunningInfo(
            jstack=_stack_text() if stacks else None,
            properties={**properties, **more},
            subscription_set=subscriptions,
            **tables,
        )


class _Delivered(Inner[D]):
    """What is asked of consumers that messages are delivered to."""

    def topics(self) -> list[str]:
        return list(self._of._subscriptions.table)

    def process_queues(self) -> dict[MessageQueue, ProcessQueue]:
        """What is held of each queue that is ours."""
        delivery = self._of._delivery
        return dict(delivery.assignment.queues) if delivery is not None else {}

    def noted(self, queue: MessageQueue) -> int:
        """The offset noted for a queue; -1 = none."""
        membership = self._of._membership
        return -1 if membership is None else membership.store.known(queue)

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        delivery = self._of._delivery
        if delivery is not None:
            await delivery.assignment.seek(offsets)

    def _table(self) -> dict[MessageQueue, Any]:
        return {queue: pq.info(self.noted(queue)) for queue, pq in self.process_queues().items()}


class PushInner(_Delivered["PushConsumer"]):
    """The inner side of a push consumer, which also counts."""

    def __init__(self, consumer: PushConsumer) -> None:
        super().__init__(consumer)
        self._statistics: dict[str, TopicStatistics] = {}

    def heartbeat_data(self) -> ConsumerData:
        settings, subscriptions = self._of._settings, list(self._of._subscriptions.table.values())
        return self._data(settings, "CONSUME_PASSIVELY", settings.consume_from_where.value, subscriptions)

    def pop_queues(self) -> dict[MessageQueue, PopQueue]:
        """What is open of each queue that we pop from."""
        delivery = self._of._delivery
        pops = delivery.pops if delivery is not None else None
        return dict(pops.queues) if pops is not None else {}

    def statistics(self, topic: str) -> TopicStatistics:
        """What is counted of a topic."""
        found = self._statistics.get(topic)
        if found is None:
            found = self._statistics[topic] = TopicStatistics()
        return found

    def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        settings, now = self._of._settings, self._of._world.clock.monotonic()
        properties = {
            "PROP_THREADPOOL_CORE_SIZE": str(settings.consume_thread_max),
            "PROP_CONSUMEORDERLY": "true" if settings.orderly else "false",
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "consumerGroup": self.group,
            "instanceName": settings.instance_name,
            "messageModel": settings.message_model.value,
            "consumeFromWhere": settings.consume_from_where.value,
            "pullBatchSize": str(settings.pull_batch_size),
            "consumeMessageBatchMaxSize": str(settings.consume_message_batch_max_size),
            "maxReconsumeTimes": str(settings.max_reconsume_times),
            "consumeTimeout": str(int(settings.consume_timeout // 60)),
        }
        return self._info(
            [data for _, data in sorted(self._of._subscriptions.table.items())],
            properties,
            stacks=stacks,
            mq_table=self._table(),
            mq_pop_table={queue: pq.info() for queue, pq in self.pop_queues().items()} or None,
            status_table={topic: self.statistics(topic).status(now) for topic in sorted(self.topics())},
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        consumer = self._of
        clock = consumer._world.clock
        began = clock.monotonic()
        message.topic = message.properties.get("RETRY_TOPIC") or message.topic
        consumer._client.namespace.message(message)
        context = ConsumeContext(message.message_queue)
        listener = consumer._listener_of(message.topic)
        result = ConsumeMessageDirectlyResult(order=consumer._settings.orderly)
        if listener is None:
            result.consume_result = "CR_THROW_EXCEPTION"
            result.remark = f"no listener for topic {message.topic}"
            return result
        call = listener.call_async if listener.is_coroutine else listener.call_on
        outcome = await call(consumer._joined.pool, [message], context)
        if outcome.error is not None:
            result.consume_result = "CR_THROW_EXCEPTION"
            result.remark = "".join(traceback.format_exception(outcome.error))
        else:
            result.consume_result = _RESULTS[outcome.result]
        result.auto_commit = context.auto_commit
        result.spent_time_mills = int((clock.monotonic() - began) * 1000)
        return result


class LiteInner(_Delivered["LitePullConsumer"]):
    """The inner side of a lite pull consumer."""

    def heartbeat_data(self) -> ConsumerData:
        settings = self._of._settings
        return self._data(settings, "CONSUME_ACTIVELY", settings.consume_from_where.value, self._subscribed())

    def _subscribed(self) -> list[SubscriptionData]:
        """As with Java's: queues that were assigned are in no subscription, their pulls say what they want."""
        return [] if self._of._chosen is not None else list(self._of._subscriptions.table.values())

    def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        return self._info(self._subscribed(), {}, stacks=stacks, mq_table=self._table())


class PullInner(Inner["PullConsumer"]):
    """The inner side of a pull consumer."""

    _of: PullConsumer

    def heartbeat_data(self) -> ConsumerData:
        return self._data(self._of._settings, "CONSUME_ACTIVELY", "CONSUME_FROM_LAST_OFFSET", self._subscribed())

    def _subscribed(self) -> list[SubscriptionData]:
        return [subscription.build(topic, "*", sub_version=self.started_ms) for topic in self.topics()]

    def topics(self) -> list[str]:
        return sorted(self._of._topics)

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Note them: the application sees them with fetch_consume_offset."""
        membership = self._of._membership
        if membership is not None:
            for queue, offset in offsets.items():
                membership.store.update(queue, offset, increase_only=False)

    def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        return self._info(self._subscribed(), {}, stacks=stacks)


def _stack_text() -> str:
    """Every thread's stack as text."""
    parts = []
    for number, frame in sys._current_frames().items():
        parts.append(f"THREAD {number}\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)
