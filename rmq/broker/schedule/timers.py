"""Delivers messages at times of their own, and takes them back (store-and-broker.md 7.3; docs/delays.md).

Everything that matters lies in the commit log: the waiting message in the timer topic, and a mark, appended together
with the delivery, that says which waiting messages are dealt with. Memory holds 8 bytes a waiting message and is
rebuilt at start from the two queues, from the first message that is not dealt with. So nothing is lost by a crash, and
what a torn append leaves delivered but not marked is delivered once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmq.broker.schedule.done import DoneMap, decode_marks, encode_marks
from rmq.broker.schedule.rebuild import BATCH_PROPERTIES, rebuild
from rmq.broker.schedule.rolling import Rolling
from rmq.broker.schedule.timer_queue import TimerQueue
from rmq.broker.schedule.timing import DELETE_KEY, Wait, decode_code, may_have, wait_in, wait_of
from rmq.broker.schedule.waits import Due, Waits
from rmq.broker.store.aside import SetAside
from rmq.broker.store.own import own_message
from rmq.broker.store.queues.deletions import TopicDeleted
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Put, Queue
from rmq.broker.store.trouble import Trouble
from rmq.protocol.errors import ProtocolError, StoreError
from rmq.protocol.message import decode_record
from rmq.protocol.names import TIMER_DONE_TOPIC, TIMER_GROUP, TIMER_TOPIC
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
_FIRST_RETRY = 0.1
_LAST_RETRY = 5.0
#: How often old messages are looked for, seconds.
_ROLL_SECONDS = 600.0
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
        self._store = store
        self._offsets = offsets
        self._store_host = store_host
        self.waits = Waits(world.clock, steady)
        self._done = DoneMap()
        self._seen = 0  # entries of the timer queue before it are in a wheel or dealt with
        self._ahead: deque[tuple[int, int]] = deque()  # (commit-log end, floor), in log order
        self._wake = asyncio.Event()
        self.tasks = TaskOwner("timers")
        self._trouble = Trouble(world.clock, log, "delivering timer messages", "they are late until that works")
        #: Indexes of messages that could not be read or delivered. They are not done, so a restart finds them, too.
        self._aside: SetAside[int] = SetAside(world.clock, log, "delivering a timer message")
        self._retry = _FIRST_RETRY
        self._notes = Rationed(world.clock, most=20)
        self._waiting = TimerQueue(store, self._notes)
        self._rolling = Rolling(world.clock, settings, store, self._waiting, self._settle)
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
        queue = self._waiting.queue
        return 0 if queue is None else max(0, queue.visible - self._seen)

    def __len__(self) -> int:
        """About how many messages wait."""
        return len(self.waits)

    async def load(self) -> None:
        """Find out what is dealt with already; what waits is read after the start, while the broker serves."""
        queue = self._waiting.queue
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
        marks = self._waiting.marks
        if marks is None or floor >= queue.next:
            return
        async for index, record in self._waiting.records(marks, await self._waiting.first_mark(marks, queue, floor)):
            try:
                for indexes in decode_marks(record.body, queue.next):
                    self._done.add_all(indexes)
            except ValueError as error:
                self._notes.say(log.error, "entry %d of %r is no mark and is skipped: %s", index, marks, error)

    async def _take_in(self, queue: Queue) -> None:
        """Put into the wheels what has become visible."""
        if self._seen < queue.min:
            self._seen = queue.min
        self._done.skip_to(queue.min)
        while self._seen < queue.visible:
            index = self._seen
            data = await self._waiting.entries(queue, index, queue.visible - index)
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
            known = wait_in(await self._waiting.raw(index, position, size))
            if known is None:
                log.error("the message at %d waits for no readable time and is skipped", position)
                self._settle([], [index])
                return
        if known.deletes:
            await self._delete(index, position, await self._waiting.raw(index, position, size))
        else:
            self.waits.add(index, known)

    def _may_have(self, index: int, code: int, record: bytes) -> bool:
        """Whether an entry says of its message's time what the message does; where not, the message is believed."""
        if may_have(code, record):
            return True
        says = wait_in(record)
        if decode_code(code) is not None and says is not None and not says.deletes and index < self._seen:
            self.waits.add(index, says)  # beside what the entry has led to, if that is still to come
        return False

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
        queue = self._waiting.queue
        if queue is None:
            return None
        await self._take_in(queue)
        await self._try_again(queue)
        self._note_floor()
        if taken := self.waits.take(_BATCH):
            rest = taken
            try:
                while rest:
                    rest = await self._batch(queue, rest)
                    await asyncio.sleep(0)
            except BaseException:
                self.waits.put_back(rest)
                raise
            self._retry = _FIRST_RETRY
            return 0.0
        pauses = [pause for pause in (self.waits.pause(), self._aside.pause()) if pause is not None]
        return min(pauses, default=None)

    async def _batch(self, queue: Queue, taken: list[Due]) -> list[Due]:
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
                position, length, code = await self._waiting.place(queue, index)
                put = await self._rebuilt(index, position, length, decode_code(code))
            except _OtherTime as error:
                self._wrong(index, position)
                if error.wait.deletes:
                    await self._delete(index, position, await self._waiting.raw(index, position, length))
                else:
                    self.waits.add(index, error.wait)
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
            return rebuild(
                await self._waiting.raw(index, position, length),
                lambda topic, queue_id: self._store.destination(topic, queue_id, position),
                stamp,
            )
        except TopicDeleted:
            return None
        except (ProtocolError, StoreError, ValueError) as error:
            log.error("the timer message at %d cannot be delivered and is skipped: %s", position, error)
            return None

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

    async def roll(self) -> None:
        """Store old messages that still wait anew."""
        await self._rolling.roll(self._done, self._seen)

    async def waiting(self, topic: str, unique: str) -> list[int]:
        """The indexes of the messages of a topic that wait and have this unique key."""
        queue = self._waiting.queue
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
                self.waits.add(index, wait)
                return
            wanted = table[DELETE_KEY]
        except (ProtocolError, KeyError) as error:
            log.error("the message at %d takes no other one back and is skipped: %s", position, error)
            self._settle([], [index])
            return
        topic = table.get("REAL_TOPIC", "")
        indexes = await self.waiting(topic, wanted.removeprefix(f"{topic}+"))
        self._settle([], [*indexes, index])


class _OtherTime(Exception):
    """A message waits for something else than its entry says."""

    def __init__(self, wait: Wait) -> None:
        self.wait = wait
