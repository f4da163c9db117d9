"""How messages come to a push consumer's listeners: its queues (``assignment``), their pulls (``fetch``), and what
calls listeners (``service``); which queues it has, ``rebalance`` decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmq.client.allocate import AllocateMessageQueueStrategy
from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.beginning import Beginning
from rmq.client.consumer.fetch import Fetch
from rmq.client.consumer.kept_locks import KeptLocks
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.consumer.rebalance import Rebalance
from rmq.client.consumer.service import Service
from rmq.client.consumer.statistics import TopicStatistics
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.client.settings import PushConsumerSettings
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.runtime.tasks import TaskOwner

__all__ = ["Delivery"]


class Delivery:
    """The parts of one push consumer, wired.

    :param make_service: makes the service, given the locks it works under (None where it needs none).
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
        make_service: Callable[[KeptLocks | None], Service],
        on_changed: Callable[[str, list[MessageQueue], list[MessageQueue]], object],
    ) -> None:
        self.locks: KeptLocks | None = None
        if settings.orderly and not settings.broadcasting:
            self.locks = KeptLocks(instance, group, tasks, lambda topics: self._rebalance.topics(topics))
        self.service = make_service(self.locks)
        self.fetch = Fetch(
            instance=instance,
            group=group,
            settings=settings,
            store=store,
            subscriptions=subscriptions,
            statistics=statistics,
            tasks=tasks,
            submit=self.service.submit,
            locks=self.locks is not None,
        )
        beginning = Beginning(instance, store, settings)
        self.assignment = Assignment(
            instance=instance,
            group=group,
            store=store,
            tasks=tasks,
            fetch=self.fetch,
            service=self.service,
            locks=self.locks,
            beginning=beginning.offset,
            shared=not settings.broadcasting,
        )
        self._rebalance = Rebalance(
            instance=instance,
            group=group,
            broadcasting=settings.broadcasting,
            strategy=strategy,
            subscriptions=subscriptions,
            assignment=self.assignment,
            beginning=beginning,
            on_changed=on_changed,
        )

    def start(self) -> None:
        if self.locks is not None:
            self.locks.start()

    async def rebalance(self) -> None:
        await self._rebalance.run()

    async def stop(self, limit: float) -> int:
        """Pull and call nothing more, wait for the calls under way, keep every offset, give back every lock.

        :returns: how many calls still run after ``limit`` seconds: their messages come again.
        """
        self.assignment.stop()
        left = await self.service.drain(limit)
        await self.assignment.end()
        return left
