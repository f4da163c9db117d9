"""Deletes what is too old or in the way of new messages, and refuses messages when the disk is full.

Rules: store-and-broker.md 5.4. Files go oldest first, never the newest; unlinking runs off the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from rmq.broker.store.aside import SetAside
from rmq.broker.store.index.index import Index
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.files import LogFile
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.queues.deletions import Deletions
from rmq.broker.store.queues.files import QueueFiles, is_blank
from rmq.broker.store.queues.queues import QueueTable
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import ENTRY_SIZE, Queue
from rmq.broker.store.trouble import Trouble
from rmq.protocol.names import SCHEDULE_TOPIC
from rmq.runtime.world import World

__all__ = ["Retention"]

log = logging.getLogger(__name__)

_FILES_A_ROUND = 10
_MANUAL_ROUNDS = 20
_HOUR_MS = 3_600_000
#: Queues looked at, with entries in memory, before the loop gets its turn: about 1 ms.
_QUEUES_AT_ONCE = 200


class Retention:
    """The clean-up service of one store."""

    def __init__(
        self,
        world: World,
        settings: StoreSettings,
        commit_log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        deletions: Deletions,
    ) -> None:
        self._world = world
        self._offload = world.offload
        self._settings = settings
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._deletions = deletions
        #: Whether a topic that has queues does not exist (set by the broker), and who deletes it when its messages are
        #: gone, too.
        self.is_gone: Callable[[str], bool] = lambda topic: False
        self.on_gone: Callable[[str], None] = queues.drop
        #: Brings queues to disk before the first file of a round goes.
        self.before_delete: Callable[[], Awaitable[None]] | None = None
        #: Up to where the log is seen (set by the store): what is not is not deleted.
        self.shown: Callable[[], int] = lambda: commit_log.end
        self._looking = Trouble(
            world.clock, log, "looking how full the disks are", "messages are taken until one of them refuses"
        )
        self._deleting = Trouble(world.clock, log, "deleting old files", "they stay until that works")
        #: Queues that do not follow the log because of their disk.
        self._behind: SetAside[Queue] = SetAside(world.clock, log, "deleting old files of a queue")
        self._manual = 0
        self._cleaned_to = 0
        #: Used shares of the disks of commit log and consume queues, as last seen; -1 = unknown.
        self.log_ratio = -1.0
        self.queue_ratio = -1.0
        #: Whether a disk that does not look full takes messages: not while it has just refused some all the same.
        self.may_open = True
        #: Messages deleted with files so far, by queues' entries.
        self.deleted_files = 0
        #: Those of them that went before ``fileReservedTime``.
        self.deleted_early = 0

    def trigger(self) -> None:
        """DELETE_EXPIRED_COMMITLOG: the next rounds delete without waiting for the hour."""
        self._manual = _MANUAL_ROUNDS

    async def check_disk(self) -> bool:
        """Look at the disks; close or open the gate. Whether space must be made at once, whatever a file's age."""
        settings = self._settings
        ratios = self._note(*await self._offload(self._measure))
        forcibly = settings.disk_clean_forcibly_percent / 100
        full = frozenset(path for path, ratio in ratios.items() if ratio > forcibly)
        if len(ratios) > 1 and full - self._log.files.full:
            log.warning(
                "%s: more than %d%% of the disk is used; new commit-log files go elsewhere",
                ", ".join(sorted(full)), settings.disk_clean_forcibly_percent,
            )  # fmt: skip
        self._log.files.full = full
        if self.full:
            self._log.close_gate(Gate.DISK_FULL)
        elif self.may_open:
            self._log.open_gate(Gate.DISK_FULL)
        return max(self.log_ratio, self.queue_ratio) > min(settings.disk_warning_percent / 100, forcibly)

    def look(self) -> None:
        """Look at the disks, and change nothing. Blocks."""
        self._note(*self._measure())

    @property
    def full(self) -> bool:
        """Whether too much of a disk is used for messages, as last seen."""
        return max(self.log_ratio, self.queue_ratio) > self._settings.disk_warning_percent / 100

    def _measure(self) -> tuple[dict[str, float], OSError | None]:
        """Used shares by path, -1 where that cannot be told."""
        ratios: dict[str, float] = {}
        failed: OSError | None = None
        for path in {*self._settings.commit_log_paths, self._settings.root}:
            try:
                ratios[path] = self._world.files.usage(path).ratio
            except OSError as error:
                ratios[path] = -1.0
                failed = error
        return ratios, failed

    def _note(self, found: dict[str, float], error: OSError | None) -> dict[str, float]:
        """Shares of the disks with the commit log, by path."""
        if error is None:
            self._looking.over()
        else:
            self._looking.failed(error)
        ratios = {path: found[path] for path in self._settings.commit_log_paths}
        self.log_ratio = min(ratios.values())
        self.queue_ratio = found[self._settings.root]
        return ratios

    async def run(self) -> None:
        """One round; an error is told in the log."""
        try:
            await self._round()
        except OSError as error:
            self._deleting.failed(error)
        else:
            self._deleting.over()

    async def _round(self) -> None:
        at_once = await self._must_make_room()
        limit = min(95, max(10, self._settings.disk_max_used_percent)) / 100
        full = any(ratio < 0 or ratio > limit for ratio in (self.log_ratio, self.queue_ratio))
        if at_once or full or self._is_time() or self._manual:
            self._manual = max(0, self._manual - 1)
            await self._delete_log_files(at_once=at_once)
        if self._log.start != self._cleaned_to:
            self._cleaned_to = self._log.start
            await self.delete_derived()
        for queue in self._behind.due():
            try:
                if not queue.files.dropped:
                    await self.correct_min(queue)
            except OSError as error:
                self._behind.failed(queue, queue.files.directory, error)
            else:
                self._behind.done(queue)

    async def _must_make_room(self) -> bool:
        """Whether files go whatever their age."""
        return await self.check_disk() and self._settings.clean_forcibly

    def _is_time(self) -> bool:
        hour = datetime.fromtimestamp(self._world.clock.now_ms() // 1000).hour
        return any(text.strip().isdigit() and int(text) == hour for text in self._settings.delete_when.split(";"))

    async def _delete_log_files(self, *, at_once: bool) -> None:
        settings = self._settings
        for _ in range(_FILES_A_ROUND):
            files = self._log.segments
            if len(files) < 2:
                return
            first = files[0]
            if not self._is_shown(first):
                return
            age = self._world.clock.now_ms() - await self._offload(self._world.files.mtime_ms, first.path)
            if not at_once and age < settings.file_reserved_hours * _HOUR_MS:
                return
            if self.before_delete is not None:
                # A queue whose entries are nowhere else would begin again at 0 after a crash.
                await self.before_delete()
            if not await self._log.remove_first():
                return
            await self._log.checksums.log_begins(self._log.start)
            self.deleted_files += 1
            if age < settings.file_reserved_hours * _HOUR_MS:
                self.deleted_early += 1
                log.warning(
                    "deleted %s to make space: messages from commit-log offset %d to %d are gone before their time, "
                    "consumed or not", first.path, first.start, first.start + self._log.file_size,
                )  # fmt: skip
            else:
                log.info("deleted %s, older than %d hours", first.path, settings.file_reserved_hours)
            await asyncio.sleep(settings.delete_log_pause_ms / 1000)
            if at_once:
                at_once = await self._must_make_room()  # perhaps this one was enough

    def _is_shown(self, file: LogFile) -> bool:
        """Whether all of a file is seen. What a group has not committed may be taken back yet, and needs its place."""
        return file.start + self._log.file_size <= self.shown()

    async def delete_derived(self) -> None:
        """Let queues and index follow the commit log's new start."""
        start = self._log.start
        gone: dict[str, None] = {}
        for at, queue in enumerate(list(self._queues), 1):
            if not at % _QUEUES_AT_ONCE:
                await asyncio.sleep(0)
            if self._is_expired(queue) and self.is_gone(queue.topic):
                gone[queue.topic] = None
            try:
                deleted = await self.correct_min(queue)
            except OSError as error:  # the others do not wait for it; its next round comes with the next file's end
                self._behind.failed(queue, queue.files.directory, error)
            else:
                self._behind.done(queue)
                if deleted:
                    await asyncio.sleep(self._settings.delete_queue_pause_ms / 1000)
        if self._index is not None:
            await self._index.delete_expired(start)
        for topic in gone:
            if all(map(self._is_expired, self._queues.all(topic))) and self.is_gone(topic):
                self.on_gone(topic)
                await asyncio.sleep(0)
        self._deletions.log_begins(start)
        await self._deletions.saved()

    async def correct_min(self, queue: Queue) -> bool:
        """Move a queue's first readable index behind what the log has lost; whether files were deleted for it."""
        start = self._log.start
        first, end = queue.min, queue.next
        if first >= end or await self._offset(queue, first) >= start:
            return False
        # Blank entries count as gone; offsets of the others ascend.
        low, high = first + 1, end
        while low < high:
            middle = (low + high) // 2
            if await self._offset(queue, middle) >= start:
                high = middle
            else:
                low = middle + 1
        if low > queue.min:
            queue.min = low
            await self._queues.trim(queue)
        return await self._delete_queue_files(queue)

    async def _offset(self, queue: Queue, index: int) -> int:
        entry = await self._queues.entries_cold(queue, index, 1)
        if len(entry) < ENTRY_SIZE:
            return 1 << 62
        offset = int.from_bytes(entry[:8], "big")
        return -1 if is_blank(offset, int.from_bytes(entry[8:12], "big")) else offset

    async def _delete_queue_files(self, queue: Queue) -> bool:
        """Delete the files that lie before the first readable entry, never the last one."""
        files: QueueFiles = queue.files
        size = self._queues.file_size
        gone: list[tuple[str, int]] = []
        while len(files.starts) > 1 and files.starts[0] + size <= queue.min * ENTRY_SIZE:
            gone.append((files.directory, files.starts.pop(0)))
        for key in gone:
            self._queues.open_files.close(key)
        if gone:
            await self._offload(self._queues.disk.remove_files, gone)
        return bool(gone)

    def expired_queues(self) -> list[Queue]:
        """Queues whose newest message the log has lost (request 306), but those of the delay schedule."""
        return [queue for queue in self._queues if queue.topic != SCHEDULE_TOPIC and self._is_expired(queue)]

    def _is_expired(self, queue: Queue) -> bool:
        return queue.next > 0 and 0 < queue.max_phys <= self._log.start
