"""Cuts the log back (a slave whose master has another end, a follower of Raft), and takes everything back with it.

What was made of records behind the cut goes first: queues, keys, the marks of what is on disk and what is visible; the
log itself goes last. A kill on the way leaves what any kill leaves, for the next start to build anew from the log.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from rmq.broker.store.care.upkeep import Upkeep
from rmq.broker.store.catch_up import CatchUp
from rmq.broker.store.dispatcher import Dispatcher
from rmq.broker.store.index.build import IndexBuild
from rmq.broker.store.log.durability import Answers, Durability
from rmq.broker.store.log.flush import LogFlusher
from rmq.broker.store.log.gate import Gate
from rmq.broker.store.parts import OnDisk
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.queues.writer import QueueWriter
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Queue
from rmq.protocol.errors import StoreError
from rmq.protocol.record import store_time

__all__ = ["Truncation"]

_entries = ENTRY.iter_unpack
#: Entries of a queue looked at in one go.
_AT_ONCE = 4096
#: Bytes of a record in which its store time is.
_HEAD = 80


class Truncation:
    """Everything that a cut takes back.

    :param build: None where ``messageIndexEnable`` is off.
    """

    def __init__(
        self,
        disk: OnDisk,
        writer: QueueWriter,
        dispatcher: Dispatcher,
        catch_up: CatchUp,
        build: IndexBuild | None,
        durability: Durability,
        flusher: LogFlusher,
        upkeep: Upkeep,
    ) -> None:
        self._log = disk.log
        self._queues = disk.queues
        self._writer = writer
        self._dispatcher = dispatcher
        self._catch_up = catch_up
        self._index = disk.index
        self._build = build
        self._durability = durability
        self._flusher = flusher
        self._checkpoint = disk.checkpoint
        self._deletions = disk.deletions
        self._damaged = disk.damaged
        self._upkeep = upkeep

    async def run(self, to: int) -> Answers:
        """Cut everything from commit-log offset ``to`` on, where a record begins or half of one; nothing is appended
        meanwhile.

        :returns: answers for those who have waited for what is gone.
        :raises StoreError: ``to`` lies outside the log.
        :raises OSError: the disk refused; it may be called again.
        """
        commit_log = self._log
        if not commit_log.start <= to <= commit_log.end:
            raise StoreError(f"the log holds {commit_log.start} to {commit_log.end} and cannot be cut at {to}")
        commit_log.gate |= Gate.CUT
        try:
            async with AsyncExitStack() as still:
                await still.enter_async_context(self._catch_up.lock)
                if self._build is not None:
                    await still.enter_async_context(self._build.turn)
                async with self._writer.lock:
                    await self._cut_queues(to)
                self._dispatcher.log_ends(to)
                self._deletions.log_ends(to)
                if self._index is not None and self._build is not None:
                    await self._index.cut(to)
                    self._build.log_ends(to)
                    if self._build.complete:
                        self._dispatcher.index_from = min(self._dispatcher.index_from, to)
                answers = self._durability.log_ends(to)
                self._flusher.log_ends(to)
                # First, as all that was made of it; and again, for who reads the log meanwhile makes more.
                await commit_log.checksums.log_ends(to)
                await commit_log.truncate(to)
                await self._flusher.force_cut()
                await commit_log.checksums.log_ends(to)
                await self._note(to)
        finally:
            commit_log.gate &= ~Gate.CUT
        return answers

    async def _cut_queues(self, to: int) -> None:
        for queue in list(self._queues):
            if queue.max_phys > to:
                await self._queues.cut(queue, await self.behind(queue, to))
                self._writer.was_cut(queue)

    async def behind(self, queue: Queue, to: int) -> int:
        """Index behind the last entry of a queue whose record begins before ``to``."""
        a_file = self._queues.file_size // ENTRY_SIZE
        index = queue.next
        while index > queue.min:
            # A read ends with the file of its first entry.
            first = max(queue.min, index - _AT_ONCE, (index - 1) // a_file * a_file)
            data = await self._queues.entries_cold(queue, first, index - first)
            behind = index
            for offset, size, _ in reversed(list(_entries(data))):
                if offset < to and not is_blank(offset, size):
                    return behind
                behind -= 1
            index = first
        return queue.min

    async def _note(self, to: int) -> None:
        """Store times and notes on disk go back to those of what is left."""
        commit_log, checkpoint = self._log, self._checkpoint
        commit_log.stamp = self._flusher.flushed_stamp = await self._newest_stamp()
        checkpoint.steps.forget(commit_log.start, to)
        checkpoint.log_ends(commit_log.stamp)
        await self._upkeep.note_cut(to)
        await self._deletions.saved()
        if self._damaged.forget_from(to):
            await self._damaged.save()

    async def _newest_stamp(self) -> int:
        newest = max(self._queues, key=lambda queue: queue.max_phys, default=None)
        if newest is None or newest.max_phys <= self._log.start:
            return 0 if self._log.end == self._log.start else self._log.stamp
        entry = await self._queues.entries_cold(newest, newest.next - 1, 1)
        data = await self._log.read_cold(int.from_bytes(entry[:8], "big"), _HEAD)
        return store_time(data) if len(data) == _HEAD else self._log.stamp
