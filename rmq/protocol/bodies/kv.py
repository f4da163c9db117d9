"""Plain tables and lists: KVTable, TopicList, GroupList, client ids, kvConfig.json (protocol.md 4.3, 4.14)."""

from __future__ import annotations

from rmq.protocol.bodies.body import Body, body, member

__all__ = ["GetConsumerListByGroupResponseBody", "GroupList", "KVConfigTable", "KVTable", "TopicList"]


@body
class KVTable(Body):
    """28, 103, 219: texts by name."""

    table: dict[str, str] = member("table", factory=dict)


@body
class TopicList(Body):
    """206, 224, 304, 305, 311 to 313; ``broker_addr`` only with 304."""

    broker_addr: str | None = member("brokerAddr", default=None)
    topic_list: list[str] = member("topicList", factory=list)


@body
class GroupList(Body):
    """300 QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: list[str] = member("groupList", factory=list)


@body
class GetConsumerListByGroupResponseBody(Body):
    """38 GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = member("consumerIdList", factory=list)


@body
class KVConfigTable(Body):
    """kvConfig.json of a name server: namespace to key to value (Java: KVConfigSerializeWrapper)."""

    config_table: dict[str, dict[str, str]] = member("configTable", factory=dict)
