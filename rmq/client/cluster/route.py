"""Routes: which queues a topic has, and where their brokers are (protocol.md 7.3). Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.queue import MAX_QUEUES, MessageQueue

__all__ = ["PERM_WRITE", "PublishInfo", "publish_queues", "subscribe_queues"]

PERM_READ = 4
PERM_WRITE = 2
#: A count of queues has fewer.
_DIGITS = 10


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues a producer sends to, sorted by broker name and queue id; with an order configuration, in its order."""
    if route.order_topic_conf:
        queues = []
        for item in route.order_topic_conf.split(";"):
            broker, _, count = item.partition(":")
            if broker and count.strip().isdecimal() and len(count) < _DIGITS:
                queues += [MessageQueue(topic, broker, i) for i in range(min(int(count), MAX_QUEUES))]
        return queues
    masters = {data.broker_name for data in route.broker_datas if 0 in data.broker_addrs}
    return sorted(
        MessageQueue(topic, data.broker_name, i)
        for data in route.queue_datas
        if data.perm & PERM_WRITE and data.broker_name in masters
        for i in range(min(data.write_queue_nums, MAX_QUEUES))
    )


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues a group shares, sorted; a broker without a master counts too."""
    return sorted(
        MessageQueue(topic, data.broker_name, i)
        for data in route.queue_datas
        if data.perm & PERM_READ
        for i in range(min(data.read_queue_nums, MAX_QUEUES))
    )


@dataclass(slots=True)
class PublishInfo:
    """A topic's queues for sending, and whose turn it is (Java: TopicPublishInfo).

    ``turn`` only ever counts up (an int of Python does not overflow: field case B038); taking the next value is one
    operation under the interpreter's lock, so threads share it without another one.
    """

    topic: str
    queues: list[MessageQueue]
    turn: itertools.count[int] = field(default_factory=itertools.count)
    #: Somebody has sent since :attr:`used_at` was noted, in seconds of the monotonic clock.
    used: bool = True
    used_at: float = 0.0
    brokers: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.brokers = frozenset(queue.broker_name for queue in self.queues)

    def next_queue(self, avoid: str | None = None, avoided: frozenset[str] = frozenset()) -> MessageQueue:
        """The queue whose turn it is.

        :param avoid: the broker tried last: another one is taken where there is one.
        :param avoided: brokers that answered badly or late: taken only when there is no other.
        """
        queues = self.queues
        count = len(queues)
        first = queues[next(self.turn) % count]
        if first.broker_name != avoid and first.broker_name not in avoided:
            return first
        second = None
        for _ in range(count - 1):
            queue = queues[next(self.turn) % count]
            if queue.broker_name != avoid:
                if queue.broker_name not in avoided:
                    return queue
                second = second or queue
        return second or first
