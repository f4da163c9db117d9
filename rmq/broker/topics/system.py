"""Topics that are the broker's own: those it has from its start on, and names that are nobody else's."""

from __future__ import annotations

from collections.abc import Iterator

from rmq.broker.settings import BrokerSettings
from rmq.protocol import names
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.sysflags import PERM_INHERIT, PERM_READ_WRITE

__all__ = ["SystemTopics"]


class SystemTopics:
    """The broker's own topics, as its settings name them.

    :param settings: the live broker settings.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings

    def __contains__(self, topic: object) -> bool:
        """Whether the name is reserved: such a topic is neither made nor deleted by an operator."""
        return isinstance(topic, str) and (
            names.is_system_topic(topic) or names.is_broker_topic(topic) or topic in self._named_by_settings()
        )

    def _named_by_settings(self) -> tuple[str, ...]:
        settings = self._settings
        own = settings.broker_cluster_name, settings.broker_name, names.reply_topic(settings.broker_cluster_name)
        return (*own, settings.msg_trace_topic_name) if settings.trace_topic_enable else own

    def names(self) -> list[str]:
        """What 305 lists: reserved names, created or not."""
        return list(dict.fromkeys((*sorted(names.SYSTEM_TOPICS), *self._named_by_settings())))

    def configs(self) -> Iterator[TopicConfig]:
        """The topics that are there from the start on."""
        settings = self._settings
        yield _config(names.SELF_TEST_TOPIC, 1)
        if settings.auto_create_topic_enable:
            yield self.template()
        yield _config(names.BENCHMARK_TOPIC, 1024)
        yield _config(settings.broker_cluster_name, 16, _perm(settings.cluster_topic_enable))
        yield _config(settings.broker_name, 1, _perm(settings.broker_topic_enable))
        yield _config(names.OFFSET_MOVED_TOPIC, 1)
        yield _config(names.SCHEDULE_TOPIC, 18)
        if settings.trace_topic_enable:
            yield _config(settings.msg_trace_topic_name, 1)
        yield _config(names.reply_topic(settings.broker_cluster_name), 1)

    def template(self) -> TopicConfig:
        """TBW102 as it is while topics are made on demand."""
        return _config(names.AUTO_CREATE_TOPIC, self._settings.default_topic_queue_nums, PERM_READ_WRITE | PERM_INHERIT)

    def refuses_send(self, topic: str) -> bool:
        """Topics only the broker itself writes (store-and-broker.md 7.6); clients' traces go where the settings say."""
        settings = self._settings
        if settings.trace_topic_enable and topic == settings.msg_trace_topic_name:
            return topic in names.BROKER_TOPICS
        return names.is_broker_topic(topic)


def _config(topic: str, queues: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
    return TopicConfig(topic, queues, queues, perm)


def _perm(enabled: bool) -> int:
    return PERM_INHERIT | PERM_READ_WRITE if enabled else PERM_INHERIT
