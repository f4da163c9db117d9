"""A push consumer that has started, as its parts know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmq.client.consumer.offsets import OffsetStore
from rmq.client.consumer.statistics import TopicStatistics
from rmq.client.instance import ClientInstance
from rmq.client.settings import PushConsumerSettings
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.runtime.tasks import TaskOwner

__all__ = ["Member"]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group."""

    instance: ClientInstance
    group: str
    settings: PushConsumerSettings
    #: The group's offsets.
    store: OffsetStore
    #: By topic; changes while it runs.
    subscriptions: Mapping[str, SubscriptionData]
    #: Counts of a topic.
    statistics: Callable[[str], TopicStatistics]
    #: Owns what it runs.
    tasks: TaskOwner
