"""OFFSET_MOVED_EVENT: a message for every pull whose offset lies outside its queue (store-and-broker.md 3.7)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import orjson

from rmq.broker.store.own import own_message
from rmq.broker.store.trouble import Trouble

if TYPE_CHECKING:
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.store import Store
    from rmq.runtime.world import Clock

__all__ = ["OffsetMovedEvents"]

log = logging.getLogger(__name__)

_TOPIC = "OFFSET_MOVED_EVENT"


class OffsetMovedEvents:
    """Writes the events; one that cannot be written is lost, with a log line, and the pull is answered all the same."""

    def __init__(self, clock: Clock, settings: BrokerSettings, store: Store, store_host: bytes) -> None:
        self._clock = clock
        self._settings = settings
        self._store = store
        self._store_host = store_host
        self._trouble = Trouble(clock, log, f"writing {_TOPIC} messages", "the pulls are answered all the same")

    def add(self, group: str, topic: str, queue_id: int, asked: int, given: int) -> None:
        """One event: ``group`` asked for index ``asked`` of a queue and was sent to ``given``."""
        if self._store.log.gate:
            return
        try:
            self._add(group, topic, queue_id, asked, given)
        except Exception as error:
            self._trouble.failed(error)
        else:
            self._trouble.over()

    def _add(self, group: str, topic: str, queue_id: int, asked: int, given: int) -> None:
        store = self._store
        body = orjson.dumps(
            {
                "consumerGroup": group,
                "messageQueue": {
                    "brokerName": self._settings.broker_name,
                    "queueId": queue_id,
                    "topic": topic,
                },
                "offsetNew": given,
                "offsetRequest": asked,
            }
        )
        queue = store.queues.get_or_create(_TOPIC, 0)
        table = {"TAGS": group, "KEYS": group, "DELAY": "0"}
        put = own_message(queue, body, table, self._clock.now_ms(), self._store_host)
        store.append([put])
