"""One queue of one topic on one broker (Java: MessageQueue)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Unpack

from rmq.protocol.errors import WrongType
from rmq.protocol.fastjson.keys import ObjectKey
from rmq.protocol.keywords import NoOthers, keywords, no_such
from rmq.protocol.plain import plain

__all__ = ["MAX_QUEUES", "MessageQueue"]

#: Queues of one topic on one broker, read or write ones, whoever says how many there are: so many are walked through.
MAX_QUEUES = 100_000


@keywords
@dataclass(frozen=True, slots=True, order=True, init=False)
class MessageQueue:
    """Hashable, and ordered as rebalancing orders queues: by topic, broker name, queue id."""

    topic: str
    broker_name: str
    queue_id: int

    def __init__(self, topic: str, broker_name: str, queue_id: int, **unknown: Unpack[NoOthers]) -> None:
        if unknown:
            raise no_such(MessageQueue, unknown)
        put = object.__setattr__
        put(self, "topic", topic)
        put(self, "broker_name", broker_name)
        put(self, "queue_id", queue_id)
        if type(topic) is str and type(broker_name) is str and type(queue_id) is int:
            return
        texts = isinstance(topic, str) and isinstance(broker_name, str)
        if not texts or not isinstance(queue_id, int) or isinstance(queue_id, bool):
            raise WrongType(f"{self!r:.200}: topic and broker_name are texts, queue_id is a whole number")
        # One of enumerations has their hash, and would not be found in a table.
        put(self, "topic", plain(topic, "the topic of a queue"))
        put(self, "broker_name", plain(broker_name, "the broker_name of a queue"))
        put(self, "queue_id", plain(queue_id, "the queue_id of a queue"))

    def __str__(self) -> str:
        """Java's text form, which consistent hashing and ``$ref`` paths are made from."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"

    def as_dict(self) -> dict[str, str | int]:
        """Topic, broker name and queue id, by name."""
        return asdict(self)

    @property
    def key(self) -> ObjectKey:
        """The queue as a JSON map key."""
        return ObjectKey.queue(self.topic, self.broker_name, self.queue_id)
