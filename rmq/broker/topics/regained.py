"""Topics whose messages have come, and no word of them.

The members of a group take topics over from the one that leads, every second. Messages do not wait for that: whoever
leads next may have what was acknowledged in a topic, or a queue, that it was not told of. Nobody could read it there.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable

from rmq.broker.store.state import Queue
from rmq.broker.topics.names import topic_name_fault
from rmq.broker.topics.table import TopicTable
from rmq.protocol.bodies.topic import TopicConfig
from rmq.protocol.names import is_dlq_topic, is_lmq, is_retry_topic, is_system_topic
from rmq.protocol.sysflags import PERM_READ_WRITE

__all__ = ["regain"]

log = logging.getLogger(__name__)


def regain(topics: TopicTable, queues: Iterable[Queue], since: int, least: int) -> None:
    """Make topics, and queues of topics, whose messages could not be read: nobody has told of them.

    :param topics: what is known; changed.
    :param queues: all that the store has.
    :param since: commit-log offset where the log ended when the topics were taken over last. A topic with too few
        queues for a message behind it has been given more since; one before it may be out of reach on purpose.
    :param least: queues of a topic that is made anew, at least, but for those of groups.
    """
    needed: dict[str, int] = {}
    for queue in queues:
        topic = queue.topic
        if is_system_topic(topic) or is_lmq(topic):  # made when it is needed; has no configuration
            continue
        if queue.next > queue.min and (queue.max_phys > since or topic not in topics):
            needed[topic] = max(needed.get(topic, 0), queue.id + 1)
    for topic, count in needed.items():
        config = topics.get(topic)
        if config is None:
            if topic_name_fault(topic) is None:
                count = count if is_retry_topic(topic) or is_dlq_topic(topic) else max(count, least)
                topics.put(TopicConfig(topic, count, count, PERM_READ_WRITE))
                log.warning("topic %s has messages and nobody has told of it: it has %d queues now", topic, count)
        elif config.read_queue_nums < count:
            write = max(config.write_queue_nums, count)
            topics.put(dataclasses.replace(config, read_queue_nums=count, write_queue_nums=write))
            log.warning("topic %s has newer messages in its queue %d: it has %d queues now", topic, count - 1, count)
