"""Statistics: 202, 208, 303, 315, 317, 321 (protocol.md 4.9)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rmq.protocol.bodies.body import Body, body, member
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.queue import MessageQueue

__all__ = [
    "BrokerStatsData",
    "BrokerStatsItem",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "OffsetWrapper",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueueTimeSpan",
    "TopicOffset",
    "TopicStatsTable",
]


@body
class TopicOffset(Body):
    """A queue's range; the timestamp is the last message's store time in ms, 0 without one."""

    last_update_timestamp: int = member("lastUpdateTimestamp", default=0)
    max_offset: int = member("maxOffset", default=0)
    min_offset: int = member("minOffset", default=0)


@body
class TopicStatsTable(Body):
    """202 GET_TOPIC_STATS_INFO; ``topic_put_tps`` is 5.x's."""

    offset_table: dict[MessageQueue, TopicOffset] = member("offsetTable", factory=dict)
    topic_put_tps: float | None = member("topicPutTps", default=None)


@body
class OffsetWrapper(Body):
    """How far a group is on a queue; ``pull_offset`` is 5.x's."""

    broker_offset: int = member("brokerOffset", default=0)
    consumer_offset: int = member("consumerOffset", default=0)
    last_timestamp: int = member("lastTimestamp", default=0)
    pull_offset: int | None = member("pullOffset", default=None)


@body
class ConsumeStats(Body):
    """208 GET_CONSUME_STATS."""

    consume_tps: float = member("consumeTps", default=0.0)
    offset_table: dict[MessageQueue, OffsetWrapper] = member("offsetTable", factory=dict)

    @property
    def total_diff(self) -> int:
        """Messages stored and not yet consumed, over all queues."""
        return sum(one.broker_offset - one.consumer_offset for one in self.offset_table.values())


@body
class ConsumeStatsList(Body):
    """317 GET_BROKER_CONSUME_STATS: each item maps one group to its figures; ``total_inflight_diff`` is 5.x's."""

    broker_addr: str | None = member("brokerAddr", default=None)
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = member("consumeStatsList", factory=list)
    total_diff: int = member("totalDiff", default=0)
    total_inflight_diff: int | None = member("totalInflightDiff", default=None)


@body
class BrokerStatsItem(Body):
    avgpt: float = member("avgpt", default=0.0)
    sum: int = member("sum", default=0)
    tps: float = member("tps", default=0.0)


@body
class BrokerStatsData(Body):
    """315 VIEW_BROKER_STATS_DATA."""

    stats_day: BrokerStatsItem = member("statsDay", factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = member("statsHour", factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = member("statsMinute", factory=BrokerStatsItem)


def _stamp(ms: int) -> str:
    """Java's ``yyyy-MM-dd#HH:mm:ss:SSS`` in local time."""
    return f"{datetime.fromtimestamp(ms // 1000):%Y-%m-%d#%H:%M:%S}:{ms % 1000:03d}"


@body
class QueueTimeSpan(Body):
    """Store times on a queue in ms: oldest, newest, at the group's offset; and how late the group is."""

    message_queue: MessageQueue | None = member("messageQueue", default=None)
    min_time_stamp: int = member("minTimeStamp", default=0)
    max_time_stamp: int = member("maxTimeStamp", default=0)
    consume_time_stamp: int = member("consumeTimeStamp", default=0)
    delay_time: int = member("delayTime", default=0)

    def to_object(self) -> dict[str, Any]:
        """With the members that Java derives: each stamp as a text."""
        members = {name: getattr(self, attribute) for attribute, name in self._written}
        queue = members.pop("messageQueue")
        if queue is not None:
            members["messageQueue"] = {
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "topic": queue.topic,
            }
        for name in ("consumeTimeStamp", "maxTimeStamp", "minTimeStamp"):
            members[f"{name}Str"] = _stamp(members[name])
        return dict(sorted(members.items()))


@body
class QueryConsumeTimeSpanBody(Body):
    """303 QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = member("consumeTimeSpanSet", factory=list)


@body
class ConsumeQueueData(Body):
    """One entry of a consume queue; ``eval`` says whether the group's filter lets it through."""

    bit_map: str | None = member("bitMap", default=None)
    eval: bool = member("eval", default=False)
    extend_data_json: str | None = member("extendDataJson", default=None)
    msg: str | None = member("msg", default=None)
    physic_offset: int = member("physicOffset", default=0)
    physic_size: int = member("physicSize", default=0)
    tags_code: int = member("tagsCode", default=0)


@body
class QueryConsumeQueueResponseBody(Body):
    """321 QUERY_CONSUME_QUEUE."""

    filter_data: str | None = member("filterData", default=None)
    max_queue_index: int = member("maxQueueIndex", default=0)
    min_queue_index: int = member("minQueueIndex", default=0)
    queue_data: list[ConsumeQueueData] | None = member("queueData", default=None)
    subscription_data: SubscriptionData | None = member("subscriptionData", default=None)
