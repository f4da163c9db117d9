"""The tables of a broker on disk: read at the start, written again and again, and at the end."""

from __future__ import annotations

from rmq.broker.groups.filters import PERSIST_SECONDS
from rmq.broker.groups.lmq_groups import load_offsets
from rmq.broker.parts import Ground, Tables
from rmq.broker.pop.modes import RequestModes
from rmq.broker.topics.metadata import MetadataFile
from rmq.runtime.ending import end_each
from rmq.runtime.tasks import TaskOwner

__all__ = ["Metadata"]

#: By ``enableLmq``.
_OFFSET_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")


class Metadata:
    """When the tables are read and written (store-and-broker.md 1.4)."""

    def __init__(self, ground: Ground, tables: Tables, modes: RequestModes) -> None:
        self._world = ground.world
        self._settings = settings = ground.settings
        self._tables = tables
        self._modes = modes
        own, other = (
            settings.config_path(_OFFSET_FILES[lmq]) for lmq in (settings.enable_lmq, not settings.enable_lmq)
        )
        self._offsets_file = MetadataFile(ground.world, own, tables.offsets.render)
        self._other_offsets = other
        self._offsets_written = 0

    def load(self) -> None:
        """Read what is on disk, in Java's order (store-and-broker.md 1.1).

        :raises StoreError: a file cannot be read, nor its backup.
        """
        tables = self._tables
        tables.topics.load()
        load_offsets(self._world, tables.offsets, self._offsets_file, self._other_offsets)
        tables.groups.load()
        tables.filters.load()
        self._modes.load()

    async def check(self) -> None:
        """Make sure that changes can be written.

        :raises StoreError: nothing can be made in their folder.
        """
        await self._world.offload(self._tables.topics.file.check)

    def start(self, tasks: TaskOwner) -> None:
        """Write what changes; topics and groups are written at once."""
        settings = self._settings
        tasks.every(lambda: settings.flush_consumer_offset_interval / 1000, self.persist_offsets, "offsets", first=10.0)
        tasks.every(PERSIST_SECONDS, self._tables.filters.persist, "filters")

    async def persist_offsets(self) -> None:
        """Bring the offsets to disk, if any has changed."""
        changes = self._tables.offsets.changes
        if changes != self._offsets_written:
            self._offsets_written = changes
            self._offsets_file.changed()
        await self._offsets_file.flush()

    async def close(self) -> bool:
        """Write what is not written yet, and nothing any more after that."""
        tables = self._tables
        files = (self._offsets_file, tables.filters.file, tables.topics.file, tables.groups.file, self._modes.file)
        return await end_each("the broker", {file.path: file.close for file in files})
