"""A consumer that has started, as the parts of its delivery know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from rmq.client.consumer.offsets import OffsetStore
from rmq.client.consumer.statistics import TopicStatistics
from rmq.client.hooks import Hook
from rmq.client.instance import ClientInstance
from rmq.client.settings import ConsumeFromWhere
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.runtime.tasks import TaskOwner

__all__ = ["DeliverySettings", "Member"]


class DeliverySettings(Protocol):
    """What delivery asks of a consumer's settings, of whichever kind it is."""

    @property
    def broadcasting(self) -> bool: ...
    @property
    def consume_from_where(self) -> ConsumeFromWhere: ...
    @property
    def consume_timestamp(self) -> datetime | str | None: ...
    @property
    def pull_batch_size(self) -> int: ...
    @property
    def pull_batch_size_in_bytes(self) -> int: ...
    @property
    def pull_interval(self) -> float: ...
    @property
    def pull_time_delay_when_exception(self) -> float: ...
    @property
    def post_subscription_when_pull(self) -> bool: ...
    @property
    def broker_suspend_max_time(self) -> float: ...
    @property
    def consumer_timeout_when_suspend(self) -> float: ...
    @property
    def hooks(self) -> Sequence[Hook]: ...


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group."""

    instance: ClientInstance
    group: str
    settings: DeliverySettings
    #: The group's offsets.
    store: OffsetStore
    #: By topic; changes while it runs.
    subscriptions: Mapping[str, SubscriptionData]
    #: Counts of a topic.
    statistics: Callable[[str], TopicStatistics]
    #: Owns what it runs.
    tasks: TaskOwner
