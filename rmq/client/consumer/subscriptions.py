"""What a consumer subscribes: expressions by topic, their versions, and whether brokers and fellow members agree."""

from __future__ import annotations

from collections.abc import Iterable

from rmq.client.checks import check_expression, check_topic
from rmq.client.instance import ClientInstance
from rmq.protocol import subscription
from rmq.protocol.bodies.heartbeat import CheckClientRequestBody, ConsumerData, SubscriptionData
from rmq.protocol.codes import RequestCode
from rmq.protocol.errors import ClientError
from rmq.protocol.names import retry_topic
from rmq.protocol.pop import pop_retry_topic, pop_retry_topic_v2, topic_of_pop_retry
from rmq.runtime.world import Clock

__all__ = ["Subscriptions", "refuse_mixture"]

_SQL_MARKS = ("=", "<", ">", " AND ", " BETWEEN ", " IN ")


class Subscriptions:
    """The subscriptions of one member of a group."""

    def __init__(self, clock: Clock, group: str) -> None:
        self._clock = clock
        self._group = group
        self.table: dict[str, SubscriptionData] = {}

    def put(self, topic: str, expression: str, *, sql: bool) -> None:
        """:raises ClientError: the expression cannot be used."""
        check_topic(topic)
        check_expression(expression)
        if expression and not sql and any(mark in expression.upper() for mark in _SQL_MARKS):
            raise ClientError(
                f"the expression {expression!r} looks like SQL: say sql=True, or give tags as 'TagA || TagB'"
            )
        kind = subscription.SQL92 if sql else subscription.TAG
        before = self.table.get(topic)
        # Brokers keep the version they have when a lower one comes: the clock may have gone back since.
        version = max(self._clock.now_ms(), before.sub_version + 1 if before is not None else 0)
        self.table[topic] = subscription.build(topic, expression, kind, sub_version=version)

    def put_retry(self) -> None:
        """Subscribe what the group is given again."""
        retry = retry_topic(self._group)
        self.table.setdefault(retry, subscription.build(retry, "*", sub_version=self._clock.now_ms()))

    def renew(self, topic: str) -> None:
        """A higher version, so that brokers take what the next heartbeat says."""
        data = self.table.get(topic)
        if data is not None:
            data.sub_version = max(data.sub_version + 1, self._clock.now_ms())

    def chosen(self) -> list[str]:
        """The topics that the application chose."""
        return [topic for topic in self.table if topic != retry_topic(self._group) and not _popped(topic, self._group)]

    async def pop_retries(self, instance: ClientInstance, topic: str, *, wanted: bool) -> None:
        """Subscribe what pops of a topic that failed have left, where a broker has it; or no more."""
        for name in (pop_retry_topic(self._group, topic), pop_retry_topic_v2(self._group, topic)):
            if not wanted:
                self.table.pop(name, None)
            elif name not in self.table and await instance.refresh_route(name):
                self.table[name] = subscription.build(name, "*", sub_version=self._clock.now_ms())

    async def check(self, instance: ClientInstance) -> None:
        """Have a broker of each SQL92 subscription's topic check it (46).

        :raises ResponseError: it does not take one.
        """
        for topic, data in self.table.items():
            route = instance.routes.own.get(topic)
            if data.is_tag_type or route is None:
                continue
            for broker in route.broker_datas:
                if broker.broker_addrs:
                    body = CheckClientRequestBody(
                        client_id=instance.client_id, group=self._group, subscription_data=data
                    )
                    address = broker.broker_addrs[min(broker.broker_addrs)]
                    await instance.call(address, RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())
                    break


def refuse_mixture(member: ConsumerData, instances: Iterable[ClientInstance]) -> None:
    """Members of one group must subscribe the same: a broker keeps what the last heartbeat said (case B032).

    :raises ClientError: another member in this process subscribes something else.
    """
    mine = _wanted(member)
    for instance in instances:
        other = instance.consumers.get(member.group_name)
        if other is not None and (theirs := _wanted(other.heartbeat_data())) != mine:
            raise ClientError(
                f"group {member.group_name}: another member in this process subscribes {theirs}, this one {mine}: "
                "every member must subscribe the same (allow_mixed_subscriptions=True if it is meant)"
            )


def _wanted(data: ConsumerData) -> str:
    return ", ".join(
        sorted(
            f"{one.topic}:{one.sub_string}"
            for one in data.subscription_data_set
            if not _popped(one.topic or "", data.group_name or "")  # as a broker's mode has it
        )
    )


def _popped(topic: str, group: str) -> bool:
    """What pops of the group left: subscribed for it, not by it."""
    return topic_of_pop_retry(group, topic) is not None
