"""From a directory to a store that can be served: what is there is looked at, and recovered."""

from __future__ import annotations

import logging
import os

from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.index.build import IndexBuild
from rmq.broker.store.log.files import file_name
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.queues.ext_queues import ExtQueueTable
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.start.progress import Progress, SpokenProgress
from rmq.broker.store.start.recovered import LastStop, Recovered
from rmq.broker.store.start.recovery import Recovery
from rmq.protocol.errors import StoreError

__all__ = ["Opening"]

log = logging.getLogger(__name__)


class Opening:
    """Brings the parts of one store into the state that its files are in; the lock is the caller's."""

    def __init__(
        self,
        ground: StoreGround,
        disk: OnDisk,
        writer: QueueWriter,
        index_build: IndexBuild | None,
        dispatcher: Dispatcher,
    ) -> None:
        self._ground = ground
        self._world = ground.world
        self._offload = ground.world.offload
        self._settings = ground.settings
        self._disk = disk
        self._log = disk.log
        self._queues = disk.queues
        self._writer = writer
        self._index_build = index_build
        self._dispatcher = dispatcher
        #: The list of damaged parts is not what its file says any more.
        self.parts_changed = False

    async def run(self, *, clean: bool, boot: str, show_progress: Progress | None) -> Recovered:
        """Load and recover.

        :param clean: the last stop was a clean one.
        :param boot: which boot of the machine this is.
        :raises StoreError: the files do not fit the settings, or are too damaged.
        :raises OSError: one cannot be read or written.
        """
        checkpoint, damaged, deletions = self._disk.checkpoint, self._disk.damaged, self._disk.deletions
        await self._offload(checkpoint.load)
        await self._offload(damaged.load)
        await self._offload(deletions.load)
        self._queues.disk.sizes.whole = clean
        await self._offload(self._look_at_folders)
        await self._offload(self._look_at_queue_files)
        if clean:
            await self._offload(self._log.files.reach, checkpoint.clean_end, checkpoint.path)
        if isinstance(self._queues, ExtQueueTable):
            await self._queues.load_ext(clean=clean)
        recovery = Recovery(
            self._ground, self._disk, self._writer, self._index_build, self._dispatcher,
            LastStop(clean, checkpoint.forced_in(boot), -1 if clean else checkpoint.forced_once),
        )  # fmt: skip
        recovery.progress = progress = SpokenProgress(self._world.clock, show_progress)
        recovered = await recovery.run()
        progress("", 0, 0)
        self._look_for_start()
        deletions.log_begins(self._log.start)
        deletions.log_ends(self._log.end)
        self.parts_changed = damaged.forget_from(self._log.end)
        for part in sorted({*damaged.parts, *recovered.damages}):
            # Queues are filled without comparing checksums where nothing can have happened since they were.
            if part.end > recovered.dispatched_from:
                await damaged.set_aside(part)
        return recovered

    def _look_at_folders(self) -> None:
        """What would be noticed by the first write, minutes after a start that looked good."""
        files, settings = self._world.files, self._settings
        used = {"config", "consumequeue"}
        if settings.ext_enable:
            used.add("consumequeue_ext")
        if settings.index_enable:
            used.add("index")
        for name in used.intersection(files.list(settings.root)):
            path = os.path.join(settings.root, name)
            if not files.is_dir(path):
                raise StoreError(
                    f"the store in {settings.root} cannot be used: {path} is no directory, but a file or a link that "
                    "leads to none: bring back what it links to, or move it away"
                )

    def _look_at_queue_files(self) -> None:
        other = self._queues.disk.other_size()
        if other is not None:
            raise StoreError(
                f"{other[0]} has {other[1]} bytes, a consume-queue file has {self._queues.disk.file_size}: set "
                f"mappedFileSizeConsumeQueue to what this store was made with"
            )

    def _look_for_start(self) -> None:
        """Files that retention did not take: what remains is served, and what is missing is told."""
        start, noted = self._log.start, self._disk.checkpoint.log_start
        if 0 <= noted < start:
            size = self._log.file_size
            missing = [file_name(noted - noted % size), file_name(start - size)]
            log.error(
                "the commit log began at offset %d when it was last used, and begins at %d now: what was between is "
                "missing (%s), all other messages are where they were",
                noted, start, " to ".join(dict.fromkeys(missing)),
            )  # fmt: skip
