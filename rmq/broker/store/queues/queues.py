"""Every consume queue of the broker: its hot end in memory, the rest in files opened as needed.

New entries wait in ``Queue.tail``, where they can be read; :mod:`rmq.broker.store.queues.writer` moves them to disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from rmq.broker.store.open_files import OpenFiles, SharedFile, open_aside
from rmq.broker.store.queues.files import BLANK_ENTRY, FileKey, QueueDisk, QueueFiles, is_blank
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import ENTRY_SIZE, Queue
from rmq.protocol.errors import StoreError
from rmq.protocol.names import is_lmq
from rmq.runtime.world import World

__all__ = ["QueueTable"]

log = logging.getLogger(__name__)


class QueueTable:
    """Finds queues and reads their entries.

    :param world: files and threads.
    :param settings: paths and sizes.
    """

    def __init__(self, world: World, settings: StoreSettings) -> None:
        self._offload = world.offload
        self.file_size = settings.queue_file_size
        self.disk = QueueDisk(world.files, settings.root, self.file_size, mends=True)
        self.open_files = OpenFiles()
        #: Queues with entries that are not on disk, the longest waiting first.
        self.dirty: dict[Queue, None] = {}
        #: Called with a queue that is deleted.
        self.on_dropped: list[Callable[[Queue], None]] = []
        #: Bytes of such entries.
        self.pending = 0
        #: Queues that clients' messages are refused for, each with the reason: too many of its entries wait.
        self.full: dict[Queue, str] = {}
        #: Called with a queue that came into ``full`` or left it.
        self.on_full: list[Callable[[Queue], None]] = []
        #: Light message queues among the queues; and where in the log what a start has taken away from them begins.
        self.lmq_count = 0
        self.light_lack_from: int | None = None
        #: How often entries were taken away from behind, or with their queue: what was read of them is void.
        self.cuts = 0
        #: Indexes that nobody is to get again, for their messages are lost: first, and behind the last.
        self.left_out: dict[Queue, list[tuple[int, int]]] = {}
        #: Directories of deleted topics, moved away and still to be removed.
        self.graves: list[str] = []
        #: Keeps of a message what its entry cannot hold; the tags code for the entry. None: entries hold everything.
        self.unit_code: Callable[[Queue, int, int, bytes], int] | None = None
        #: Writes what entries of a queue point to; names the files written to, and whether they are new.
        self.before_write: Callable[[Queue], Awaitable[list[tuple[FileKey, bool]]]] | None = None
        self._topics: dict[str, dict[int, Queue]] = {}
        # Every set that a queue with new entries is put into.
        self._noting = [self.dirty]
        self._cold = asyncio.Semaphore(4)

    def light_lacks(self, offset: int) -> None:
        """A start has found that light message queues lack records from an offset of the log on, which no sum of sizes
        tells.
        """
        known = self.light_lack_from
        self.light_lack_from = offset if known is None else min(known, offset)

    # -- the table -------------------------------------------------------------------------------------------------

    def get(self, topic: str, queue_id: int) -> Queue | None:
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def get_or_create(self, topic: str, queue_id: int) -> Queue:
        """The queue; a new one is in memory only until its first entry (store-and-broker.md 1.1).

        :raises StoreError: a topic or queue id that no queue can have.
        """
        queues = self._topics.get(topic)
        if queues is not None:
            queue = queues.get(queue_id)
            if queue is not None:
                return queue
        if queue_id < 0:
            raise StoreError(f"queue id {queue_id} of topic {topic} is negative")
        directory = self.disk.directory(topic, queue_id)
        queue = Queue(topic, queue_id)
        queue.files = QueueFiles(directory)
        if queues is None:
            queues = self._topics[topic] = {}
        queues[queue_id] = queue
        if is_lmq(topic):
            self.lmq_count += 1
        return queue

    def all(self, topic: str) -> list[Queue]:
        """The queues of a topic, by id."""
        return [queue for _, queue in sorted(self._topics.get(topic, {}).items())]

    def topics(self) -> list[str]:
        """Topics that have a queue."""
        return list(self._topics)

    def __iter__(self) -> Iterator[Queue]:
        for queues in self._topics.values():
            yield from queues.values()

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def drop(self, topic: str) -> None:
        """Delete a topic's queues. They are gone at once; the files are removed off the loop."""
        queues = self._topics.pop(topic, None)
        if queues is None:
            return
        for queue in queues.values():
            self._forget(queue)
        self._bury(f"{self.disk.root}/{topic}", topic=True)

    def drop_queue(self, queue: Queue) -> None:
        """Delete one queue."""
        queues = self._topics.get(queue.topic)
        if queues is None or queues.get(queue.id) is not queue:
            return
        if len(queues) == 1:
            self.drop(queue.topic)
            return
        del queues[queue.id]
        self._forget(queue)
        self._bury(queue.files.directory)

    def _forget(self, queue: Queue) -> None:
        files: QueueFiles = queue.files
        files.dropped = True
        if is_lmq(queue.topic):
            self.lmq_count -= 1
        self.cuts += 1
        self.pending -= len(queue.tail)
        queue.tail.clear()
        self.left_out.pop(queue, None)
        for noted in self._noting:
            noted.pop(queue, None)
        for start in files.starts:
            self.open_files.close((files.directory, start))
        for listener in self.on_dropped:
            listener(queue)

    def _bury(self, directory: str, *, topic: bool = False) -> None:
        # A rename is quick, and a topic of the same name may be created in the next moment.
        try:
            grave = self.disk.bury(directory, topic=topic)
        except OSError as error:
            log.error(
                "%s could not be moved away (%s); remove it by hand while the broker is stopped", directory, error
            )
            return
        if grave is not None:
            self.graves.append(grave)

    def bury_leftover(self, directory: str) -> None:
        """A file of a deleted queue was made after the deletion: its directory goes, too."""
        self._bury(directory)

    def leave_out(self, queue: Queue, end: int) -> int:
        """Have nothing before ``end`` be given to a message again; how many entries that leaves blank.

        They stay in memory until a message follows: a queue that ends in blank entries has Java's broker wait for a
        commit log of 2 GiB before it puts anything into a queue. Who keeps :attr:`left_out` has them meanwhile.
        """
        first = queue.next
        count = end - first
        if count <= 0 or queue.files.dropped:
            return 0
        if first == queue.min and not queue.files.starts:
            queue.min = queue.tail_from = end
        else:
            queue.tail += BLANK_ENTRY * count
            self.pending += ENTRY_SIZE * count
        queue.next = end
        known = self.left_out.setdefault(queue, [])
        while known and known[-1][0] >= first:
            known.pop()  # the queue was cut since
        if known and known[-1][1] == first:
            first, _ = known.pop()
        known.append((first, end))
        return count

    def held_back(self, queue: Queue) -> int:
        """Bytes at the end of a queue's tail that are not to be written before a message follows."""
        known = self.left_out.get(queue)
        if not known or known[-1][1] != queue.next:
            return 0
        return min(len(queue.tail), ENTRY_SIZE * (queue.next - known[-1][0]))

    def known_end(self, queue: Queue) -> int:
        """Where a queue ends, without what was left out there."""
        known = self.left_out.get(queue)
        return known[-1][0] if known and known[-1][1] == queue.next else queue.next

    def filled(self, queue: Queue, end: int) -> None:
        """What was left out of a queue has entries up to ``end``."""
        known = self.left_out.get(queue)
        if known and known[-1][0] < end:
            first, behind = known.pop()
            if max(first, end) < behind:
                known.append((max(first, end), behind))

    async def take_place(self, queue: Queue, index: int) -> None:
        """The record of an index that was left out comes after all: what is left out begins behind it, or nowhere."""
        known = self.left_out.get(queue)
        if known and queue.next == known[-1][1] and known[-1][0] <= index:
            del self.left_out[queue]
            await self.cut(queue, index)

    def note(self, touched: list[Queue], entries: int) -> None:
        """``entries`` entries were added to the tails of ``touched`` queues."""
        self.pending += entries * ENTRY_SIZE
        for noted in self._noting:
            for queue in touched:
                noted[queue] = None

    def takes_none(self, queue: Queue, reason: str) -> None:
        """Clients' messages for a queue are refused from now on."""
        self.full[queue] = reason
        for listener in self.on_full:
            listener(queue)

    def takes(self, queue: Queue) -> None:
        """They are taken."""
        if self.full.pop(queue, None) is not None:
            for listener in self.on_full:
                listener(queue)

    def watch(self) -> dict[Queue, None]:
        """A set for one who keeps count: queues that get entries from now on are put into it, and taken out by him.

        With it nobody has to look at every queue, of which there may be 40,000.
        """
        grown: dict[Queue, None] = {}
        self._noting.append(grown)
        return grown

    # -- reading ---------------------------------------------------------------------------------------------------

    def entries(self, queue: Queue, index: int, count: int) -> bytes | None:
        """Up to ``count`` entries from ``index`` on, from memory and the page cache.

        Like Java's, a read ends at the end of the queue file that holds ``index``. The caller asks for what is visible.

        :returns: whole entries; empty when ``index`` is not in the queue; None when they are cold.
        """
        behind = queue.next
        if index < queue.min or index >= behind:
            return b""
        tail_from = queue.tail_from
        if index >= tail_from:
            lo = (index - tail_from) * ENTRY_SIZE
            return bytes(queue.tail[lo : lo + count * ENTRY_SIZE])
        key, position, size = self._range(queue, index, count)
        shared = self.open_files.get(key)
        if shared is None:
            return None
        data = shared.file.pread_hot(size, position)
        return None if data is None else self._with_tail(queue, data, index, count)

    async def entries_cold(self, queue: Queue, index: int, count: int) -> bytes:
        """The same from wherever they are."""
        data = self.entries(queue, index, count)
        return data if data is not None else await self._from_disk(queue, index, count)

    async def single_entries(self, places: Sequence[tuple[Queue, int]]) -> list[bytes]:
        """The entry at each (queue, index), empty where there is none.

        Of thousands of queues few have an open file: those that have none are read in one go off the loop, and keep
        nobody's file from staying open.
        """
        found = [self.entries(queue, index, 1) for queue, index in places]
        cold = [number for number, data in enumerate(found) if data is None]
        if cold:
            ranges = [self._range(*places[number], 1) for number in cold]
            async with self._cold:
                read = await self._offload(self.disk.read_each, ranges)
            for number, data in zip(cold, read, strict=True):
                found[number] = data
        return [data or b"" for data in found]

    async def _from_disk(self, queue: Queue, index: int, count: int) -> bytes:
        async with self._cold:
            key, position, size = self._range(queue, index, count)
            shared = await self._open(key)
            try:
                data = await self._offload(shared.pin().pread, size, position)
            finally:
                shared.unpin()
        return self._with_tail(queue, data, index, count)

    async def _open(self, key: FileKey) -> SharedFile:
        shared = self.open_files.get(key)
        if shared is None:
            file = await open_aside(self._offload, self.disk.open_file, key)
            shared = self.open_files.put(key, file)
        return shared

    def _range(self, queue: Queue, index: int, count: int) -> tuple[FileKey, int, int]:
        at = index * ENTRY_SIZE
        start = at - at % self.file_size
        stop = min(at + count * ENTRY_SIZE, start + self.file_size, queue.tail_from * ENTRY_SIZE)
        return (queue.files.directory, start), at - start, stop - at

    def _with_tail(self, queue: Queue, data: bytes, index: int, count: int) -> bytes:
        """Go on in memory where the entries on disk end, unless the file ends there, too."""
        have = len(data) // ENTRY_SIZE
        behind = index + have
        if have < count and behind == queue.tail_from and behind * ENTRY_SIZE % self.file_size:
            room = self.file_size // ENTRY_SIZE - behind % (self.file_size // ENTRY_SIZE)
            return data + bytes(queue.tail[: min(count - have, room) * ENTRY_SIZE])
        return data

    # -- changing what is on disk ----------------------------------------------------------------------------------

    async def cut(self, queue: Queue, index: int) -> None:
        """Take away the entries from ``index`` on; what lay behind them becomes zeros."""
        files: QueueFiles = queue.files
        if index >= queue.next:
            return
        self.cuts += 1
        before = len(queue.tail)
        if index >= queue.tail_from:
            del queue.tail[(index - queue.tail_from) * ENTRY_SIZE :]
        else:
            queue.tail.clear()
            queue.tail_from = index
        self.pending -= before - len(queue.tail)
        if not queue.tail:
            self.dirty.pop(queue, None)
        queue.next = index
        queue.visible = min(queue.visible, index)
        queue.min = min(queue.min, index)
        at = queue.tail_from * ENTRY_SIZE
        gone = [(files.directory, start) for start in files.starts if start >= at]
        files.starts = [start for start in files.starts if start < at]
        for key in gone:
            self.open_files.close(key)
        if gone:
            await self._offload(self.disk.remove_files, gone)
        if files.starts and files.starts[-1] + self.file_size > at:
            key = (files.directory, files.starts[-1])
            await self._offload(self.disk.cut, key, at - key[1])
        queue.max_phys = await self._end_of_last(queue)

    async def _end_of_last(self, queue: Queue) -> int:
        for index in range(queue.next - 1, queue.min - 1, -1):
            entry = await self.entries_cold(queue, index, 1)
            offset, size = int.from_bytes(entry[:8], "big"), int.from_bytes(entry[8:12], "big")
            if not is_blank(offset, size):  # a blank one stands for no record
                return offset + size
        return 0

    async def restart(self, queue: Queue, index: int) -> None:
        """Begin the queue anew at ``index``: nothing of what it held is readable any more."""
        await self.cut(queue, 0)
        files: QueueFiles = queue.files
        gone = [(files.directory, start) for start in files.starts]
        files.starts = []
        for key in gone:
            self.open_files.close(key)
        await self._offload(self.disk.remove_files, gone)
        queue.min = queue.next = queue.visible = queue.tail_from = index
        queue.max_phys = 0

    async def trim(self, queue: Queue) -> None:
        """The first readable entry has moved: let go of what only the entries before it needed."""

    def close(self) -> None:
        """Close every file."""
        self.open_files.close_all()
