"""The topic table of a broker with light message queues (``enableLmq``): every ``%LMQ%`` name is a topic."""

from __future__ import annotations

from rmq.broker.topics.table import TopicTable
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.names import is_lmq
from rmq.protocol.sysflags import PERM_READ_WRITE

__all__ = ["LmqTopicTable"]


class LmqTopicTable(TopicTable):
    """Light queues need no config and have none: no file, no registration knows them (Java: LmqTopicConfigManager)."""

    def get(self, topic: str) -> TopicConfig | None:
        if is_lmq(topic):
            return TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=PERM_READ_WRITE)
        return super().get(topic)

    def __contains__(self, topic: object) -> bool:
        return (isinstance(topic, str) and is_lmq(topic)) or super().__contains__(topic)

    def put(self, config: TopicConfig) -> None:
        """Create or replace a topic; for a light queue there is nothing to do."""
        if not is_lmq(config.topic_name):
            super().put(config)
