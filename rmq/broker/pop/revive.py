"""Gives back what was not acknowledged in time: as a retry, or as a dead letter when its tries are used up."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from rmq.broker.pop.checkpoints import Key, PopCheckpoint
from rmq.broker.pop.ordered import Place
from rmq.broker.store.aside import SetAside
from rmq.broker.store.state import ENTRY_SIZE, PLACE, Put
from rmq.broker.store.trouble import Trouble
from rmq.protocol.errors import ProtocolError, ResponseError, StoreError
from rmq.protocol.ids import offset_msg_id, pack_host
from rmq.protocol.message import decode_record
from rmq.protocol.names import RETRY_PREFIX, dlq_topic
from rmq.protocol.pop import FIRST_POP_TIME, POP_CK, pop_retry_topic
from rmq.protocol.tags import string_hash
from rmq.runtime import patience
from rmq.runtime.tasks import TaskOwner

if TYPE_CHECKING:
    from rmq.broker.groups.configs import GroupTable
    from rmq.broker.lane.admit import Admission
    from rmq.broker.pop.polls import Polls
    from rmq.broker.pop.state import PopState
    from rmq.broker.store.store import Store
    from rmq.broker.topics.table import TopicTable
    from rmq.runtime.world import World

__all__ = ["Reviver"]

log = logging.getLogger(__name__)

_entry = PLACE.unpack

#: Checkpoints given back before the loop gets its turn.
_AT_ONCE = 16
#: Bytes of records that are written again before the loop gets its turn: some milliseconds.
_BYTES_AT_ONCE = 64 << 10
#: Longest sleep while something waits, seconds: how late a step of the wall clock is noticed.
_LONGEST_SLEEP = 1.0
#: When a checkpoint is tried again that could not be given back, ms.
_RETRY_MS = 1_000


class Reviver:
    """One task that sleeps until the next deadline."""

    def __init__(
        self,
        world: World,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        admission: Admission,
        state: PopState,
        polls: Polls,
        store_host: bytes,
    ) -> None:
        self._clock = world.clock
        self._store = store
        self._topics = topics
        self._groups = groups
        self._admission = admission
        self._state = state
        self._polls = polls
        self._store_host = store_host
        self.tasks = TaskOwner("pop")
        self._trouble = Trouble(world.clock, log, "giving back popped messages", "they are late until that works")
        #: Checkpoints with a message that could not be given back.
        self._aside: SetAside[Key] = SetAside(world.clock, log, "giving back a popped message")
        self._wake = asyncio.Event()
        #: Messages given back and dead letters since start.
        self.given_back = 0
        self.dead = 0
        #: The former by (group, topic).
        self.retried: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        self.tasks.serve(self._run(), "revive")

    async def close(self) -> None:
        await self.tasks.close()

    def changed(self) -> None:
        """There is a new deadline, perhaps the next one."""
        self._wake.set()

    async def _run(self) -> None:
        state = self._state
        while True:
            self._wake.clear()
            now = self._clock.now_ms()
            for place in state.ordered.take_due(now):
                self._polls.wake(place.group, place.topic, place.queue_id)
            due = state.checkpoints.take_due(now, _AT_ONCE)
            for checkpoint in due:
                try:
                    await self._give_back(checkpoint)
                except Exception as error:  # one message must not keep all others from coming back
                    self._failed(checkpoint, error)
                else:
                    self._trouble.over()
                    self._aside.done(checkpoint.key)
            if due:
                await asyncio.sleep(0)
                continue
            deadlines = [when for when in (state.checkpoints.next_deadline(), state.ordered.next_due()) if when]
            if not deadlines:
                await self._wake.wait()
                continue
            pause = min(max(min(deadlines) - self._clock.now_ms(), 1) / 1000, _LONGEST_SLEEP)
            try:
                async with patience.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _failed(self, checkpoint: PopCheckpoint, error: Exception) -> None:
        """Try a checkpoint again: soon, or in a minute where another try is not likely to end otherwise."""
        pause = _RETRY_MS if isinstance(error, StoreError | ResponseError | OSError) else 60 * _RETRY_MS
        self._state.checkpoints.later(checkpoint, self._clock.now_ms() + pause)
        key = checkpoint.key
        if self._store.log.gate or (self._aside.full and key not in self._aside):
            self._trouble.failed(error)
        else:
            offsets = ", ".join(map(str, checkpoint.open_offsets()))
            self._aside.failed(key, f"group {key.group}, {key.topic}-{key.queue_id} at {offsets}", error)

    async def _give_back(self, checkpoint: PopCheckpoint) -> None:
        """Write again what is open of a checkpoint, and that it is settled, some messages with one append.

        :raises OSError: a message could not be read; the others are written.
        """
        key = checkpoint.key
        records = {}
        unread: dict[int, OSError] = {}
        if key.topic in self._topics and self._groups.get(key.group) is not None:
            for offset in checkpoint.open_offsets():
                try:
                    record = await self._record(key.topic, key.queue_id, offset)
                except OSError as error:
                    unread[offset] = error
                    continue
                if record is not None:
                    records[offset] = record
        # Asked for anew before each append: what was acknowledged meanwhile is not given out again.
        while offsets := _some([offset for offset in checkpoint.open_offsets() if offset not in unread], records):
            self._write_again(checkpoint, offsets, records)
            await asyncio.sleep(0)
        if unread and checkpoint.open:
            raise next(iter(unread.values()))

    def _write_again(self, checkpoint: PopCheckpoint, offsets: list[int], records: dict[int, bytes]) -> None:
        """Append the messages that there are, and that these offsets are settled."""
        key = checkpoint.key
        state = self._state
        puts: list[Put] = []
        for offset in offsets:
            if offset in records:
                try:
                    puts.append(self._again(checkpoint, records[offset]))
                except ProtocolError as error:
                    log.error("message %d of %s-%d is damaged: %s", offset, key.topic, key.queue_id, error)
        state.journal.write([("d", *key, offsets)], puts)
        state.checkpoints.settle(checkpoint, offsets, self._clock.now_ms(), expired=True)
        self.given_back += len(puts)
        self.retried[key.group, key.topic] += len(puts)
        if state.has_room_again(_place(checkpoint)):
            self._polls.wake(key.group, key.topic)

    async def _record(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        """A message by its queue offset; None when retention took it."""
        store = self._store
        queue = store.queues.get(topic, queue_id)
        if queue is None or not queue.min <= offset < queue.next:
            return None
        entry = await store.queues.entries_cold(queue, offset, 1)
        if len(entry) < ENTRY_SIZE:
            return None
        place, size = _entry(entry)
        return await store.messages.of_entry(queue, offset, place, size) or None

    def _again(self, checkpoint: PopCheckpoint, record: bytes) -> Put:
        """The message as it is given out again."""
        key = checkpoint.key
        group = self._groups.get(key.group)
        source = decode_record(record)
        table = dict(source.properties)
        table.pop(POP_CK, None)
        table.setdefault(FIRST_POP_TIME, str(key.pop_time))
        table["ORIGIN_GROUP"] = key.group
        if not key.topic.startswith(RETRY_PREFIX):
            table.setdefault("RETRY_TOPIC", key.topic)
        table.setdefault("ORIGIN_MESSAGE_ID", offset_msg_id(*source.store_host, source.physical_offset))
        tries = source.reconsume_times
        if group is not None and tries >= group.retry_max_times:
            name = dlq_topic(key.group)
            self.dead += 1
        elif key.topic.startswith(RETRY_PREFIX):
            name = key.topic
        else:
            name = pop_retry_topic(key.group, key.topic)
        if self._topics.create_for_send_back(name, 1, 6, 0) is None:
            raise StoreError(f"topic {name} cannot be made")
        tag = table.get("TAGS")
        return self._admission.put(
            self._store.queues.get_or_create(name, 0),
            source.body,
            table,
            source.flag,
            source.sys_flag,
            source.born_timestamp,
            pack_host(*source.born_host),
            self._store_host,
            min(tries + 1, 0x7FFFFFFF),  # a producer may have claimed any number
            0,
            string_hash(tag) if tag else 0,
        )


def _some(offsets: list[int], records: dict[int, bytes]) -> list[int]:
    """The first of them, until their records are more than is read and written in some milliseconds."""
    size = 0
    for number, offset in enumerate(offsets, 1):
        size += len(records.get(offset, b""))
        if size >= _BYTES_AT_ONCE:
            return offsets[:number]
    return offsets


def _place(checkpoint: PopCheckpoint) -> Place:
    return Place(checkpoint.key.group, checkpoint.key.topic, checkpoint.key.queue_id)
