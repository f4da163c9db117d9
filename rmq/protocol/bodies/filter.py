"""consumerFilter.json: what groups filter by with SQL92 (store-and-broker.md 1.5)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member

__all__ = ["BloomFilterData", "ConsumerFilterData", "ConsumerFilterTable", "TopicFilterData"]


@body
class BloomFilterData(Body):
    """The positions of one group on one topic, among so many bits."""

    bit_num: int = member("bitNum", default=0)
    bit_pos: list[int] = member("bitPos", factory=list)


@body
class ConsumerFilterData(Body):
    """One group's filter of one topic; ``dead`` is derived, ``client_version`` the subscription's version."""

    bloom_filter_data: BloomFilterData | None = member("bloomFilterData", default=None)
    born_time: int = member("bornTime", default=0)
    client_version: int = member("clientVersion", default=0)
    consumer_group: str = member("consumerGroup", default="")
    dead: bool = member("dead", default=False)
    dead_time: int = member("deadTime", default=0)
    expression: str = member("expression", default="")
    expression_type: str = member("expressionType", default="SQL92")
    topic: str = member("topic", default="")


@body
class TopicFilterData(Body):
    """The filters of one topic by group (Java: FilterDataMapByTopic)."""

    group_filter_data: dict[str, ConsumerFilterData] = member("groupFilterData", factory=dict)
    topic: str = member("topic", default="")


@body
class ConsumerFilterTable(Body):
    """The file: filters by topic."""

    filter_data_by_topic: dict[str, TopicFilterData] = member("filterDataByTopic", factory=dict)
