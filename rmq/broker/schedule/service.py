"""Delivers delayed messages to their own topics when they are due (store-and-broker.md 7.1)."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from rmq.broker.delays import DelayLevels
from rmq.broker.schedule.levels import DelayOffsets
from rmq.broker.schedule.rebuild import BATCH_PROPERTIES, HalfMessageParked, rebuild
from rmq.broker.schedule.steady import Shifts, SteadyClock
from rmq.broker.store.aside import SetAside
from rmq.broker.store.queues.deletions import TopicDeleted
from rmq.broker.store.queues.files import is_blank
from rmq.broker.store.state import ENTRY_SIZE, Put, Queue
from rmq.broker.store.store import Store
from rmq.broker.store.trouble import Trouble
from rmq.broker.topics.metadata import MetadataFile
from rmq.broker.topics.names import SCHEDULE_TOPIC
from rmq.protocol.errors import ProtocolError, StoreError
from rmq.runtime import patience
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

__all__ = ["ScheduleService"]

log = logging.getLogger(__name__)

#: Messages and bytes one level delivers before the others, and the loop, get their turn.
_BATCH = 64
_BATCH_BYTES = 1 << 20
#: Longest sleep while something waits, seconds: how late a step of the wall clock is noticed.
_LONGEST_SLEEP = 1.0
#: Pauses after a failed append, seconds.
_FIRST_RETRY = 0.1
#: Hundredths of a second that a stop waits for what was delivered to be on disk.
_STOP_TRIES = 200
_LAST_RETRY = 5.0


class ScheduleService:
    """One task for all levels: it sleeps until the next message is due or a new one arrives, and never polls.

    A level's offset that is written to delayOffset.json never passes a delivery that is not durable yet, so a crash
    delivers again rather than never.

    :param world: clock, files, offload.
    :param store: where delayed messages lie and delivered ones go.
    :param levels: the delays.
    :param path: delayOffset.json.
    :param flush_interval: ``flushDelayOffsetInterval``, ms.
    :param steady: the clock that delays are measured with.
    :param offsets: how far each level is delivered, for who asks.
    """

    def __init__(
        self,
        world: World,
        store: Store,
        levels: DelayLevels,
        path: str,
        flush_interval: int = 10_000,
        steady: SteadyClock | None = None,
        offsets: DelayOffsets | None = None,
    ) -> None:
        self._world = world
        self._steady = steady if steady is not None else SteadyClock(world.clock)
        self._steady.on_step.append(self._stepped)
        self._shifts: defaultdict[int, Shifts] = defaultdict(Shifts)
        self._store = store
        #: Told the messages of each delivery.
        self.on_delivered: Callable[[list[Put]], None] = lambda puts: None
        self.levels = levels
        #: How far each level is delivered (what 28 and 45 tell).
        self.offsets = offsets if offsets is not None else DelayOffsets()
        self._durable = DelayOffsets()
        self._durable.aside = self.offsets.aside
        self._ahead: deque[tuple[int, int, int]] = deque()  # (commit-log end, level, offset), in log order
        self._heads: dict[int, int] = {}  # level -> when its first message is due, by the steady clock
        self._file = MetadataFile(world, path, self._durable.render)
        self._flush_interval = flush_interval
        self._wake = asyncio.Event()
        self.tasks = TaskOwner("schedule")
        self._trouble = Trouble(world.clock, log, "delivering delayed messages", "they are late until that works")
        self._retry = _FIRST_RETRY
        #: (level, index) of messages that could not be read: their level goes on without them.
        self._aside: SetAside[tuple[int, int]] = SetAside(world.clock, log, "delivering a delayed message")
        #: Those of them that are delivered, and where the log ends behind that: (end, (level, index)), in log order.
        self._made_up: deque[tuple[int, tuple[int, int]]] = deque()

    async def load(self) -> None:
        """Read delayOffset.json and bring every level into what its queue holds.

        :raises StoreError: neither the file nor its backup can be read.
        """
        self._file.load(self.offsets.parse)
        corrected = False
        for level, offset in list(self.offsets.table.items()):
            queue = self._store.queues.get(SCHEDULE_TOPIC, level - 1)
            if queue is None:
                fixed = self.offsets.correct(level, 0, 0)
            elif offset > queue.next:
                # Not from the end of the queue: what was not due when this store was last written was not delivered.
                fixed = await self._first_after(queue, self._store.log.stamp)
                self.offsets.set(level, fixed)
            else:
                fixed = self.offsets.correct(level, queue.min, queue.next)
            if fixed != offset:
                corrected = True
                # Behind the end: messages were there.
                level_of_log = logging.CRITICAL if queue is not None and offset > queue.next else logging.WARNING
                log.log(
                    level_of_log,
                    "delayOffset.json says %d for level %d, which its queue does not hold; delivery goes on at %d",
                    offset,
                    level,
                    fixed,
                )
        self._durable.load(self.offsets.table)
        self._durable.changed = corrected
        self._take_aside()

    def _take_aside(self) -> None:
        """Try anew what was set aside before the start, as far as its queue still has it."""
        held = sorted(self._durable.aside)
        self._durable.aside.clear()
        for level, index in held:
            queue = self._store.queues.get(SCHEDULE_TOPIC, level - 1)
            if queue is None:
                continue
            if queue.min <= index < self.offsets.get(level):
                self._durable.aside.add((level, index))
                self._aside.keep((level, index), _place(level, index))

    async def _first_after(self, queue: Queue, time: int) -> int:
        """Index of the first message of a level that is due after ``time``, ms."""
        low, high = queue.min, queue.next
        while low < high:
            middle = (low + high) // 2
            try:
                entry = await self._store.queues.entries_cold(queue, middle, 1)
            except OSError as error:
                log.error("entry %d of %r cannot be read: %s; some may come again", middle, queue, error)
                high = middle
                continue
            if int.from_bytes(entry[12:20], "big", signed=True) > time:
                high = middle
            else:
                low = middle + 1
        return low

    # -- what the lane asks when it stores a delayed message

    @property
    def max_level(self) -> int:
        return self.levels.max_level

    def deliver_at(self, level: int, now_ms: int) -> int:
        """When a message that is stored now is due, by the wall clock; notices a step of it before that."""
        self._steady.offset()
        return self.levels.deliver_at(level, now_ms)

    def _stepped(self) -> None:
        """The wall clock was set: what is stored from now on is told apart from what was stored before."""
        offset = self._steady.offset()
        for level in self._used():
            shifts = self._shifts[level]
            queue = self._store.queues.get(SCHEDULE_TOPIC, level - 1)
            shifts.begin(0 if queue is None else queue.next, offset)

    def waiting(self) -> list[tuple[int, int]]:
        """(delay level, messages that wait in it), of every level that was ever used."""
        found = []
        for level in self._used():
            queue = self._store.queues.get(SCHEDULE_TOPIC, level - 1)
            if queue is not None:
                found.append((level, max(0, queue.visible - self.offsets.get(level))))
        return found

    def _used(self) -> list[int]:
        """The levels that there are, and those that are named no longer: what waits in them is delivered, too."""
        used = {queue.id + 1 for queue in self._store.queues.all(SCHEDULE_TOPIC)}
        return sorted(used.union(range(1, self.levels.max_level + 1)))

    def start(self) -> None:
        self.tasks.serve(self._run(), "deliver")
        self.tasks.every(self._flush_interval / 1000, self.persist, "offsets", first=10.0)

    async def stop(self) -> None:
        """End delivery and write the offsets: after a clean stop nothing is delivered again."""
        await self.tasks.close()
        flusher = self._store.flusher
        for _ in range(_STOP_TRIES):
            if flusher.failed or not self._ahead or self._ahead[-1][0] <= self._store.durable_end():
                break
            flusher.request()
            await asyncio.sleep(0.01)
        await self.persist()
        await self._file.close()

    def arrived(self, queues: Iterable[Queue]) -> None:
        """Queues got messages that are visible now; those of the schedule topic wake the service."""
        for queue in queues:
            if queue.topic == SCHEDULE_TOPIC:
                self._wake.set()
                return

    async def persist(self) -> None:
        """Write how far deliveries are durable."""
        end = self._store.durable_end()
        while self._ahead and self._ahead[0][0] <= end:
            _, level, offset = self._ahead.popleft()
            self._durable.set(level, offset)
        while self._made_up and self._made_up[0][0] <= end:
            self._durable.aside.discard(self._made_up.popleft()[1])
            self._durable.changed = True
        if self._durable.changed:
            self._durable.changed = False
            self._file.changed()
        await self._file.flush()

    # -- delivery

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                pause = await self._pass()
            except (StoreError, OSError) as error:
                self._trouble.failed(error)
                await asyncio.sleep(self._retry)
                self._retry = min(self._retry * 2, _LAST_RETRY)
                continue
            self._trouble.over()
            if pause == 0.0:
                await asyncio.sleep(0)
            elif pause is None:
                await self._wake.wait()
            else:
                try:
                    async with patience.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    async def _pass(self) -> float | None:
        """Look at every level once; seconds until there is something to do, or None when nothing waits."""
        await self._try_again()
        pause = self._aside.pause()
        for level in self._used():
            queue = self._store.queues.get(SCHEDULE_TOPIC, level - 1)
            if queue is None or queue.visible <= self.offsets.get(level):
                continue
            rest = await self._level(level, queue)
            if rest == 0.0:
                await asyncio.sleep(0)
            if rest is not None and (pause is None or rest < pause):
                pause = rest
        return pause

    async def _try_again(self) -> None:
        """Deliver what was set aside and is to be tried now."""
        for level, index in self._aside.due():
            queue = self._store.queues.get(SCHEDULE_TOPIC, level - 1)
            if queue is None or index < queue.min:
                self._made_up_for(level, index, self._store.log.end)
                continue
            if index >= self.offsets.get(level):
                continue  # its level has not passed it yet: the append of that batch failed
            try:
                entry = await self._store.queues.entries_cold(queue, index, 1)
                due = self._due(level, queue, index, entry)
                if due > (now := self._steady.now_ms()):
                    self._aside.later((level, index), (due - now) / 1000)
                    continue
                put = await self._read(level, index, *_place_of(entry))
            except Exception as error:
                self._set_aside(level, index, error)
                continue
            self._made_up_for(level, index, self._append([] if put is None else [put]))

    def _made_up_for(self, level: int, index: int, end: int) -> None:
        self._aside.done((level, index))
        self._made_up.append((max(end, self._made_up[-1][0] if self._made_up else 0), (level, index)))

    def _set_aside(self, level: int, index: int, error: Exception) -> None:
        """A message failed, and none but this one waits for it, unless it is the store that fails."""
        if self._store.log.gate or (self._aside.full and (level, index) not in self._aside):
            raise error if isinstance(error, OSError) else StoreError(str(error)) from error
        self._aside.failed((level, index), _place(level, index), error)
        self._durable.aside.add((level, index))

    def _due(self, level: int, queue: Queue, index: int, entry: bytes) -> int:
        """When an entry is due, ms of the steady clock."""
        shifts = self._shifts[level]
        due = shifts.due(index, int.from_bytes(entry[12:20], "big", signed=True))
        latest = self._steady.now_ms() + self.levels.delay(level)
        if due > latest and level <= self.levels.max_level:  # how long others wait is not known any more
            # Stored before this start by a clock that was ahead, or when the level was longer.
            shifts.cap(queue.next, latest)
            due = shifts.due(index, due)
        return due

    async def _level(self, level: int, queue: Queue) -> float | None:
        """Deliver a batch of one level; seconds until its next message, 0 for at once, None for no more."""
        self._steady.offset()
        head = self._heads.get(level)
        now = self._steady.now_ms()
        if head is not None and head > now:
            return min((head - now) / 1000, _LONGEST_SLEEP)
        shifts = self._shifts[level]
        shifts.forget(self.offsets.get(level))
        offset = self.offsets.correct(level, queue.min, queue.next)
        entries = await self._entries(level, queue, offset, min(_BATCH, queue.visible - offset))
        if not entries:
            return _FIRST_RETRY
        puts: list[Put] = []
        size = texts = 0
        taken = offset
        waits: int | None = None
        stuck: Exception | None = None
        for start in range(0, len(entries) - ENTRY_SIZE + 1, ENTRY_SIZE):
            entry = entries[start : start + ENTRY_SIZE]
            due = self._due(level, queue, taken, entry)
            if due > now:
                waits = due
                break
            if size >= _BATCH_BYTES or texts >= BATCH_PROPERTIES:
                break
            if (level, taken) in self._aside:
                taken += 1  # it was set aside before the append of this batch failed
                continue
            position, length = _place_of(entry)
            try:
                put = await self._read(level, taken, position, length)
            except Exception as error:
                try:
                    self._set_aside(level, taken, error)
                except (StoreError, OSError) as failed:
                    stuck = failed
                    break
                put = None
            if put is not None:
                puts.append(put)
                size += length
                texts += len(put.properties)
            taken += 1
        if waits is None:
            self._heads.pop(level, None)
        else:
            self._heads[level] = waits
        if taken != offset:
            end = self._append(puts)
            self.offsets.set(level, taken)
            self._ahead.append((end, level, taken))
        if stuck is not None:
            raise stuck
        if taken >= queue.visible:
            return None
        if waits is None:
            return 0.0
        return min(max(waits - now, 0) / 1000, _LONGEST_SLEEP)

    def _append(self, puts: list[Put]) -> int:
        """Append the due messages; the commit-log end they make."""
        puts = [put for put in puts if not put.queue.files.dropped]  # deleted while others were read
        if not puts:
            return self._ahead[-1][0] if self._ahead else 0
        try:
            end = self._store.append(puts).end
        except Exception as error:
            if self._store.log.gate or isinstance(error, OSError):
                raise
            if len(puts) == 1:
                log.error("a delayed message for %s cannot be stored and is skipped: %s", puts[0].queue.topic, error)
                return self._store.log.end
            # One of them is at fault.
            return max([self._append([put]) for put in puts])
        self.on_delivered(puts)
        self._retry = _FIRST_RETRY
        return end

    async def _entries(self, level: int, queue: Queue, index: int, count: int) -> bytes:
        """Some entries; where the next one alone cannot be read, it is set aside, and there are none this time."""
        queues = self._store.queues
        try:
            return await queues.entries_cold(queue, index, count)
        except OSError:
            try:
                return await queues.entries_cold(queue, index, 1)
            except OSError as error:
                self._set_aside(level, index, error)
                self._ahead.append((self._store.log.end, level, index + 1))
                self.offsets.set(level, index + 1)
                return b""

    async def _read(self, level: int, index: int, position: int, length: int) -> Put | None:
        """The message at a place of the log as it is to be delivered, or None when it must be skipped."""
        if is_blank(position, length):
            return None  # who left the place to no message has told why
        queue = self._store.queues.get(SCHEDULE_TOPIC, level - 1)
        data = b"" if queue is None else await self._store.messages.of_entry(queue, index, position, length)
        try:
            return rebuild(data, lambda topic, queue_id: self._store.destination(topic, queue_id, position))
        except TopicDeleted:
            return None
        except HalfMessageParked as error:
            log.error("a delayed transactional message is dropped: %s", error)
        except (ProtocolError, StoreError, ValueError) as error:
            log.error("%s cannot be delivered and is skipped: %s", _place(level, index), error)
        return None


def _place(level: int, index: int) -> str:
    return f"{SCHEDULE_TOPIC}-{level - 1} at {index}"


def _place_of(entry: bytes) -> tuple[int, int]:
    """Where the record of a queue entry lies in the log, and its bytes."""
    return int.from_bytes(entry[:8], "big", signed=True), int.from_bytes(entry[8:12], "big", signed=True)
