"""Moves consume-queue entries from memory to disk, in slices, and forces them there for the checkpoint.

A queue is written when it has 4 KiB, or in its turn at the next interval, or when all of them together hold 16 MiB. The
writes themselves are short and into the page cache, so they are made on the loop, where they cannot meet an append;
opening, making and forcing files is done off it. A queue that the disk does not take keeps no other from it
(:mod:`rmq.broker.store.queues.stuck`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable, Sequence

from rmq.broker.store.open_files import open_each_aside
from rmq.broker.store.queues.files import FileKey, QueueFiles, Target
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.queues.stuck import StuckQueues
from rmq.broker.store.refusal import SPOILT
from rmq.broker.store.state import ENTRY_SIZE, Queue
from rmq.broker.store.trouble import Trouble
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import File, World

__all__ = ["QueueWriter"]

log = logging.getLogger(__name__)

_LARGE = 4096
_PENDING_LIMIT = 16 << 20
#: Queues with a few entries written in one interval: with 40,000 of them the others wait their turn in memory.
_SMALL_AT_ONCE = 1024
_GROUP = 64
#: More files than these are forced to disk all at once: 40,000 one by one take minutes.
_ONE_BY_ONE = 1024
#: With more queues than these that cannot be written, how much waits for each is looked at with the next write.
_WEIGHED_AT_ONCE = 64


class QueueWriter:
    """Writes the tails of queues.

    :param world: clock and threads.
    :param table: the queues.
    """

    def __init__(self, world: World, table: QueueTable, tasks: TaskOwner) -> None:
        self._offload = world.offload
        self._monotonic = world.clock.monotonic
        self._table = table
        self._tasks = tasks
        self._stuck = StuckQueues(world.clock, table)
        #: Held while entries are written or forced: who cuts queues waits for it.
        self.lock = asyncio.Lock()
        self._urgent = False
        self._trouble = Trouble(
            world.clock, log, "writing consume queues", "their entries stay in memory and are tried again"
        )
        self._graves = Trouble(
            world.clock, log, "removing the queues of deleted topics", "the next start removes what is left of them"
        )
        #: Called before the directories of deleted topics are removed.
        self.before_sweep: Callable[[Sequence[str]], Awaitable[None]] | None = None
        self._unsynced: dict[FileKey, None] = {}
        self._unsynced_directories: dict[str, None] = {}
        #: A flush of them failed: another one alone would bring nothing to the disk.
        self._in_doubt: dict[FileKey, None] = {}

    def check(self) -> None:
        """Called after appends: starts a write at once when too much waits in memory."""
        if 0 < len(self._stuck) <= _WEIGHED_AT_ONCE:
            self._stuck.weigh()
        if self._table.pending > _PENDING_LIMIT and not self._urgent and not self._tasks.closed:
            self._urgent = True
            self._tasks.spawn(self._relieve(), "write-queues")

    async def _relieve(self) -> None:
        try:
            await self.write(everything=True)
        except OSError as error:
            self._trouble.failed(error)
            await asyncio.sleep(1)  # what waits then may be what cannot be written
        finally:
            self._urgent = False

    async def interval(self) -> None:
        """The periodic write; also removes what deleted topics left."""
        try:
            await self.write()
        except OSError as error:
            self._trouble.failed(error)
        else:
            if not self._stuck:
                self._trouble.over()
        await self.sweep()

    async def sweep(self) -> None:
        """Remove the directories of deleted topics."""
        graves = list(self._table.graves)
        if graves and self.before_sweep is not None:
            await self.before_sweep(graves)
        for grave in graves:
            try:
                await self._offload(self._table.disk.remove_tree, grave)
            except OSError as error:
                self._graves.failed(error)
            else:
                self._graves.over()
            self._table.graves.remove(grave)

    async def write(self, *, everything: bool = False, until: float = math.inf) -> bool:
        """Write tails: the large ones and a share of the small ones, or all there are now.

        :param until: the monotonic second after which nothing more is begun.
        :returns: whether there was time for all of them.
        :raises OSError: some could not be written; they are kept, and all others are written. An error that is not
            about the files themselves (no room, no rights) is raised rather than one that is.
        """
        async with self.lock:
            dirty = self._table.dirty
            if everything:
                chosen = list(dirty)
            else:
                stuck = self._stuck
                chosen = [queue for queue in dirty if len(queue.tail) >= _LARGE and queue not in stuck]
                small = 0
                for queue in dirty:
                    if len(queue.tail) < _LARGE and queue not in stuck:
                        chosen.append(queue)
                        small += 1
                        if small >= _SMALL_AT_ONCE:
                            break
                chosen += stuck.next()
            errors: list[OSError] = []
            for at in range(0, len(chosen), _GROUP):
                if self._monotonic() > until:
                    return False
                failed = await self._write_group(chosen[at : at + _GROUP])
                for queue, error in failed.items():
                    self._stuck.failed(queue, error)
                errors += failed.values()
                await asyncio.sleep(0)
            self._stuck.weigh()
            _raise(errors)
            return True

    async def _write_group(self, group: list[Queue]) -> dict[Queue, OSError]:
        """Write all entries that some queues have now; those where that failed, and why."""
        table = self._table
        open_files = table.open_files
        goals = {queue: queue.next for queue in group}
        failed: dict[Queue, OSError] = {}
        if table.before_write is not None:
            for queue in group:
                try:
                    written = await table.before_write(queue)
                except OSError as error:
                    failed[queue] = error
                    del goals[queue]
                    continue
                for key, new in written:
                    self._unsynced[key] = None
                    if new:
                        self._note_directories(key[0])
        while goals:
            missing: list[tuple[Queue, Target]] = []
            for queue in goals:
                target = Target.of(queue, table.file_size)
                if target.new or open_files.get(target.key) is None:
                    missing.append((queue, target))
            if missing:
                targets = [target for _, target in missing]
                opened = await open_each_aside(self._offload, table.disk.open_targets, targets, close=_close)
                for (queue, target), file in zip(missing, opened, strict=True):
                    if isinstance(file, OSError):
                        failed[queue] = file
                        del goals[queue]
                    else:
                        self._opened(queue, target, file)
            for queue in list(goals):
                files: QueueFiles = queue.files
                held_back = table.held_back(queue)
                if files.dropped or len(queue.tail) <= held_back:
                    del goals[queue]
                    continue
                target = Target.of(queue, table.file_size)
                shared = open_files.get(target.key)
                if shared is None or target.new:
                    continue
                size = min(len(queue.tail) - held_back, table.file_size - target.position)
                try:
                    shared.file.pwrite(queue.tail[:size], target.position)
                except OSError as error:
                    failed[queue] = error
                    del goals[queue]
                    continue
                del queue.tail[:size]
                queue.tail_from += size // ENTRY_SIZE
                table.pending -= size
                self._unsynced[target.key] = None
                if len(queue.tail) <= held_back:
                    table.dirty.pop(queue, None)
                    self._stuck.written(queue)
                if queue.tail_from >= goals[queue]:
                    del goals[queue]
        return failed

    def _opened(self, queue: Queue, target: Target, file: File) -> None:
        files: QueueFiles = queue.files
        if files.dropped:
            # Deleted meanwhile; if its file was made after that, the directory goes the same way as the first.
            file.close()
            if target.new and self._table.get(queue.topic, queue.id) is None:
                self._table.bury_leftover(files.directory)
            return
        self._table.open_files.put(target.key, file)
        if target.new:
            files.starts.append(target.key[1])
            self._note_directories(files.directory)

    def _note_directories(self, directory: str) -> None:
        """A file is new there: its name, and the directory's, are to be forced to disk."""
        topic = os.path.dirname(directory)
        root = os.path.dirname(topic)
        for path in (os.path.dirname(root), root, topic, directory):
            self._unsynced_directories[path] = None

    def was_cut(self, queue: Queue) -> None:
        """Entries on disk were taken away beside the writer: :meth:`sync` forces that as what it has written."""
        files: QueueFiles = queue.files
        if files.starts:
            self._unsynced[files.directory, files.starts[-1]] = None
            self._unsynced_directories[files.directory] = None

    async def sync(self, *, until: float = math.inf) -> bool:
        """Force to disk what was written.

        :param until: the monotonic second after which nothing more is begun.
        :returns: whether there was time for all of it.
        :raises OSError: some of it may not be there; it is written again and forced next time, or by a recovery.
        """
        async with self.lock:
            items = list(self._unsynced)
            directories = list(self._unsynced_directories)
            if self._monotonic() > until:
                return not items and not directories
            errors: list[OSError] = []
            if self._in_doubt:
                doubtful = await self._offload(self._table.disk.write_again, list(self._in_doubt))
                items = [key for key in items if key not in doubtful]
                errors += doubtful.values()
            if len(items) + len(directories) > _ONE_BY_ONE:
                try:
                    await self._offload(self._table.disk.sync_all)
                except BaseException:
                    self._in_doubt.update(dict.fromkeys(items))
                    raise
                for key in items:
                    self._unsynced.pop(key, None)
                    self._in_doubt.pop(key, None)
                for path in directories:
                    self._unsynced_directories.pop(path, None)
                _raise(errors)
                return True
            for at in range(0, len(items), _GROUP):
                if self._monotonic() > until:
                    return False
                errors += await self._sync_group(items[at : at + _GROUP])
            for at in range(0, len(directories), _GROUP):
                if self._monotonic() > until:
                    return False
                group_directories = directories[at : at + _GROUP]
                failed = await self._offload(self._table.disk.sync_directories, group_directories)
                for path in group_directories:
                    if path not in failed:
                        self._unsynced_directories.pop(path, None)
                errors += failed.values()
            _raise(errors)
            return True

    async def _sync_group(self, group: list[FileKey]) -> list[OSError]:
        pinned = [(key, self._table.open_files.get(key)) for key in group]
        try:
            failed = await self._offload(
                self._table.disk.sync, [(key, shared.pin() if shared else None) for key, shared in pinned]
            )
        except BaseException:
            # What it failed for is not known where a stop came in between.
            self._in_doubt.update(dict.fromkeys(group))
            raise
        finally:
            for _, shared in pinned:
                if shared is not None:
                    shared.unpin()
        for key in group:
            if key in failed:
                self._in_doubt[key] = None
            else:
                self._unsynced.pop(key, None)
                self._in_doubt.pop(key, None)
        return list(failed.values())


def _raise(errors: list[OSError]) -> None:
    """Raise one of what happened, if anything did: the one that whoever runs the broker has to mend."""
    if errors:
        raise next((error for error in errors if error.errno not in SPOILT), errors[-1])


def _close(target: File | OSError) -> None:
    if not isinstance(target, OSError):
        target.close()
