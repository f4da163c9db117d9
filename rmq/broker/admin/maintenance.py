"""Cleaning on request: queues and files that are no longer needed (requests 306, 316, 329)."""

from __future__ import annotations

import asyncio
import logging

from rmq.broker.store.store import Store
from rmq.broker.topics.table import TopicTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles

__all__ = ["MaintenanceAdmin"]

log = logging.getLogger(__name__)


class MaintenanceAdmin:
    """Handlers of the clean-up requests."""

    def __init__(self, store: Store, topics: TopicTable) -> None:
        self._store = store
        self._topics = topics

    @handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    async def clean_queues(self, conn: Conn, request: Command) -> Command:
        """306: drop queues all of whose messages have left the commit log."""
        log.info("%s cleans expired consume queues", conn.peer)
        for queue in self._store.retention.expired_queues():
            if not self._is_used(queue.topic, queue.id):
                self._store.queues.drop_queue(queue)
            await asyncio.sleep(0)
        return request.reply(ResponseCode.SUCCESS)

    def _is_used(self, topic: str, queue_id: int) -> bool:
        """Queues of a topic that exists keep their numbering."""
        if topic in self._topics.system:
            return True  # the broker counts on the numbers of its own queues, and some have no topic
        config = self._topics.get(topic)
        return config is not None and queue_id < max(config.read_queue_nums, config.write_queue_nums)

    @handles(RequestCode.CLEAN_UNUSED_TOPIC)
    async def clean_topics(self, conn: Conn, request: Command) -> Command:
        """316: drop the queues of topics that do not exist any more."""
        log.info("%s cleans queues of unknown topics", conn.peer)
        for topic in self._store.queues.topics():
            if self._topics.is_left(topic):
                self._store.delete_topic(topic)
            await asyncio.sleep(0)
        await self._store.deletions.saved()
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_expired(self, conn: Conn, request: Command) -> Command:
        """329: delete commit-log files past their time in the next rounds, whatever the hour."""
        log.info("%s deletes expired commit-log files", conn.peer)
        self._store.retention.trigger()
        return request.reply(ResponseCode.SUCCESS)
