"""What a pull has to pass, in Java's order, and what it is let see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.delivery.answers import filtering_is_off
from rmq.broker.delivery.filtering import EVERYTHING, Filter, RetryCondition, filter_of
from rmq.broker.lane.hot_frames import PullFields
from rmq.filter.sql import ExpressionError
from rmq.protocol import subscription
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import FAQ, ResponseError, RMQError
from rmq.protocol.names import BROKER_GROUPS, group_of_retry_topic, is_retry_topic

if TYPE_CHECKING:
    from rmq.broker.groups.clients import Consumers
    from rmq.broker.parts import Ground, Tables
    from rmq.broker.store.state import Queue
    from rmq.protocol.bodies.heartbeat import SubscriptionData
    from rmq.remoting.conn import Conn

__all__ = ["SUBSCRIPTION", "PullChecks"]

#: The bit of ``sysFlag`` that says that a pull brings its subscription along.
SUBSCRIPTION = 4


def _fault(data: SubscriptionData) -> str:
    """What is wrong with a subscription's expression, to be put behind a remark."""
    try:
        filter_of(data)
    except ExpressionError as error:
        return f" {error}"
    return ""


class PullChecks:
    """The checks of a broker's pulls."""

    def __init__(self, ground: Ground, tables: Tables, consumers: Consumers) -> None:
        self._settings = ground.settings
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = consumers
        self._filters = tables.filters
        self._store = ground.store

    def check(self, conn: Conn, fields: PullFields) -> tuple[Queue, Filter]:
        """The queue of a pull and what its subscription lets through.

        :raises ResponseError: it is refused.
        """
        settings = self._settings
        group = fields.consumer_group
        topic = fields.topic
        if not settings.broker_permission & 4:
            raise ResponseError(
                ResponseCode.NO_PERMISSION, f"the broker[{settings.broker_ip1}] pulling message is forbidden"
            )
        if group in BROKER_GROUPS:
            raise ResponseError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        group_config = self._groups.find(group)
        if group_config is None:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist, {FAQ}"
            )
        if not group_config.consume_enable:
            raise ResponseError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        config = self._topics.get(topic)
        if config is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")
        if not config.perm & 4:
            raise ResponseError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden")
        queue_id = fields.queue_id
        if not 0 <= queue_id < config.read_queue_nums:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{config.read_queue_nums}] consumer:[/{conn.peer}]",
            )
        if fields.max_msg_nums < 0:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"maxMsgNums[{fields.max_msg_nums}] is illegal: ask for at least one message"
            )
        if fields.sys_flag & SUBSCRIPTION:
            try:
                data = subscription.build(topic, fields.subscription, fields.expression_type)
            except RMQError:
                raise ResponseError(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
                ) from None
        else:
            members = self._consumers.group(group)
            if members is None:
                raise ResponseError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
            if members.message_model == "BROADCASTING" and not group_config.consume_broadcast_enable:
                raise ResponseError(
                    ResponseCode.NO_PERMISSION, f"the consumer group[{group}] can not consume by broadcast way"
                )
            if self._groups.forbidden and not self._groups.may_read(group, topic):
                raise ResponseError(
                    ResponseCode.NO_PERMISSION, f"the consumer group[{group}] is forbidden for topic[{topic}]"
                )
            found = members.subscription(topic)
            if found is None:
                raise ResponseError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
            if found.data.sub_version < fields.sub_version:
                raise ResponseError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
            data = found.data
        multi_dispatch = self._store.multi_dispatch
        if multi_dispatch is not None and multi_dispatch.refuses_queue(topic, queue_id):
            # The words of a Java broker whose maxLmqConsumeQueueNum is exceeded.
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "store getMessage return null")
        wants = EVERYTHING
        if not data.is_tag_type:
            wants = self._condition(fields, data)
        elif data.code_set:
            wants = filter_of(data)
        elif settings.filter_support_retry and is_retry_topic(topic):
            wants = Filter(sql=RetryCondition(self._filters, group_of_retry_topic(topic)))
        return self._store.queues.get_or_create(topic, queue_id), wants

    def _condition(self, fields: PullFields, data: SubscriptionData) -> Filter:
        """The SQL92 filter of a pull: the group's, or the one that the pull brings along.

        Of the latter, one that does not compile is refused (Java lets everything through).
        """
        inline = bool(fields.sys_flag & SUBSCRIPTION)
        held = None if inline else self._filters.get(data.topic, fields.consumer_group)
        if not inline:
            if held is None:
                raise ResponseError(
                    ResponseCode.FILTER_DATA_NOT_EXIST,
                    "The broker's consumer filter data is not exist!Your expression may be wrong!" + _fault(data),
                )
            if held.client_version < fields.sub_version:
                raise ResponseError(
                    ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest"
                )
        if not self._settings.enable_property_filter:
            raise filtering_is_off(data.expression_type)
        if held is not None:
            return Filter(sql=held.compiled, bits=held.bits)
        try:
            return filter_of(data)
        except ExpressionError as error:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            ) from None
