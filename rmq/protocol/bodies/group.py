"""Subscription groups: 200, 201, 225 and subscriptionGroup.json (protocol.md 4.7)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.keywords import keywords

__all__ = ["SubscriptionGroupConfig", "SubscriptionGroupList", "SubscriptionGroupTable"]


@keywords
@body
class SubscriptionGroupConfig(Body):
    """How a broker treats a consumer group; the members after ``which_broker_when_consume_slowly`` are 5.x's."""

    group_name: str = member("groupName", default="")
    consume_enable: bool = member("consumeEnable", default=True)
    consume_from_min_enable: bool = member("consumeFromMinEnable", default=True)
    consume_broadcast_enable: bool = member("consumeBroadcastEnable", default=True)
    retry_queue_nums: int = member("retryQueueNums", default=1)
    retry_max_times: int = member("retryMaxTimes", default=16)
    broker_id: int = member("brokerId", default=0)
    notify_consumer_ids_changed_enable: bool = member("notifyConsumerIdsChangedEnable", default=True)
    which_broker_when_consume_slowly: int = member("whichBrokerWhenConsumeSlowly", default=1)
    attributes: dict[str, str] | None = member("attributes", default=None)
    consume_message_orderly: bool | None = member("consumeMessageOrderly", default=None)
    consume_timeout_minute: int | None = member("consumeTimeoutMinute", default=None)
    group_retry_policy: dict[str, object] | None = member("groupRetryPolicy", default=None)
    group_sys_flag: int | None = member("groupSysFlag", default=None)
    subscription_data_set: list[object] | None = member("subscriptionDataSet", default=None)


@body
class SubscriptionGroupTable(Body):
    """Every group of a broker (Java: SubscriptionGroupWrapper)."""

    data_version: DataVersion | None = member("dataVersion", default=None)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = member("subscriptionGroupTable", factory=dict)
    forbidden_table: dict[str, dict[str, int]] | None = member("forbiddenTable", default=None)


@body
class SubscriptionGroupList(Body):
    """225 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (5.x)."""

    group_config_list: list[SubscriptionGroupConfig] = member("groupConfigList", factory=list)
