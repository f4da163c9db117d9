"""The statistics of a broker with light message queues: they are too many to be told apart."""

from __future__ import annotations

from rmq.broker.stats import BrokerStats
from rmq.broker.store.state import Queue
from rmq.protocol.names import LMQ_PREFIX, is_lmq

__all__ = ["LmqStats"]


class LmqStats(BrokerStats):
    """Counts all light queues, and all groups of theirs, under the one name ``%LMQ%`` (Java: LmqBrokerStatsManager).

    A message counts where it was sent to, not once more in each light queue it is in.
    """

    def delivered(self, group: str, topic: str, queue_id: int, count: int, size: int, took_ms: float = 0.0) -> None:
        super().delivered(_together(group), _together(topic), queue_id, count, size, took_ms)

    def sent_back(self, group: str, topic: str) -> None:
        super().sent_back(_together(group), _together(topic))

    def consume_tps(self, topic: str, group: str) -> float:
        return super().consume_tps(_together(topic), _together(group))

    def _count(self, queue: Queue) -> None:
        if is_lmq(queue.topic):
            self._grown.pop(queue, None)
        else:
            super()._count(queue)


def _together(name: str) -> str:
    return LMQ_PREFIX if is_lmq(name) else name
