"""What the lane keeps ready for a topic, so that a plain send checks nothing but a queue id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.protocol.names import is_retry_topic
from rmq.protocol.tags import string_hash

if TYPE_CHECKING:
    from rmq.broker.store.queues.queues import QueueTable
    from rmq.broker.store.state import Queue
    from rmq.broker.topics.table import TopicTable
    from rmq.protocol.bodies.topic import TopicConfig

__all__ = ["LaneTable", "TopicLane"]

_TAG_CACHE = 1024
#: Queues that are made with a lane, which takes 4 us each: sends to further ones take the slow branch, one by one.
_QUEUES_AT_HAND = 1_024


class TopicLane:
    """One topic as the lane sees it; thrown away when the topic or a permission changes."""

    __slots__ = ("config", "plain", "queues", "tag_codes", "topic")

    def __init__(self, topic: str, config: TopicConfig, queues: list[Queue], *, plain: bool) -> None:
        self.topic = topic
        self.config = config
        #: By queue id: the ids that a send may name, or the first of them.
        self.queues = queues
        #: A send to this topic needs no look at its name, group or filter type.
        self.plain = plain
        self.tag_codes: dict[bytes, int] = {b"": 0}

    def tag_code(self, tag: bytes) -> int:
        """The hash of a tag (UTF-8), remembered for the next message."""
        code = self.tag_codes.get(tag)
        if code is None:
            if len(self.tag_codes) >= _TAG_CACHE:
                self.tag_codes.clear()
                self.tag_codes[b""] = 0
            code = self.tag_codes[tag] = string_hash(tag.decode())
        return code


class LaneTable:
    """Topic lanes by name. ``get`` is the dictionary's own method: the hot path pays one look-up."""

    def __init__(self, topics: TopicTable, queues: QueueTable) -> None:
        self._topics = topics
        self._queues = queues
        self._lanes: dict[str, TopicLane] = {}
        self.get = self._lanes.get
        topics.on_change.append(self._changed)
        topics.drafts.on_shown.append(self._changed)
        queues.on_full.append(lambda queue: self.forget(queue.topic))

    def _changed(self, topic: str | None) -> None:
        if topic is None:
            self._lanes.clear()
        else:
            self._lanes.pop(topic, None)

    def forget(self, topic: str) -> None:
        """Let the next send to a topic take the slow branch."""
        self._lanes.pop(topic, None)

    def of(self, config: TopicConfig) -> TopicLane:
        """The lane of a topic that exists, made now if it was not there."""
        topic = config.topic_name
        lane = self._lanes.get(topic)
        if lane is None:
            plain = (
                not is_retry_topic(topic)
                and config.topic_filter_type == "SINGLE_TAG"
                and len(topic) <= 127
                and not self._topics.system.refuses_send(topic)
            )
            legal = min(max(config.read_queue_nums, config.write_queue_nums, 0), _QUEUES_AT_HAND)
            queues = [self._queues.get_or_create(topic, queue_id) for queue_id in range(legal)]
            if not self._queues.full.keys().isdisjoint(queues):
                plain = False  # the slow branch says which of them takes no messages
            lane = self._lanes[topic] = TopicLane(topic, config, queues, plain=plain)
        return lane
