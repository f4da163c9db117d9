"""Topics and groups that are deleted: nothing of them may come back with new ones of their names, not after a kill."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rmq.broker.parts import Tables
from rmq.broker.store.store import Store
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.errors import ResponseError

__all__ = ["Forgetting"]

log = logging.getLogger(__name__)


class Forgetting:
    """Deletes topics, in an order that a kill at any moment leaves no half of.

    :param persist_offsets: brings the offsets to disk.
    """

    def __init__(self, store: Store, tables: Tables, persist_offsets: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._tables = tables
        self._persist_offsets = persist_offsets
        self._deleted = False
        self._deleting = asyncio.Lock()
        #: Told of every deleted topic.
        self.of_topic: list[Callable[[str], None]] = []
        #: Told of every deleted group, and whether its offsets went, too.
        self.of_group: list[Callable[[str, bool], None]] = []
        tables.topics.file.before_write = self._deletions_saved
        store.retention.on_gone = self.forget_topic

    def forget_topic(self, topic: str, end: int | None = None, version: DataVersion | None = None) -> None:
        """Delete a topic: nothing of it may come back with a new topic of its name.

        :param end: records of it that begin before this offset of the log are dead; all when not given.
        :param version: of the topics then, when a group that elects its master has committed that.
        """
        topics = self._tables.topics
        existed = topics.delete(topic, version)
        # A topic of the same name starts at 0: old offsets would lie behind its end.
        self._tables.offsets.remove_topic(topic)
        self._deleted = True
        after = topics.data_version
        self._store.delete_topic(topic, after.counter, after.timestamp, existed=existed, end=end)
        for forget in self.of_topic:
            forget(topic)

    def forget_group(self, group: str, version: DataVersion | None = None, *, offsets: bool) -> None:
        """Delete a group.

        :param version: of the groups then, when a group of brokers that elects its master has committed that.
        :param offsets: its offsets go, too.
        """
        self._tables.groups.delete(group, version)
        if offsets:
            self._tables.offsets.remove_group(group)
        for forget in self.of_group:
            forget(group, offsets)

    def begin_topic(self, topic: str) -> None:
        """:meth:`forget_topic`: now, or, where a group elects its master, once it has committed that.

        :raises ResponseError: the group cannot be told of it.
        """
        topics = self._tables.topics
        if not topics.drafts.wanted:
            self.forget_topic(topic)
        elif topic in topics or self._store.queues.all(topic):
            topics.drafts.delete(topic)

    def let_go(self, topic: str) -> None:
        """:meth:`begin_topic` for one that is of no use any more: where that cannot be, it stays."""
        try:
            self.begin_topic(topic)
        except ResponseError as error:
            log.warning("topic %s is of no use any more, and stays: %s", topic, error)

    async def delete_topic(self, topic: str) -> None:
        """:meth:`begin_topic`, and wait until a kill does not bring it back.

        :raises ResponseError: a group that elects its master has not committed it.
        """
        self.begin_topic(topic)
        if self._tables.topics.drafts.journal is None:
            await self._deletions_saved()
        await self._tables.topics.saved()

    async def delete_group(self, group: str, *, offsets: bool) -> None:
        """Delete a group, and wait until a kill does not bring it back.

        :param offsets: its offsets go, too.
        :raises ResponseError: a group of brokers that elects its master has not committed it.
        """
        groups = self._tables.groups
        if groups.drafts.wanted:
            groups.drafts.delete(group, offsets=offsets)
        else:
            self.forget_group(group, offsets=offsets)
        await groups.saved()

    async def _deletions_saved(self) -> None:
        """Bring deletions to disk, then offsets without them: only then may topics.json be without the topics.

        The other way round a kill would leave a store in which queues and offsets wait for a new topic of that name.
        """
        async with self._deleting:
            while self._deleted:
                self._deleted = False
                await self._store.deletions.saved()
                await self._persist_offsets()

    def finish(self) -> None:
        """Delete what a kill has left in topics.json of topics whose messages are gone."""
        topics, version = self._tables.topics, self._tables.topics.data_version
        for topic, deletion in self._store.deletions.items():
            older = version.counter < deletion.counter and version.timestamp <= deletion.timestamp
            if older and topic in topics and not self._store.queues.all(topic):
                log.warning("topic %s was being deleted when the broker was killed; it is deleted now", topic)
                self.forget_topic(topic)
