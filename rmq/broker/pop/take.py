"""Taking messages out of queues for a pop: what is read, what becomes invisible, what the answer holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmq.broker.delivery.filtering import EVERYTHING, Filter
from rmq.broker.delivery.read import Batch, Reader, ReadLimits, Status
from rmq.broker.pop.checkpoints import Key, PopCheckpoint
from rmq.broker.pop.journal import Event, batch_event, checkpoint_event
from rmq.broker.pop.ordered import Place
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, StoreError
from rmq.protocol.message import decode_record, encode_record
from rmq.protocol.names import RETRY_PREFIX
from rmq.protocol.pop import ORDERED, POP_CK, Handle, mark_of, pop_retry_topic
from rmq.protocol.record import fields

if TYPE_CHECKING:
    from rmq.broker.pop.state import PopState
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.state import Queue
    from rmq.broker.store.store import Store
    from rmq.protocol.bodies.topic import TopicConfig
    from rmq.runtime.world import World

__all__ = ["FROM_MAX", "Part", "Taken", "Taker", "Wish"]

#: ``initMode``: a group without an offset begins at the end.
FROM_MAX = 1
#: One pop in so many looks for retries first, so that neither retries nor new messages starve.
_RETRIES_FIRST = 5
#: Reads of a queue whose messages the filter refuses, before the request gives up or waits.
_READS = 64

#: A peek ends with the queue in which it got so far.
_PEEKED_BYTES = 4 << 20

_queue_offset = fields("queue_offset")
_POP_CK = POP_CK.encode() + b"\x01"


#: An invisible time longer than this is a mistake of units.
_LONGEST_HIDDEN = 1 << 53


@dataclass(slots=True)
class Wish:
    """What is to be taken."""

    group: str
    topic: str
    #: -1 = any.
    queue_id: int
    count: int
    invisible: int
    init_mode: int
    wants: Filter
    order: bool = False
    attempt: str = ""

    @property
    def hidden(self) -> int:
        """How long what is taken stays invisible, ms: ``invisible`` within what the journal takes for a time."""
        return min(max(0, self.invisible), _LONGEST_HIDDEN)


@dataclass(slots=True)
class Part:
    """What was found in one queue."""

    queue: Queue
    place: Place
    #: Where the reading began and where the next pop goes on.
    start: int
    behind: int
    records: list[bytes]
    #: Messages of an orderly batch that is out already.
    again: bool = False
    offsets: tuple[int, ...] = ()
    counts: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Taken:
    """The messages of one answer; without parts when there are none for this group now."""

    parts: list[Part] = field(default_factory=list)
    pop_time: int = 0
    body: bytes = b""
    #: Messages behind those that were taken, and of the queues that were not looked at.
    rest: int = 0


def _offset(record: bytes) -> int:
    return int(_queue_offset(record, 0)[0])


class Taker:
    """Reads queues and makes checkpoints.

    :param on_delivered: called with (group, topic, queue id, messages, bytes) of what is handed out of each queue.
    :param changed: called when a new deadline may be the next one.
    :param limits: say how far behind the log's end a message counts as being in memory.
    """

    def __init__(
        self,
        world: World,
        settings: BrokerSettings,
        store: Store,
        state: PopState,
        reader: Reader,
        on_delivered: Callable[[str, str, int, int, int], None],
        changed: Callable[[], None],
        limits: ReadLimits,
    ) -> None:
        self._clock = world.clock
        self._random = world.random
        self._settings = settings
        self._store = store
        self._state = state
        self._reader = reader
        self._on_delivered = on_delivered
        self._changed = changed
        self._limits = limits
        #: Queues that a pop reads right now: nobody else takes the same messages.
        self._busy: set[Place] = set()

    # -- which queues

    def _queues(self, wish: Wish, config: TopicConfig) -> list[Queue]:
        """The queues a request may be served from, in the order they are looked at."""
        of = self._store.queues
        if wish.queue_id >= 0:
            ids = [wish.queue_id]
        else:
            first = self._random.randrange(max(config.read_queue_nums, 1))
            ids = [(first + i) % config.read_queue_nums for i in range(config.read_queue_nums)]
        normal = [queue for i in ids if (queue := of.get(wish.topic, i)) is not None]
        if wish.order or wish.topic.startswith(RETRY_PREFIX):
            return normal
        retries = of.all(pop_retry_topic(wish.group, wish.topic))
        if retries and self._random.randrange(_RETRIES_FIRST) == 0:
            return [*retries, *normal]
        return [*normal, *retries]

    def rest(self, wish: Wish, config: TopicConfig) -> int:
        """Messages that were never given out to the group, or are to be given out again."""
        total = 0
        now = self._clock.now_ms()
        for queue in self._queues(wish, config):
            place = Place(wish.group, queue.topic, queue.id)
            if wish.order and self._state.ordered.get(place) is not None:
                if not self._state.ordered.blocked(place, wish.attempt, now):
                    total += len(self._state.ordered.again(place))
                continue
            total += self._ahead(wish, place, queue)
        return total

    def _ahead(self, wish: Wish, place: Place, queue: Queue) -> int:
        """Messages of a queue behind the group's position."""
        offset = self._state.positions.get(place)
        if offset < 0:
            offset = queue.min if wish.init_mode != FROM_MAX or queue.topic != wish.topic else queue.visible
        return max(0, queue.visible - max(offset, queue.min))

    # -- pop

    async def take(self, wish: Wish, config: TopicConfig) -> Taken:
        """Take messages.

        :raises ResponseError: the store takes no messages, so nothing can be kept about them.
        """
        parts: list[Part] = []
        moved: dict[Place, int] = {}
        mine: list[Place] = []
        left = wish.count
        rest = 0
        try:
            for queue in self._queues(wish, config):
                place = Place(wish.group, queue.topic, queue.id)
                if left <= 0 or place in self._busy:
                    rest += self._ahead(wish, place, queue)
                    continue
                self._busy.add(place)
                mine.append(place)
                part = await self._look(wish, place, queue, left)
                if part is None:
                    if not wish.order:
                        rest += self._ahead(wish, place, queue)
                    continue
                rest += max(0, queue.visible - part.behind)
                if part.records:
                    parts.append(part)
                    left -= len(part.records)
                elif part.behind != part.start:
                    moved[place] = part.behind
            taken = self._keep(wish, parts, moved) if parts or moved else Taken()
        except OSError:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, "the broker cannot read these messages from its disk"
            ) from None
        finally:
            self._busy.difference_update(mine)
        taken.rest = rest
        return taken

    async def _look(self, wish: Wish, place: Place, queue: Queue, count: int) -> Part | None:
        """What a queue has for the group; also how far its filter has refused everything."""
        state = self._state
        if wish.order:
            now = self._clock.now_ms()
            if state.ordered.blocked(place, wish.attempt, now):
                return None
            batch = state.ordered.get(place)
            if batch is not None:
                offsets = state.ordered.again(place)
                if not wish.attempt or wish.attempt != batch.attempt:
                    # An attempt that is repeated gets all of its batch, however few it asks for.
                    offsets = offsets[:count]
                return await self._again(place, queue, offsets)
        elif state.is_full(place):
            return None
        retry = queue.topic != wish.topic
        begin = state.positions.get(place)
        start = begin
        if start < 0:
            start = await self._first(queue, queue.min if retry or wish.init_mode != FROM_MAX else None)
        at = start
        wants = EVERYTHING if retry else wish.wants
        for _ in range(_READS):
            if at >= queue.visible:
                break
            batch_ = await self._scan(queue, at, count, wants)
            if batch_.status is Status.FOUND:
                return self._found(state, place, queue, begin, at, batch_)
            if batch_.status is Status.NO_MESSAGE_IN_QUEUE or batch_.next_offset == at:
                break
            at = batch_.next_offset
            await asyncio.sleep(0)
        if at > queue.visible > 0:
            # The log was cut: what the group had popped is gone, and its offset with it.
            at = queue.visible
        if state.positions.get(place) != begin:
            return None
        return Part(queue, place, begin, at, [])

    def _found(self, state: PopState, place: Place, queue: Queue, begin: int, at: int, batch: Batch) -> Part | None:
        if state.positions.get(place) != begin:
            # Somebody has reset the group's offset meanwhile.
            return None
        records = list(map(bytes, batch.records))
        return Part(queue, place, at, batch.next_offset, records, offsets=tuple(map(_offset, records)))

    async def _first(self, queue: Queue, least: int | None) -> int:
        """Where a group begins that has no offset; a young topic is read from its beginning in any mode."""
        if least is not None:
            return least
        if queue.min == 0:
            entry = await self._store.queues.entries_cold(queue, 0, 1)
            if not entry or self._store.log.end - int.from_bytes(entry[:8], "big") <= self._limits.memory_bound:
                return 0
        return queue.visible

    async def _scan(self, queue: Queue, offset: int, count: int, wants: Filter) -> Batch:
        scan = self._reader.scan(queue, offset, count, wants)
        try:
            waits_for = next(scan)
            while True:
                waits_for = scan.send(await waits_for)
        except StopIteration as end:
            found: Batch = end.value
            return found

    async def _again(self, place: Place, queue: Queue, offsets: list[int]) -> Part | None:
        """Messages of a batch that is out already."""
        records: list[bytes] = []
        state = self._state
        held = state.ordered.get(place)
        for offset in offsets:
            if offset >= queue.min:
                batch = await self._scan(queue, offset, 1, EVERYTHING)
                if batch.status is Status.FOUND and _offset(record := bytes(batch.records[0])) == offset:
                    records.append(record)
                    continue
            if held is not None:
                # Retention took it, or it is lost: nobody can acknowledge it any more.
                state.ordered.ack(held, held.offsets.index(offset))
        found = tuple(map(_offset, records))
        start = found[0] if found else offsets[0]
        behind = found[-1] + 1 if found else start
        return Part(queue, place, start, behind, records, again=True, offsets=found)

    def _keep(self, wish: Wish, parts: list[Part], moved: dict[Place, int]) -> Taken:
        """Write down what goes out, then make the answer."""
        state = self._state
        now = self._clock.now_ms()
        if wish.order:
            pop_time = now
        else:
            pop_time = state.checkpoints.free_pop_time([(*part.place, part.start) for part in parts], now)
        events: list[Event] = []
        made: list[PopCheckpoint] = []
        positions = dict(moved)
        for part in parts:
            if wish.order:
                batch = state.ordered.popped(part.place, wish.attempt, part.offsets, pop_time, wish.hidden)
                batch.index = state.journal.queue.next
                part.counts = {offset: batch.counts[batch.offsets.index(offset)] for offset in part.offsets}
                events.append(batch_event(batch))
                if not part.again and state.positions.get(part.place) != part.offsets[0]:
                    positions[part.place] = part.offsets[0]
            else:
                checkpoint = PopCheckpoint(Key(*part.place, part.start, pop_time), wish.hidden, part.offsets)
                made.append(checkpoint)
                events.append(checkpoint_event(checkpoint))
                positions[part.place] = part.behind
        try:
            index = state.write(events, positions)
        except (StoreError, OSError) as error:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"messages cannot be popped while the store takes none: {error}"
            ) from None
        for checkpoint in made:
            checkpoint.index = index
            state.checkpoints.add(checkpoint)
            state.written["CK", checkpoint.key.group, checkpoint.key.topic] += 1
        if not parts:
            return Taken()
        self._changed()
        body = []
        for part in parts:
            size = sum(map(len, part.records))
            self._on_delivered(wish.group, part.queue.topic, part.queue.id, len(part.records), size)
            retry = part.queue.topic != wish.topic
            for offset, record in zip(part.offsets, part.records, strict=True):
                if retry or _POP_CK in record:
                    record = self._rewritten(wish, part, offset, record, pop_time)
                body.append(record)
        return Taken(parts, pop_time, b"".join(body))

    def _rewritten(self, wish: Wish, part: Part, offset: int, record: bytes, pop_time: int) -> bytes:
        """A retry as its consumer knows it: of the original topic, with its handle.

        A message that was sent with a handle of somebody else's in its properties gets its own, too: clients believe
        the one they find.
        """
        message = decode_record(record)
        message.topic = wish.topic
        message.properties[POP_CK] = str(
            Handle(
                part.start, pop_time, wish.invisible, ORDERED if wish.order else 0, mark_of(part.queue.topic),
                self._settings.broker_name, part.queue.id, offset,
            )
        )  # fmt: skip
        message.property_text = None
        message.size = 0
        return encode_record(message)

    # -- without taking

    async def peek(self, wish: Wish, config: TopicConfig) -> list[bytes]:
        """The next messages of a group, which stay where they are: as many as fit into an answer."""
        found: list[bytes] = []
        size = 0
        for queue in self._queues(wish, config):
            left = wish.count - len(found)
            if left <= 0 or size >= _PEEKED_BYTES:
                break
            offset = self._state.positions.get(Place(wish.group, queue.topic, queue.id))
            batch = await self._scan(queue, max(offset, queue.min), left, EVERYTHING)
            if batch.status is Status.FOUND:
                found += map(bytes, batch.records)
                size += batch.size
        return found
