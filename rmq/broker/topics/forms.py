"""Topics as JSON, kept ready: a change among 10,000 of them costs one join and not 10,000 renderings."""

from __future__ import annotations

from collections.abc import Iterable

from rmq.broker.topics.changes import APPLIED
from rmq.protocol import fastjson
from rmq.protocol.bodies.topic import DataVersion, TopicConfig

__all__ = ["TopicForms"]

_PRETTY = (
    '\t\t%s:{\n\t\t\t"order":%s,\n\t\t\t"perm":%d,\n\t\t\t"readQueueNums":%d,\n\t\t\t"topicFilterType":"%s",\n'
    '\t\t\t"topicName":%s,\n\t\t\t"topicSysFlag":%d,\n\t\t\t"writeQueueNums":%d\n\t\t}'
)
_COMPACT = (
    '%s:{"order":%s,"perm":%d,"readQueueNums":%d,"topicFilterType":"%s","topicName":%s,"topicSysFlag":%d,'
    '"writeQueueNums":%d}'
)


class TopicForms:
    """The forms of every topic that others are told of, in the order in which they came."""

    def __init__(self) -> None:
        self._pretty: dict[str, str] = {}
        self._compact: dict[str, str] = {}

    def __contains__(self, topic: object) -> bool:
        return topic in self._compact

    def names(self) -> list[str]:
        """Of which topics there are forms."""
        return list(self._compact)

    def keep(self, config: TopicConfig) -> None:
        """Make those of a topic, which is new or changed."""
        values = _rendered(config)
        self._pretty[config.topic_name] = _PRETTY % values
        self._compact[config.topic_name] = _COMPACT % values

    def remove(self, topic: str) -> bool:
        """Forget a topic; False when there was none."""
        self._pretty.pop(topic, None)
        return self._compact.pop(topic, None) is not None

    def clear(self) -> None:
        """Forget all of them."""
        self._pretty.clear()
        self._compact.clear()

    def compact(self, version: DataVersion, topics: Iterable[str] | None = None, applied: int | None = None) -> bytes:
        """A whole table in one line.

        :param topics: those alone, without the ones that do not exist.
        :param applied: up to where it has the changes of a group's log; None = it tells nobody.
        """
        compact = self._compact
        forms = compact.values() if topics is None else [compact[topic] for topic in topics if topic in compact]
        position = "" if applied is None else f'"{APPLIED}":{applied},'
        return (
            f'{{{position}"dataVersion":{{"counter":{version.counter},"timestamp":{version.timestamp}}},'
            f'"topicConfigTable":{{{",".join(forms)}}}}}'
        ).encode()

    def pretty(self, version: DataVersion, applied: int | None = None) -> bytes:
        """The content of topics.json."""
        topics = ",\n".join(self._pretty.values())
        position = "" if applied is None else f'\t"{APPLIED}":{applied},\n'
        return (
            f'{{\n{position}\t"dataVersion":{{\n\t\t"counter":{version.counter},\n'
            f'\t\t"timestamp":{version.timestamp}\n\t}},\n\t"topicConfigTable":{{\n{topics}\n\t}}\n}}'
        ).encode()


def _rendered(config: TopicConfig) -> tuple[str, str, int, int, str, str, int, int]:
    name = fastjson.quote(config.topic_name)
    return (
        name,
        "true" if config.order else "false",
        config.perm,
        config.read_queue_nums,
        config.topic_filter_type or "SINGLE_TAG",
        name,
        config.topic_sys_flag,
        config.write_queue_nums,
    )
