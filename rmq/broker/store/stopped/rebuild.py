"""Makes consume queues, index and checkpoint of a stopped store anew, from its commit log.

They are built in ``{root}/rebuild``, forced to disk, and then take the old ones' places by renaming. Whatever a kill
leaves, the next start of a broker recovers: before the first rename nothing has changed, and from then on until the
last the store is marked as not cleanly stopped, and a directory that is missing is one that recovery builds.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass, field

from rmq.broker.store.care.damaged import DamagedParts
from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.index.index import Index
from rmq.broker.store.log.checksums import Checksums
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.exchanged import refuse_exchanged
from rmq.broker.store.log.reader import Damage, LogReader
from rmq.broker.store.log.records import TagsRule
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.open_files import open_each_aside
from rmq.broker.store.parts import OnDisk
from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.ext_queues import queue_table
from rmq.broker.store.queues.files import QueueDisk
from rmq.broker.store.queues.misfits import Former
from rmq.broker.store.queues.multi_dispatch import MultiDispatch
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.start.checkpoint import Checkpoint
from rmq.broker.store.start.lost_tail import ends_on_disk, expect_ends, newly_left_out
from rmq.broker.store.start.markers import Markers
from rmq.broker.store.start.queue_loader import segment_size
from rmq.broker.store.stopped.findings import Progress
from rmq.broker.store.stopped.old_entries import keep_old_entries
from rmq.broker.store.stopped.readonly import ReadOnlyFiles
from rmq.broker.store.stopped.stopped_store import look_for_store
from rmq.protocol.errors import StoreError
from rmq.protocol.names import is_lmq
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["Rebuilt", "rebuild"]

log = logging.getLogger(__name__)

_SLICE = 32 << 20
#: What is built, as it is called below the root.
_PARTS = ("consumequeue", "consumequeue_ext", "index")


@dataclass(slots=True)
class Rebuilt:
    """What was made."""

    log_start: int = 0
    log_end: int = 0
    queues: int = 0
    entries: int = 0
    #: Entries that queues had and that nothing in the log accounts for; their offsets are not given to other messages.
    lost: int = 0
    index_files: int = 0
    #: Places of the log that hold no records: what was there is in no queue now.
    damages: list[Damage] = field(default_factory=list)
    #: Places of it that the disk does not give: entries that the old queues had for them were kept.
    unread: list[Damage] = field(default_factory=list)


async def rebuild(world: World, settings: StoreSettings, progress: Progress | None = None) -> Rebuilt:
    """Make everything derived anew.

    :param progress: told how far it is, now and then.
    :raises StoreError: a broker uses the store, or its commit log cannot be read.
    :raises OSError: the disk refused; the store is as it was.
    """
    return await _Rebuild(world, settings, progress or (lambda what, done, total: None)).run()


class _Rebuild:
    def __init__(self, world: World, settings: StoreSettings, progress: Progress) -> None:
        self._world = world
        self._files = world.files
        self._offload = world.offload
        self._root = settings.root
        self._place = os.path.join(settings.root, "rebuild")
        #: Reads the log where it is and writes below ``rebuild``.
        self._settings = dataclasses.replace(
            settings, root=self._place, read_only_paths=(*settings.commit_log_paths, *settings.read_only_paths)
        )
        self._progress = progress
        self._disk = QueueDisk(world.files, settings.root, settings.queue_file_size)
        self._checkpoint = Checkpoint(world.files, os.path.join(self._root, "checkpoint"))

    async def run(self) -> Rebuilt:
        await self._offload(self._look_first)
        markers = Markers(self._files, self._root)
        try:
            await self._offload(markers.take_lock)
            await self._offload(self._remove, self._place)
            try:
                made = await self._build(clean=await self._offload(markers.was_clean))
            except BaseException:
                await self._offload(self._remove, self._place)
                raise
            await self._offload(self._swap, markers)
            return made
        finally:
            await self._offload(markers.release_lock)

    def _look_first(self) -> None:
        """Refuse what could not be ended well, before anything is touched."""
        look_for_store(self._files, dataclasses.replace(self._settings, root=self._root))
        for part in _PARTS:
            path = os.path.join(self._root, part)
            if self._files.exists(path) and not self._files.is_dir(path):
                raise StoreError(f"{path} is no directory: move it away")
            if self._files.is_link(path):
                raise StoreError(
                    f"{path} is a symbolic link, and new files would not get to where it leads: empty that directory "
                    f"instead, remove {self._checkpoint.path}, and start the broker, which fills it again"
                )

    def _remove(self, path: str) -> None:
        if self._files.is_dir(path):
            self._disk.remove_tree(path)

    # -- building --------------------------------------------------------------------------------------------------

    async def _build(self, *, clean: bool) -> Rebuilt:
        world, settings = self._world, self._settings
        reading = dataclasses.replace(world, files=ReadOnlyFiles(world.files))
        commit_log = CommitLog(reading, settings)
        commit_log.files.extends = False
        commit_log.checksums = Checksums(reading, dataclasses.replace(settings, root=self._root), commit_log)
        commit_log.adopt_loaded(
            await open_each_aside(self._offload, commit_log.files.open_all, close=lambda file: file.shared.drop())
        )
        queues = queue_table(world, settings)
        index = Index(world, settings, self._checkpoint) if settings.index_enable else None
        tasks = TaskOwner("rebuild")
        try:
            if not commit_log.segments:
                raise StoreError(f"there is no commit-log file in {', '.join(settings.commit_log_paths)}")
            await self._offload(self._checkpoint.load)
            if clean:
                await self._offload(commit_log.files.reach, self._checkpoint.clean_end, self._checkpoint.path)
            self._checkpoint.index = 0
            await self._offload(self._files.mkdir, self._place)
            for part in ("consumequeue", "index"):
                await self._offload(self._files.mkdir, os.path.join(self._place, part))
            writer = QueueWriter(world, queues, tasks)
            deletions = Deletions(world, self._root, segment_size(settings.commit_log_file_size))
            await self._offload(deletions.load)
            damaged = DamagedParts(world, self._root, queues)
            await self._offload(damaged.load)
            disk = OnDisk(commit_log, queues, index, self._checkpoint, deletions, damaged)
            dispatcher = Dispatcher(self._offload, disk, TagsRule(settings.delays_ms))
            reader = LogReader(world, commit_log)
            reader.unreadable = UnreadablePlaces(commit_log.file_size)
            former = dispatcher.misfits.former
            was = QueueDisk(reading.files, self._root, settings.queue_file_size)
            ends = await self._offload(ends_on_disk, was, commit_log.end)
            # Whatever the settings say that it was given: no start fills them again.
            light = any(is_lmq(topic) for topic, _ in ends)
            if settings.multi_dispatch or light:
                lmq = settings.lmq or light
                dispatcher.multi_dispatch = MultiDispatch(queues, lmq=lmq, most_lmq=settings.most_lmq)
            for (topic, queue_id), end in ends.items():
                if not deletions.end_of(topic):
                    former[queues.get_or_create(topic, queue_id)] = Former(end)
            expect_ends(former, damaged, deletions, queues)
            dispatcher.position = start = commit_log.start
            while dispatcher.position < commit_log.end and await dispatcher.advance(reader, _SLICE):
                await writer.write(everything=True)
                if index is not None:
                    await index.writer.write()
                self._progress("commit log", dispatcher.position - start, commit_log.end - start)
            await self._offload(refuse_exchanged, commit_log.segments, commit_log.file_size, reader.end, reader.damages)
            unread = [*sorted(reader.passed_over), *reader.lost_end(commit_log.end)]
            if unread:
                former.clear()  # the old entries that point there say where their queues end
            await dispatcher.settle(reader.damages)
            if unread:
                await keep_old_entries(
                    self._offload, reading.files, self._root, settings.ext_file_size, queues, deletions, unread,
                    commit_log.file_size,
                )  # fmt: skip
            await writer.write(everything=True)
            await writer.sync()
            if index is not None:
                await index.writer.force()
            made = Rebuilt(
                start, reader.end, sum(queue.next > 0 for queue in queues),
                sum(queue.next - queue.min for queue in queues),
                0 if unread else newly_left_out(dispatcher.misfits.left_out, damaged),
                len(index.files) if index is not None else 0, sorted([*reader.damages, *dispatcher.damages]), unread,
            )  # fmt: skip
            # The log itself was not forced to disk here: the first time stays what it was.
            self._checkpoint.physic = min(self._checkpoint.physic, reader.stamp)
            self._checkpoint.logics = reader.stamp
            ended = self._checkpoint.clean_end
            self._checkpoint.forget_indexed()
            if clean and unread and unread[-1].start <= ended < unread[-1].end:
                # Nothing but this note says where a log ends whose end the disk does not give.
                self._checkpoint.note_indexed(*(index.position if index is not None else (-1, 0)), ended)
            damaged.tell(reader.damages, commit_log)
            if damaged.add(made.damages, start) or queues.left_out:
                await damaged.save()
            return made
        finally:
            await tasks.close()
            queues.close()
            if index is not None:
                index.close()
            await commit_log.close(remove_unused=False)

    # -- the exchange ----------------------------------------------------------------------------------------------

    def _swap(self, markers: Markers) -> None:
        """Put what was built in the places of the old: it is on disk, names included, by those who made its files."""
        files = self._files
        made = [part for part in _PARTS if files.is_dir(os.path.join(self._place, part))]
        # Java takes a store without this mark for whole, whatever is missing.
        clean = markers.was_clean()
        markers.set_abort()
        graves: list[str] = []
        for part in _PARTS:
            old = os.path.join(self._root, part)
            if part == "index" and not self._settings.index_enable:
                continue
            try:
                grave = self._disk.bury(old)
            except OSError:
                if not graves:
                    self._sweep(graves)
                    if clean:
                        markers.clear_abort()
                raise
            if grave is not None:
                graves.append(grave)
            if part in made:
                files.rename(os.path.join(self._place, part), old)
        files.sync_dir(self._root)
        self._checkpoint.save()
        if clean:
            markers.clear_abort()
        self._sweep(graves)

    def _sweep(self, graves: list[str]) -> None:
        """Leave nothing beside the store itself."""
        self._remove(self._place)
        for grave in graves:
            self._remove(grave)
        trash = os.path.join(self._root, "trash")
        if self._files.is_dir(trash) and not self._files.list(trash):
            self._files.rmdir(trash)
