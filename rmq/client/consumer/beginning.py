"""Where to start in a queue that became ours (protocol.md 7.4)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rmq.client import lookup
from rmq.client.consumer.member import DeliverySettings
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.client.settings import ConsumeFromWhere
from rmq.client.shown import shown
from rmq.protocol.errors import ClientError
from rmq.protocol.names import is_retry_topic
from rmq.runtime.aside import logger

__all__ = ["Beginning", "timestamp_ms"]

log = logger(__name__)

_HALF_AN_HOUR_MS = 30 * 60 * 1000
#: How far our clock may be ahead of a broker's: so much earlier we begin in a queue that came after us.
_CLOCKS_APART_MS = 60_000


class Beginning:
    """Where a group goes on, and where it starts when it has no offset yet."""

    def __init__(self, instance: ClientInstance, store: OffsetStore, settings: DeliverySettings) -> None:
        self._instance = instance
        self._store = store
        self._policy = settings.consume_from_where
        self._clock = instance.world.clock
        self._timestamp = timestamp_ms(settings.consume_timestamp, self._clock.now_ms())
        #: Topic -> when we first looked at it (milliseconds since the epoch), and the queues it had then.
        self._first_looks: dict[str, tuple[int, frozenset[MessageQueue]]] = {}

    def looked(self, topic: str, queues: Iterable[MessageQueue]) -> bool:
        """A topic was looked at, and had these queues. :returns: whether that was the first time."""
        if topic in self._first_looks:
            return False
        self._first_looks[topic] = self._clock.now_ms(), frozenset(queues)
        return True

    def _rule(self, queue: MessageQueue) -> tuple[ConsumeFromWhere, int]:
        """For a group without an offset: LAST in a queue that came after us means what came after us."""
        since, queues = self._first_looks[queue.topic]
        if (
            queue in queues
            or is_retry_topic(queue.topic)
            or self._policy is not ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        ):
            return self._policy, self._timestamp
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, since - _CLOCKS_APART_MS

    async def offset(self, queue: MessageQueue) -> int:
        """Where to start in a queue of a topic that was looked at.

        :raises RMQError: it cannot be known now; the next rebalance asks again.
        """
        stored = await self._store.read(queue)
        if stored >= 0:
            log.info("%s: starts at the committed offset %d", queue, stored)
            return stored
        policy, timestamp = self._rule(queue)
        retry = is_retry_topic(queue.topic)
        if policy is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            offset = 0 if retry else await lookup.min_offset(self._instance, queue)
        elif policy is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            if retry:
                offset = await lookup.max_offset(self._instance, queue)
            else:
                offset = await lookup.search_offset(self._instance, queue, timestamp)
        else:
            offset = 0 if retry else await lookup.max_offset(self._instance, queue)
        log.info("%s: no committed offset, %s starts at %d", queue, policy.name, offset)
        return offset


def timestamp_ms(given: datetime | str | None, now_ms: int) -> int:
    """``consume_timestamp`` in milliseconds: a datetime, or ``yyyyMMddHHmmss`` in local time; default 30 minutes ago.

    :raises ClientError: a text of another form.
    """
    if given is None:
        return now_ms - _HALF_AN_HOUR_MS
    if isinstance(given, datetime):
        return int(given.timestamp() * 1000)
    try:
        return int(datetime.strptime(given, "%Y%m%d%H%M%S").timestamp() * 1000)
    except (ValueError, TypeError):
        raise ClientError(
            f"consume_timestamp is {shown(given)}: give a datetime, or yyyyMMddHHmmss in local time"
        ) from None
