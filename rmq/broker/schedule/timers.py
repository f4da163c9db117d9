"""Delivers messages at times of their own, and takes them back (store-and-broker.md 7.3; docs/delays.md).

Everything that matters lies in the commit log: the waiting message in the timer topic, and a mark, appended together
with the delivery, that says which waiting messages are dealt with. Memory holds 8 bytes a waiting message and is
rebuilt at start from the two queues, from the first message that is not dealt with. So nothing is lost by a crash, and
what a torn append leaves delivered but not marked is delivered once more.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rmq.broker.schedule.done import DoneMap, decode_marks, encode_marks
from rmq.broker.schedule.rebuild import BATCH_PROPERTIES, rebuild
from rmq.broker.schedule.timing import DELETE_KEY, Wait, decode_code, encode_code, may_have, wait_in, wait_of
from rmq.broker.schedule.wheel import Wheel
from rmq.broker.store.aside import SetAside
from rmq.broker.store.own import own_message
from rmq.broker.store.queues.deletions import TopicDeleted
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Put, Queue
from rmq.broker.store.trouble import Trouble
from rmq.protocol.errors import ProtocolError, StoreError
from rmq.protocol.message import MessageRecord, decode_record
from rmq.protocol.names import TIMER_DONE_TOPIC, TIMER_GROUP, TIMER_TOPIC
from rmq.protocol.numbers import INT_MAX, whole
from rmq.remoting.limits import Rationed
from rmq.runtime import patience
from rmq.runtime.tasks import TaskOwner

if TYPE_CHECKING:
    from rmq.broker.groups.offsets import OffsetTable
    from rmq.broker.schedule.steady import SteadyClock
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.state import Span
    from rmq.broker.store.store import Store
    from rmq.runtime.world import World

__all__ = ["TimerService"]

log = logging.getLogger(__name__)

#: Messages and bytes delivered with one append, before the loop gets its turn.
_BATCH = 128
_BATCH_BYTES = 1 << 20
#: Entries read at a time.
_ENTRIES = 1024
#: Seconds of a wheel looked at before the loop gets its turn.
_SECONDS_AT_ONCE = 5_000
#: Longest sleep while something waits for a wall-clock time, seconds: how late a step of that clock is noticed.
_LONGEST_SLEEP = 0.1
#: Longest sleep at all, seconds: a time may be any number.
_LONGEST_PAUSE = 3600.0
_FIRST_RETRY = 0.1
_LAST_RETRY = 5.0
#: How often old messages are looked for, seconds.
_ROLL_SECONDS = 600.0
_HOUR_MS = 3_600_000
#: How often it is noted where the next start may begin, seconds.
_NOTE_SECONDS = 5.0

_entry = ENTRY.unpack_from


class TimerService:
    """One task for all of them: it sleeps until the next one is due or a new one arrives.

    :param steady: the clock of relative delays; times that a producer chose itself are the wall clock's.
    :param store_host: the broker's address, for the marks.
    """

    def __init__(
        self,
        world: World,
        settings: BrokerSettings,
        store: Store,
        offsets: OffsetTable,
        steady: SteadyClock,
        store_host: bytes,
    ) -> None:
        self._clock = world.clock
        self._settings = settings
        self._store = store
        self._offsets = offsets
        self._steady = steady
        self._store_host = store_host
        self._wall_wheel = Wheel()
        self._steady_wheel = Wheel()
        self._done = DoneMap()
        self._seen = 0  # entries of the timer queue before it are in a wheel or dealt with
        self._ahead: deque[tuple[int, int]] = deque()  # (commit-log end, floor), in log order
        self._chunk = (0, b"")  # entries last read, and the index of the first
        self._wake = asyncio.Event()
        self.tasks = TaskOwner("timers")
        self._trouble = Trouble(world.clock, log, "delivering timer messages", "they are late until that works")
        #: Indexes of messages that could not be read or delivered. They are not done, so a restart finds them, too.
        self._aside: SetAside[int] = SetAside(world.clock, log, "delivering a timer message")
        self._unrolled: SetAside[int] = SetAside(world.clock, log, "storing a timer message anew")
        self._retry = _FIRST_RETRY
        self._notes = Rationed(world.clock, most=20)
        #: Told the messages of each delivery.
        self.on_delivered: Callable[[list[Put]], None] = lambda puts: None
        #: Messages delivered since start, by topic.
        self.delivered: Counter[str] = Counter()

    def forget_topic(self, topic: str) -> None:
        """Drop what was counted for a deleted topic."""
        self.delivered.pop(topic, None)

    @property
    def behind(self) -> int:
        """Messages of the timer topic that are not in a wheel yet."""
        queue = self._store.queues.get(TIMER_TOPIC, 0)
        return 0 if queue is None else max(0, queue.visible - self._seen)

    def overdue(self) -> tuple[int, int]:
        """How many messages are due and not delivered, and for how long the first of them has been, ms."""
        found = [
            wheel.overdue(now)
            for wheel, now in ((self._wall_wheel, self._clock.now_ms()), (self._steady_wheel, self._steady.now_ms()))
        ]
        return sum(count for count, _ in found), max(late for _, late in found)

    async def periods(self, bounds: Sequence[int]) -> list[int]:
        """About how many messages are due within so many seconds, each period without the one before it.

        :param bounds: ascending, seconds from now.
        """
        counts = [0] * len(bounds)
        for wheel, now in ((self._wall_wheel, self._clock.now_ms()), (self._steady_wheel, self._steady.now_ms())):
            for number, (second, count) in enumerate(wheel.seconds(), 1):
                period = bisect_left(bounds, second - now // 1000)
                if period < len(bounds):
                    counts[period] += count
                if not number % _SECONDS_AT_ONCE:
                    await asyncio.sleep(0)
        return counts

    def __len__(self) -> int:
        """About how many messages wait."""
        return len(self._wall_wheel) + len(self._steady_wheel)

    async def load(self) -> None:
        """Find out what is dealt with already; what waits is read after the start, while the broker serves."""
        queue = self._store.queues.get(TIMER_TOPIC, 0)
        if queue is None:
            return
        floor = min(max(self._offsets.query(TIMER_GROUP, TIMER_TOPIC, 0), queue.min), queue.next)
        self._done = DoneMap(floor)
        self._seen = floor
        await self._read_marks(queue, floor)

    def start(self) -> None:
        self._store.queue_scrub.codes[TIMER_TOPIC] = self._may_have
        self.tasks.serve(self._deliver(), "deliver")
        self.tasks.every(_ROLL_SECONDS, self.roll, "roll")
        self.tasks.every(_NOTE_SECONDS, self._note_floor, "floor")

    async def stop(self) -> None:
        await self.tasks.close()
        self._store.queue_scrub.codes.pop(TIMER_TOPIC, None)
        self._note_floor()

    def arrived(self, queues: Iterable[Queue]) -> None:
        """Queues got messages that are visible now; those of the timer topic wake the service."""
        for queue in queues:
            if queue.topic == TIMER_TOPIC:
                self._wake.set()
                return

    # -- what waits

    async def _read_marks(self, queue: Queue, floor: int) -> None:
        """Take in the marks that may speak of messages from ``floor`` on: those that lie behind it in the log."""
        marks = self._store.queues.get(TIMER_DONE_TOPIC, 0)
        if marks is None or floor >= queue.next:
            return
        first = await self._position(queue, floor)
        low, high = marks.min, marks.next
        while low < high:
            middle = (low + high) // 2
            if await self._position(marks, middle) < first:
                low = middle + 1
            else:
                high = middle
        async for index, record in self._records(marks, low):
            try:
                for indexes in decode_marks(record.body, queue.next):
                    self._done.add_all(indexes)
            except ValueError as error:
                self._notes.say(log.error, "entry %d of %r is no mark and is skipped: %s", index, marks, error)

    async def _position(self, queue: Queue, index: int) -> int:
        try:
            entry = await self._store.queues.entries_cold(queue, index, 1)
        except OSError:
            return -1
        return int.from_bytes(entry[:8], "big") if len(entry) == ENTRY_SIZE else -1

    async def _records(self, queue: Queue, index: int) -> AsyncIterator[tuple[int, MessageRecord]]:
        while index < queue.next:
            data = await self._entries(queue, index, queue.next - index)
            if isinstance(data, OSError):
                self._notes.say(log.error, "entry %d of %r cannot be read and is skipped: %s", index, queue, data)
                index += 1
                continue
            for at in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
                position, size, _ = _entry(data, at)
                try:
                    record = decode_record(await self._store.messages.of_entry(queue, index, position, size))
                except (ProtocolError, OSError) as error:
                    self._notes.say(log.error, "entry %d of %r cannot be read and is skipped: %s", index, queue, error)
                else:
                    yield index, record
                index += 1
            await asyncio.sleep(0)

    async def _entries(self, queue: Queue, index: int, count: int) -> bytes | OSError:
        """Some entries, at least one; the error when not even that one can be read."""
        count = min(_ENTRIES, count)
        while True:
            try:
                data = await self._store.queues.entries_cold(queue, index, count)
            except OSError as error:
                if count == 1:
                    return error
                count = 1
                continue
            return data if len(data) >= ENTRY_SIZE else OSError(f"there is no entry {index} in its file")

    async def _take_in(self, queue: Queue) -> None:
        """Put into the wheels what has become visible."""
        if self._seen < queue.min:
            self._seen = queue.min
        self._done.skip_to(queue.min)
        while self._seen < queue.visible:
            index = self._seen
            data = await self._entries(queue, index, queue.visible - index)
            if isinstance(data, OSError):
                self._set_aside(index, data)
                self._seen += 1
                continue
            for at in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
                if index not in self._done:
                    try:
                        await self._take(index, *_entry(data, at))
                    except Exception as error:
                        self._set_aside(index, error)
                index += 1
                self._seen = index
            await asyncio.sleep(0)

    def _set_aside(self, index: int, error: Exception) -> None:
        """A message failed, and none but this one waits for it, unless it is the store that fails."""
        if self._store.log.gate or (self._aside.full and index not in self._aside):
            raise error if isinstance(error, OSError) else StoreError(str(error)) from error
        self._aside.failed(index, f"{TIMER_TOPIC}-0 at {index}", error)

    async def _try_again(self, queue: Queue) -> None:
        """Take in anew what was set aside and is to be tried now."""
        for index in self._aside.due():
            if index in self._done:
                self._aside.done(index)
                continue
            try:
                data = await self._store.queues.entries_cold(queue, index, 1)
                await self._take(index, *_entry(data, 0))
            except Exception as error:
                self._set_aside(index, error)

    async def _take(self, index: int, position: int, size: int, code: int) -> None:
        known = decode_code(code)
        if known is None:
            # Recovery dispatched it anew, or Java wrote it: the record itself says what the entry does not.
            known = wait_in(await self._raw(index, position, size))
            if known is None:
                log.error("the message at %d waits for no readable time and is skipped", position)
                self._settle([], [index])
                return
        if known.deletes:
            await self._delete(index, position, await self._raw(index, position, size))
        else:
            self._add(index, known)

    def _add(self, index: int, wait: Wait) -> None:
        if wait.relative:
            # The exact difference, not the noticed one: a delay is neither early nor late by what is called no step.
            self._steady_wheel.add(wait.due + 1 + self._steady.now_ms() - self._clock.now_ms(), index)
        else:
            self._wall_wheel.add(wait.due, index)

    def _may_have(self, index: int, code: int, record: bytes) -> bool:
        """Whether an entry says of its message's time what the message does; where not, the message is believed."""
        if may_have(code, record):
            return True
        says = wait_in(record)
        if decode_code(code) is not None and says is not None and not says.deletes and index < self._seen:
            self._add(index, says)  # beside what the entry has led to, if that is still to come
        return False

    async def _raw(self, index: int, position: int, size: int) -> bytes:
        """The message of an entry; nothing when it is gone, or lost."""
        queue = self._store.queues.get(TIMER_TOPIC, 0)
        return b"" if queue is None else await self._store.messages.of_entry(queue, index, position, size)

    # -- delivery

    async def _deliver(self) -> None:
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
            if pause == 0:
                await asyncio.sleep(0)
                continue
            try:
                async with patience.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _pass(self) -> float | None:
        """Deliver a batch; seconds until there is something to do, 0 for at once, None when nothing waits."""
        queue = self._store.queues.get(TIMER_TOPIC, 0)
        if queue is None:
            return None
        await self._take_in(queue)
        await self._try_again(queue)
        self._note_floor()
        wall, steady = self._clock.now_ms(), self._steady.now_ms()
        taken = [(due, index, self._wall_wheel) for due, index in self._wall_wheel.take(wall, _BATCH)]
        taken += [(due, index, self._steady_wheel) for due, index in self._steady_wheel.take(steady, _BATCH)]
        if taken:
            # The same wall clock for both, so that equal times keep the order in which they were stored.
            shift = steady - wall
            taken.sort(key=lambda one: (one[0] - shift if one[2] is self._steady_wheel else one[0], one[1]))
            rest = taken
            try:
                while rest:
                    rest = await self._batch(queue, rest)
                    await asyncio.sleep(0)
            except BaseException:
                for due, index, wheel in rest:
                    wheel.add(due, index)
                raise
            self._retry = _FIRST_RETRY
            return 0.0
        pauses = []
        if (soonest := self._wall_wheel.next_due()) is not None:
            pauses.append(min(max(1, soonest - wall) / 1000, _LONGEST_SLEEP))
        if (soonest := self._steady_wheel.next_due()) is not None:
            pauses.append(min(max(1, soonest - steady) / 1000, _LONGEST_PAUSE))
        if (again := self._aside.pause()) is not None:
            pauses.append(again)
        return min(pauses, default=None)

    async def _batch(self, queue: Queue, taken: list[tuple[int, int, Wheel]]) -> list[tuple[int, int, Wheel]]:
        """Deliver as many as go into one append; what is left."""
        puts: list[tuple[int, Put | None]] = []
        seen: set[int] = set()
        size = texts = looked = 0
        for _, index, _ in taken:
            looked += 1
            if index in self._done or index in seen:
                continue  # what was set aside and put back after a failure is in a wheel twice
            seen.add(index)
            try:
                position, length, code = await self._place(queue, index)
                put = await self._rebuilt(index, position, length, decode_code(code))
            except _OtherTime as error:
                self._wrong(index, position)
                if error.wait.deletes:
                    await self._delete(index, position, await self._raw(index, position, length))
                else:
                    self._add(index, error.wait)
                continue
            except Exception as error:
                self._set_aside(index, error)
                continue
            puts.append((index, put))
            size += length
            texts += len(put.properties) if put is not None else 0
            if size >= _BATCH_BYTES or texts >= BATCH_PROPERTIES:
                break
        # Recalled while it was being read: not delivered.
        kept = [(index, put) for index, put in puts if index not in self._done]
        if kept:
            self._deliver_all(kept)
        return taken[looked:]

    def _deliver_all(self, kept: list[tuple[int, Put | None]]) -> None:
        """With one append, or, when one of them is at fault that it fails, with one each."""
        # What is for a topic that was deleted while others were read is dealt with, and not delivered.
        due = [put for _, put in kept if put is not None and not put.queue.files.dropped]
        try:
            self._settle(due, [index for index, _ in kept])
        except Exception as error:
            if self._store.log.gate:
                raise
            if len(kept) == 1:
                self._set_aside(kept[0][0], error)
                return
            for one in kept:
                self._deliver_all([one])
        else:
            self.delivered.update(put.queue.topic for put in due)

    async def _place(self, queue: Queue, index: int) -> tuple[int, int, int]:
        """Where the record of an entry lies, and the entry's code; neighbours are read together."""
        first, data = self._chunk
        at = (index - first) * ENTRY_SIZE
        if not 0 <= at < len(data) - ENTRY_SIZE + 1:
            if index < queue.min:
                return -1, 0, 0
            found = await self._entries(queue, index, min(_BATCH, queue.visible - index))
            if isinstance(found, OSError):
                raise found
            data = found
            self._chunk = (index, data)
            at = 0
        return _entry(data, at)

    async def _rebuilt(self, index: int, position: int, length: int, known: Wait | None) -> Put | None:
        """The message as it is to be delivered, or None when it cannot be.

        :param known: what its entry says of its time.
        :raises _OtherTime: the entry is wrong: the message is not due, or takes another one back.
        """

        def stamp(table: dict[str, str], stored: int) -> None:
            wait = None if known is None else wait_of(table)
            if known and wait and known != wait and (wait.deletes or wait.due > self._clock.now_ms()):
                raise _OtherTime(wait)
            table["TIMER_ENQUEUE_MS"] = str(stored)
            # What a delivered message shows of its wait, as with Java 5.
            table["TIMER_DEQUEUE_MS"] = str(self._clock.now_ms())

        try:
            if 0 <= position < self._store.log.start:
                raise ValueError("its commit-log file is deleted")
            return rebuild(await self._raw(index, position, length), self._destination(position), stamp)
        except TopicDeleted:
            return None
        except (ProtocolError, StoreError, ValueError) as error:
            log.error("the timer message at %d cannot be delivered and is skipped: %s", position, error)
            return None

    def _destination(self, position: int) -> Callable[[str, int], Queue]:
        return lambda topic, queue_id: self._store.destination(topic, queue_id, position)

    def _wrong(self, index: int, position: int) -> None:
        self._notes.say(
            log.critical, "entry %d of %s-0 says another time than its message at %d, which is believed; have the disk "
            "checked", index, TIMER_TOPIC, position,
        )  # fmt: skip

    def _settle(self, puts: list[Put], indexes: list[int]) -> Span:
        """Append messages and, with them, the mark that says which waiting ones are dealt with.

        The mark comes last: an append that a crash has torn delivers twice rather than never.
        """
        if self.tasks.closed:
            raise StoreError("the delivery of timer messages has ended")
        done = self._store.queues.get_or_create(TIMER_DONE_TOPIC, 0)
        mark = own_message(done, encode_marks(indexes), {"TAGS": "d"}, self._clock.now_ms(), self._store_host)
        span = self._store.append([*puts, mark])
        self.on_delivered([put for put in puts if put.queue.topic != TIMER_TOPIC])
        for index in indexes:
            self._done.add(index)
            self._aside.done(index)
        self._ahead.append((span.end, self._done.floor))
        return span

    def _note_floor(self) -> None:
        """Tell where the next start may begin, but never ahead of what is on disk."""
        end = self._store.durable_end()
        floor = -1
        while self._ahead and self._ahead[0][0] <= end:
            floor = self._ahead.popleft()[1]
        if floor >= 0:
            self._offsets.commit(TIMER_GROUP, TIMER_TOPIC, 0, floor)

    # -- taking back, and keeping

    async def waiting(self, topic: str, unique: str) -> list[int]:
        """The indexes of the messages of a topic that wait and have this unique key."""
        queue = self._store.queues.get(TIMER_TOPIC, 0)
        found = []
        for raw in (await self._store.query_message(TIMER_TOPIC, unique, 64, 0, 1 << 62)).records:
            try:
                record = decode_record(raw)
            except ProtocolError:
                continue
            table = record.properties
            if (
                record.topic == TIMER_TOPIC
                and table.get("UNIQ_KEY") == unique
                and table.get("REAL_TOPIC") == topic
                and DELETE_KEY not in table
                and queue is not None
                and record.queue_offset < queue.next
                and record.queue_offset not in self._done
            ):
                found.append(record.queue_offset)
        return found

    def take_back(self, indexes: list[int]) -> int:
        """These waiting messages are never delivered; the commit-log end of the mark that says so.

        :raises StoreError: the store takes no messages.
        """
        return self._settle([], indexes).end

    async def _delete(self, index: int, position: int, raw: bytes) -> None:
        """A message that names another one, which is to be taken back (TIMER_DEL_UNIQKEY)."""
        try:
            table = decode_record(raw).properties
            if (wait := wait_of(table)) is not None and not wait.deletes:
                self._wrong(index, position)
                self._add(index, wait)
                return
            wanted = table[DELETE_KEY]
        except (ProtocolError, KeyError) as error:
            log.error("the message at %d takes no other one back and is skipped: %s", position, error)
            self._settle([], [index])
            return
        topic = table.get("REAL_TOPIC", "")
        indexes = await self.waiting(topic, wanted.removeprefix(f"{topic}+"))
        self._settle([], [*indexes, index])

    async def roll(self) -> None:
        """Store old messages that still wait anew, so that neither their file is deleted nor a start reads far back."""
        queue = self._store.queues.get(TIMER_TOPIC, 0)
        if queue is None or self._store.log.gate:
            return
        age = max(1, self._settings.file_reserved_time) * _HOUR_MS // 3
        if self._done.floor >= queue.visible:
            return
        before = self._clock.now_ms() - age
        oldest = await self._store.search.time_at(queue, max(self._done.floor, queue.min))
        if oldest < 0 or oldest >= before:
            return
        end = await self._first_since(queue, before)
        batch: list[int] = []
        for index in self._done.missing(queue.min, end):
            batch.append(index)
            if len(batch) == _BATCH:
                await self._again(queue, batch)
                batch = []
        if batch:
            await self._again(queue, batch)

    async def _first_since(self, queue: Queue, time: int) -> int:
        """Index of the first message known here that was stored at ``time`` (ms) or later."""
        low, high = queue.min, self._seen
        while low < high:
            middle = (low + high) // 2
            if await self._store.search.time_at(queue, middle) < time:
                low = middle + 1
            else:
                high = middle
        return low

    async def _again(self, queue: Queue, indexes: list[int]) -> None:
        puts: list[tuple[int, Put | None]] = []
        for index in indexes:
            try:
                position, size, _ = await self._place(queue, index)
                raw = await self._raw(index, position, size)
                known = wait_in(raw)
                if known is None:
                    continue
                moved = rebuild(raw, self._destination(position), _rolled)
            except TopicDeleted:
                puts.append((index, None))
                continue
            except Exception as error:
                self._unrolled.failed(index, f"{TIMER_TOPIC}-0 at {index}", error)
                continue
            self._unrolled.done(index)
            puts.append((index, moved._replace(queue=queue, tags_code=encode_code(known._replace(deletes=False)))))
        kept = [(index, put) for index, put in puts if index not in self._done]
        if kept:
            self._settle([put for _, put in kept if put is not None], [index for index, _ in kept])
        await asyncio.sleep(0)


class _OtherTime(Exception):
    """A message waits for something else than its entry says."""

    def __init__(self, wait: Wait) -> None:
        self.wait = wait


def _rolled(table: dict[str, str], stored: int) -> None:
    table["TIMER_ROLL_TIMES"] = str((whole(table.get("TIMER_ROLL_TIMES"), INT_MAX - 1) or 0) + 1)
