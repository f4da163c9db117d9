"""The checks of POP requests, in Java's order and words (protocol.md 2.13)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

from rmq.broker.delivery.answers import filtering_is_off
from rmq.broker.delivery.filtering import EVERYTHING, Filter, filter_of
from rmq.broker.groups.expressions import Expressions
from rmq.broker.reserved import check_group, check_private
from rmq.filter.sql import ExpressionError
from rmq.protocol import subscription
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import FAQ, ResponseError, RMQError
from rmq.protocol.names import MAX_TOPIC, RETRY_PREFIX, group_fault
from rmq.protocol.pop import pop_retry_topic

if TYPE_CHECKING:
    from rmq.broker.groups.configs import GroupTable
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.state import Queue
    from rmq.broker.store.store import Store
    from rmq.broker.topics.table import TopicTable
    from rmq.protocol.bodies.topic import TopicConfig
    from rmq.protocol.command import Command
    from rmq.protocol.header import Header
    from rmq.remoting.conn import Conn

    Handling = Callable[[Any, Conn, Command, Any], Coroutine[Any, Any, Command | None]]

__all__ = ["POP", "Checks", "refusing_with"]

#: What kind of request it is, for remarks.
POP = "pop message"
_MOST_MESSAGES = 32
#: Characters of an expression whose filter is kept: of a longer one it takes memory, and strangers may send many.
_LONGEST_KEPT = 512
#: Longest name of a group that is made by its first request.
_MAX_NEW_GROUP = 255


def refusing_with(header: type[Header]) -> Callable[[Handling], Handling]:
    """Have a handler's refusals carry its response header without values, as those of Java do."""

    def mark(handler: Handling) -> Handling:
        @wraps(handler)
        async def handle(service: Any, conn: Conn, request: Command, fields: Any) -> Command | None:
            try:
                return await handler(service, conn, request, fields)
            except ResponseError as refusal:
                if refusal.code == ResponseCode.SYSTEM_ERROR:
                    raise
                return request.reply(refusal.code, refusal.remark, header=header())

        return handle

    return mark


class Checks:
    """Whether a request may be served."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        store: Store,
        expressions: Expressions,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._store = store
        self._expressions = expressions

    def readable(self, conn: Conn, what: str, group: str, topic: str, queue_id: int, count: int = 1) -> TopicConfig:
        """A group wants to read from a topic.

        :param what: the kind of request, for the remarks.
        :param queue_id: -1 = any.
        :raises ResponseError: 1, 16, 17, 26 or 29.
        """
        settings = self._settings
        if not settings.broker_permission & 4:
            raise ResponseError(ResponseCode.NO_PERMISSION, f"the broker[{settings.broker_ip1}] {what} is forbidden")
        if count < 0:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"maxMsgNums is {count}: a number of messages is expected")
        if count > _MOST_MESSAGES and what == POP:
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{settings.broker_ip1}] pop message's num is greater than {_MOST_MESSAGES}",
            )
        check_group(group)
        check_private(topic)
        config = self._topics.get(topic)
        if config is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")
        if not config.perm & 4:
            raise ResponseError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] {what} is forbidden")
        if queue_id >= config.read_queue_nums:
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{config.read_queue_nums}] consumer:[/{conn.peer}]",
            )
        # A pull makes a group of any name, as with Java; one that no retry topic can be named after cannot pop.
        found = None if group and group_fault(group, _MAX_NEW_GROUP) else self._groups.find(group)
        if found is None:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist, {FAQ}"
            )
        if not found.consume_enable:
            raise ResponseError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        if not topic.startswith(RETRY_PREFIX) and len(pop_retry_topic(group, topic).encode()) > MAX_TOPIC:
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"group {group} cannot pop from topic {topic}: the name of their retry topic would be longer than "
                f"{MAX_TOPIC} bytes; use shorter names, or pull",
            )
        return config

    async def wanted(self, topic: str, kind: str | None, expression: str | None) -> Filter:
        """What a request lets through.

        :raises ResponseError: 1 when SQL92 is off here, 23 when it does not compile.
        """
        if not expression or expression == subscription.SUB_ALL:
            return EVERYTHING
        if kind and kind != subscription.TAG and not self._settings.enable_property_filter:
            raise filtering_is_off(kind)
        if kind and kind not in (subscription.TAG, subscription.SQL92):
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"unknown expression type {kind}: TAG and SQL92 are known"
            )
        try:
            if kind == subscription.SQL92:
                data = subscription.build(topic, expression, kind)
                await self._expressions.compile(data.sub_string)
                return filter_of(data)
            return (_filter if len(expression) <= _LONGEST_KEPT else _made)(topic, expression)
        except (ExpressionError, RMQError) as error:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            ) from None

    def queue_of(self, conn: Conn, topic: str, queue_id: int, offset: int) -> Queue:
        """The queue a handle speaks of.

        :raises ResponseError: 17, 13 or 208.
        """
        config = self._topics.get(topic)
        if config is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")
        if not 0 <= queue_id < config.read_queue_nums:
            raise ResponseError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{config.read_queue_nums}] consumer:[/{conn.peer}]",
            )
        queue = self._store.queues.get_or_create(topic, queue_id)
        if not queue.min <= offset < queue.visible:
            raise ResponseError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{queue.min}~{queue.visible}",
            )
        return queue


def _made(topic: str, expression: str) -> Filter:
    return filter_of(subscription.build(topic, expression))


_filter = lru_cache(maxsize=1000)(_made)
