"""Puts queue entries right that do not fit the records they point to, when a reader has met one.

What is wrong is either the entry or the record. The commit log between the nearest entries before and behind that fit
is read, checksums and all: a message that is found there gets its entry made anew, and costs nothing. What is damaged
there is told of and kept apart, as when the scrub finds it. An entry for which there is no message becomes blank: a
pull goes past it, and no other message moves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from rmq.broker.store.care.scrub import Scrub
from rmq.broker.store.log.files import file_name
from rmq.broker.store.log.reader import Damage, LogReader
from rmq.broker.store.log.record_runs import Run
from rmq.broker.store.log.records import TagsRule, derive
from rmq.broker.store.log.unreadable import UnreadablePlaces
from rmq.broker.store.parts import OnDisk, StoreGround
from rmq.broker.store.queues.files import BLANK_ENTRY, is_blank
from rmq.broker.store.queues.fitting import fits, is_size
from rmq.broker.store.queues.multi_dispatch import index_named
from rmq.broker.store.queues.pointing import overwrite, piece_end
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Queue

__all__ = ["Mending"]

log = logging.getLogger(__name__)

_entry = ENTRY
#: Seconds that a reader waits; the search goes on without it.
_PATIENCE = 5.0
#: Entries looked at before the loop goes on, and read at a time.
_TURN = 64
_BLOCK = 512


class Mending:
    """Mends the entries of one store.

    :param scrub: tells of damaged parts of the log and keeps them apart.
    :param dispatched: up to where the log's records are in queues.
    """

    def __init__(
        self,
        ground: StoreGround,
        disk: OnDisk,
        scrub: Scrub,
        rule: TagsRule,
        dispatched: Callable[[], int],
    ) -> None:
        self._world = ground.world
        self._log = disk.log
        self._queues = disk.queues
        self._damaged = disk.damaged
        self._scrub = scrub
        self._rule = rule
        self._deletions = disk.deletions
        self._dispatched = dispatched
        self._tasks = ground.tasks
        self._lock = asyncio.Lock()
        #: Entries that were made anew from the log, and that became blank, since the start.
        self.remade = 0
        self.blanked = 0

    async def settled(self, queue: Queue, indexes: Sequence[int]) -> bool:
        """Mend some entries of a queue; False while that is still under way when a reader has waited long enough.

        Afterwards each of them fits, is blank, or is one that cannot be told of now: its record cannot be read.

        :raises OSError: the commit log, or the queue, cannot be read or written.
        """
        if self._tasks.closed:
            return False
        task = self._tasks.spawn(self._caught(queue, indexes), "mending")
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE)
        if not done or task.cancelled():
            return False
        error: OSError | None = task.result()
        if error is not None:
            raise error
        return True

    async def _caught(self, queue: Queue, indexes: Sequence[int]) -> OSError | None:
        try:
            await self.settle(queue, indexes)
        except OSError as error:
            return error
        return None

    async def settle(self, queue: Queue, indexes: Sequence[int], *, blank: bool = False) -> None:
        """Mend some entries of a queue, however long it takes.

        :param blank: blank ones are such, too: a good record is known for them.
        :raises OSError: as of :meth:`settled`.
        """
        # One after the other: several readers meet the same damage.
        async with self._lock:
            for number, index in enumerate(indexes, 1):
                if number % _TURN == 0:
                    await asyncio.sleep(0)
                if queue.min <= index < queue.next and not await self._is_good(queue, index, blank=blank):
                    await self._mend(queue, index)

    # -- entries -----------------------------------------------------------------------------------------------------

    async def _read(self, queue: Queue, index: int) -> tuple[int, int, int]:
        data = await self._queues.entries_cold(queue, index, 1)
        return _entry.unpack(data) if len(data) == ENTRY_SIZE else (0, 0, 0)

    async def _is_good(self, queue: Queue, index: int, *, blank: bool = False) -> bool:
        """Whether an entry fits the record it points to, or is a blank one, unless none is expected."""
        offset, size, _ = await self._read(queue, index)
        if 0 <= offset < self._log.start and not is_blank(offset, size) and await self._is_gone(queue, index):
            return True
        return not blank if is_blank(offset, size) else await self._fits(queue, index, offset, size)

    async def _is_gone(self, queue: Queue, index: int) -> bool:
        """Whether an entry points before the log because retention took its record, and those before it."""
        if index == queue.min:
            return True
        offset, size, _ = await self._read(queue, index - 1)
        return is_blank(offset, size) or 0 <= offset < self._log.start

    async def _fits(self, queue: Queue, index: int, offset: int, size: int) -> bool:
        if not is_size(size) or not self._log.start <= offset <= self._log.end - size:
            return False
        try:
            record = await self._log.read_cold(offset, size)
        except OSError:
            return False
        if not fits(queue, index, offset, size, record, crc=True):
            return False
        return not await self._log.checksums.differing((offset,), (record,))

    async def _stretch(self, queue: Queue, index: int) -> tuple[int, int, int, int]:
        """Entries around one that do not fit, from the first to behind the last, and the part of the log for them."""
        first, low = index, max(self._log.start, self._deletions.end_of(queue.topic))
        while first > queue.min:
            offset, size, _ = await self._read(queue, first - 1)
            if not is_blank(offset, size) and await self._fits(queue, first - 1, offset, size):
                low = max(low, offset + size)
                break
            if 0 < offset + size <= self._log.start:
                break  # retention took it, and what lies before
            first -= 1
            if first % _TURN == 0:
                await asyncio.sleep(0)
        behind, high = index + 1, self._dispatched()
        while behind < queue.next:
            offset, size, _ = await self._read(queue, behind)
            if not is_blank(offset, size) and await self._fits(queue, behind, offset, size) and offset >= low:
                high = offset
                break
            behind += 1
            if behind % _TURN == 0:
                await asyncio.sleep(0)
        return first, behind, low, high

    # -- mending -----------------------------------------------------------------------------------------------------

    async def _mend(self, queue: Queue, index: int) -> None:
        first, behind, low, high = await self._stretch(queue, index)
        found = _Found(queue, range(first, behind), self._rule)
        entries = {number: await self._read(queue, number) for number in found.wanted}
        found.pointed = {offset for offset, size, _ in entries.values() if not is_blank(offset, size)}
        reader = LogReader(self._world, self._log)
        reader.unreadable = UnreadablePlaces(self._log.file_size)
        reader.damages = list(self._damaged.parts)
        async for run in reader.runs(low, high):
            found.take(run)
        remade = [number for number, entry in found.right.items() if _entry.pack(*entries[number]) != entry]
        await self.put(queue, {number: found.right[number] for number in remade})
        damages = [part for part in reader.damages if part not in self._damaged.parts]
        if not high <= reader.position and not reader.unreadable.touch(reader.position, high):
            damages.append(Damage(reader.position, high))  # no good record follows
        damages += await self._strangers(
            found, {offset for number, (offset, _, _) in entries.items() if number not in found.right}
        )
        for part in sorted(damages):
            await self._scrub.tell(part)
        lost: list[int] = []
        for number in found.wanted:
            if number not in found.right and not await self._is_good(queue, number):
                offset, size, _ = entries[number]
                if reader.passed_over and _may_be_there(reader.passed_over, offset, size):
                    continue  # it cannot be read now
                lost.append(number)
        await self.put(queue, dict.fromkeys(lost, BLANK_ENTRY))
        if damages:
            await self._damaged.save()
        self.remade += len(remade)
        self.blanked += len(lost)
        if remade or lost:
            at = min(remade + lost) * ENTRY_SIZE
            start = at - at % self._queues.file_size
            log.critical(
                "%s/%s is damaged at %d: %d entries from index %d on did not point to their messages; %d were made "
                "anew from the commit log, %d have become blank: their messages are lost; have the disk checked",
                queue.files.directory, file_name(start), at - start, len(remade) + len(lost), at // ENTRY_SIZE,
                len(remade), len(lost),
            )  # fmt: skip

    async def _strangers(self, found: _Found, pointed: set[int]) -> list[Damage]:
        """Records that were taken for others' messages, while these others have theirs.

        It is the record that has changed then, where no checksum covers it.

        :param pointed: where entries point to whose messages were not found.
        """
        damages: list[Damage] = []
        for offset, (size, topic, queue_id, index) in found.others.items():
            if offset not in pointed or self._deletions.is_dead(topic, offset):
                continue
            queue = self._queues.get(topic, queue_id)
            if queue is not None and queue.min <= index < queue.next:
                place, length, _ = await self._read(queue, index)
                if place == offset or not (is_blank(place, length) or await self._fits(queue, index, place, length)):
                    continue  # its own entry is another wrong one
            damages.append(Damage(offset, offset + size))
            file = self._log.segment_of(offset)
            log.error(
                "the record at %d (%s) says that it is message %d of %s-%d, which it is not",
                offset, "the commit log" if file is None else file.path, index, topic, queue_id,
            )  # fmt: skip
        return damages

    async def put(self, queue: Queue, entries: dict[int, bytes]) -> None:
        """Write entries in the place of others, those that lie side by side in one go."""
        numbers = sorted(entries)
        at = 0
        while at < len(numbers):
            first = numbers[at]
            end = min(piece_end(self._queues, queue, first), first + _BLOCK)
            piece = b""
            while at < len(numbers) and numbers[at] == first + len(piece) // ENTRY_SIZE < end:
                piece += entries[numbers[at]]
                at += 1
            if not await overwrite(self._queues, self._world.offload, queue, first, piece):
                break
        if numbers:
            self._queues.cuts += 1  # what pulls keep of entries is void


class _Found:
    """What a part of the log has for some entries of a queue.

    :param wanted: their indexes.
    """

    def __init__(self, queue: Queue, wanted: range, rule: TagsRule) -> None:
        self.queue = queue
        self.wanted = wanted
        self._rule = rule
        #: Where the entries point to.
        self.pointed: set[int] = set()
        #: Index -> the entry that its message has.
        self.right: dict[int, bytes] = {}
        #: Where entries point to and there are records of others: size, topic, queue and index.
        self.others: dict[int, tuple[int, str, int, int]] = {}

    def take(self, run: Run) -> None:
        """Look at some records."""
        queue, wanted, pointed = self.queue, self.wanted, self.pointed
        for at, size, sys_flag, queue_id, index, topic, text in run.records:
            if sys_flag & 0x4:
                continue
            offset = run.base + at
            if topic == queue.topic and queue_id == queue.id:
                mine = index
            else:
                mine = index_named(run.data[text : at + size], queue_id, queue)
            if mine in wanted:
                self.right[mine] = _entry.pack(offset, size, derive(run.data, at, self._rule).tags_code)
            elif offset in pointed:
                self.others[offset] = size, topic, queue_id, index


def _may_be_there(places: Sequence[Damage], offset: int, size: int) -> bool:
    return any(part.start < offset + max(size, 1) and offset < part.end for part in places)
