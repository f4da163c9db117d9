"""The check of half messages nobody has settled: who is asked, how often, and where they go in the end.

This broker is the only writer of its op records, so what is settled is known in memory: read once from the op queue
before the start, then told by :mod:`rmq.broker.transaction.ends`. Progress is kept, as in Java, as the offsets of group
CID_RMQ_SYS_TRANS on the half and the op queue (store-and-broker.md 7.4).

A half that is asked about is stored anew, with the count of its checks. The copies are one transaction, known by the
queue index of its first half, which every copy carries (TRAN_PREPARED_QUEUE_OFFSET): its first final state wins,
whichever copy an end names (field case B058). A half that nobody could be asked about stays where it is (B061).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING

from rmq.broker.store.aside import SetAside
from rmq.broker.store.state import ENTRY, ENTRY_SIZE, Put, Queue, Span
from rmq.broker.transaction.halves import CHECK_GROUP, DISCARD_TOPIC
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ProtocolError, StoreError, TransportError
from rmq.protocol.headers.transaction import CheckTransactionStateRequest
from rmq.protocol.ids import offset_msg_id
from rmq.protocol.message import MessageRecord, decode_record, encode_record
from rmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.protocol.numbers import whole
from rmq.protocol.permissions import Need, publish_topic
from rmq.remoting.limits import Rationed
from rmq.runtime.tasks import TaskOwner

if TYPE_CHECKING:
    from rmq.broker.groups.clients import Producers
    from rmq.broker.groups.offsets import OffsetTable
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.store import Store
    from rmq.broker.topics.table import TopicTable
    from rmq.broker.transaction.halves import Halves
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import World

__all__ = ["TransactionCheck", "Verdict", "judge"]

log = logging.getLogger(__name__)

_entry = ENTRY.unpack_from
#: A queue index, and its record as :meth:`TransactionCheck._records` finds it.
_Numbered = tuple[int, MessageRecord | OSError | None]
#: Entries read at a time, bytes of records after which they are enough, and what one pass may take, seconds.
_SLICE = 32
_SLICE_BYTES = 64 << 10
_PASS_SECONDS = 60.0
#: Seconds between two looks whether the group, or the disk, has what a pass has stored.
_LOOK = 0.01
#: How often progress is looked at, seconds, and how much of it is remembered until it is on disk.
_NOTE_SECONDS = 5.0
_MOST_AHEAD = 4096

_TRANSACTION_BITS = 0xC
_COMMIT = 0x8
_CHECKED = "TRANSACTION_CHECK_TIMES"
_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_FIRST_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"


class Verdict(Enum):
    """What is to be done with a half message that nobody has settled."""

    #: Too young, and so is all that follows: end the pass here.
    STOP = auto()
    #: Still immune by its own property: look at the next one.
    LATER = auto()
    #: Ask its producer.
    CHECK = auto()
    #: Asked often enough, or too old.
    DISCARD = auto()
    #: Its topic was deleted: there is nothing to ask for.
    DROP = auto()


def judge(
    table: dict[str, str], born: int, stored: int, *, now: int, timeout: int, most: int, keep: int, seen: bool
) -> Verdict:
    """Decide about one unsettled half message; all times in ms.

    Its age is by the broker's clock: a producer's clock that is wrong changes nothing.

    :param table: its properties.
    :param timeout: ``transactionTimeOut``, the age of a first check.
    :param most: ``transactionCheckMax``.
    :param keep: the time after which the file with it may be deleted.
    :param seen: an earlier pass has met it: where the clock was set back, that is what is known of its age.
    """
    checked = _number(table.get(_CHECKED))
    if checked >= most or now - stored > keep:
        return Verdict.DISCARD
    if checked:
        return Verdict.CHECK
    # A copy that Java has made because of its immunity has the store time of the copy.
    age = now - (born if _FIRST_OFFSET in table else stored)
    immunity = whole(table.get(_IMMUNITY))
    wait = immunity * 1000 if immunity is not None else timeout
    if age >= wait or (age < 0 and seen):
        return Verdict.CHECK
    return Verdict.LATER if _IMMUNITY in table else Verdict.STOP


def _number(text: str | None) -> int:
    return whole(text) or 0


class TransactionCheck:
    """Asks producers about half messages (Java: TransactionalMessageCheckService)."""

    def __init__(
        self,
        world: World,
        settings: BrokerSettings,
        topics: TopicTable,
        offsets: OffsetTable,
        producers: Producers,
        store: Store,
        halves: Halves,
    ) -> None:
        self._clock = world.clock
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._producers = producers
        self._store = store
        self._halves = halves
        self.tasks = TaskOwner("transaction check")
        #: First half that is not settled, and what is settled beyond it.
        self._next = 0
        self._settled: set[int] = set()
        #: First half of a transaction -> its newest copy, while that is not settled.
        self._copies: dict[int, int] = {}
        #: Op records in order: (index in the op queue, index of the half).
        self._ops: deque[tuple[int, int]] = deque()
        #: Progress that may be told when the log is on disk so far: (end, half, op or 0).
        self._ahead: deque[tuple[int, int, int]] = deque()
        #: Halves settled by an append that a crash has torn: their op records are still to be written.
        self._owed: list[int] = []
        #: Whom to ask what, when the log may be seen up to this offset.
        self._questions: list[tuple[Conn, Command]] = []
        self._stored_to = 0
        #: End of the half queue at the last pass.
        self._seen = 0
        self._turn = 0
        #: Halves that could not be read or treated: the others are.
        self._aside: SetAside[int] = SetAside(world.clock, log, "checking a half message")
        self._notes = Rationed(world.clock, most=20)

    async def load(self) -> None:
        """Read what is settled, from the queues of the recovered store."""
        half, op = self._queue(HALF_TOPIC), self._queue(OP_HALF_TOPIC)
        self._next = min(max(self._offsets.query(CHECK_GROUP, HALF_TOPIC, 0), half.min), half.next)
        index = min(max(self._offsets.query(CHECK_GROUP, OP_HALF_TOPIC, 0), op.min), op.next)
        while index < op.next:
            records = await self._records(op, index, op.next)
            for at, record in records:
                if isinstance(record, MessageRecord):
                    self._note(at, record.body, half.next)
                elif record is not None:
                    self._notes.say(
                        log.error, "%s-0 at %d cannot be read: %s; what it says is settled is checked again",
                        OP_HALF_TOPIC, at, record,
                    )  # fmt: skip
            index += max(1, len(records))
        self._advance()
        await self._read_unsettled(half)

    async def _read_unsettled(self, half: Queue) -> None:
        """Which unsettled halves are copies of which, and what a torn append has left undone."""
        index = self._next
        while index < half.next:
            if index in self._settled:
                index += 1
                continue
            records = await self._records(half, index, half.next)
            for at, record in records:
                if not isinstance(record, MessageRecord) or at in self._settled:
                    continue
                root = self.root(record)
                if root != at:
                    older = self._copies.get(root, root)
                    self._copies[root] = at
                    if self._is_open(older) and older != at:
                        self._settled.add(older)
                        self._owed.append(older)
            index += max(1, len(records))
        current = None
        try:
            current = await self._torn_commit() if self._next < half.next else None
        except OSError as error:
            log.error("the end of the commit log cannot be read: %s; a commit torn there would be done again", error)
        if current is not None:
            log.warning("a commit was stored without its op record: it is not done again")
            self._settled.add(current)
            self._owed.append(current)

    async def _torn_commit(self) -> int | None:
        """The unsettled half whose committed message is the last record of the log: its op record was to follow."""
        last = await self._last_record()
        if last is None or last.sys_flag & _TRANSACTION_BITS != _COMMIT:
            return None
        raw = await self._store.messages.at(last.prepared_transaction_offset)
        if raw is None:
            return None
        try:
            prepared = decode_record(raw)
        except ProtocolError:
            return None
        if prepared.topic != HALF_TOPIC or prepared.properties.get("UNIQ_KEY") != last.properties.get("UNIQ_KEY"):
            return None
        return self.live(prepared)

    async def _last_record(self) -> MessageRecord | None:
        """The last record of the log; a commit can have lost its op record only there."""
        queue = max(self._store.queues, key=lambda one: one.max_phys, default=None)
        if queue is None or queue.next <= queue.min:
            return None
        ((_, record),) = await self._records(queue, queue.next - 1, queue.next) or [(0, None)]
        if isinstance(record, OSError):
            raise record
        return record

    def start(self) -> None:
        """Check every ``transactionCheckInterval``."""
        self.tasks.every(lambda: self._settings.transaction_check_interval / 1000, self._check, "pass")
        self.tasks.every(_NOTE_SECONDS, self._tell, "progress")

    async def close(self) -> None:
        await self.tasks.close()
        self._tell()

    @property
    def closed(self) -> bool:
        """It has ended: what is settled is somebody else's to say."""
        return self.tasks.closed

    @property
    def open_halves(self) -> int:
        """Half messages that nobody has ended."""
        half = self._store.queues.get(HALF_TOPIC, 0)
        return 0 if half is None else max(0, half.next - self._next - len(self._settled))

    @staticmethod
    def root(record: MessageRecord) -> int:
        """The queue index of the first half of a half's transaction."""
        text = record.properties.get(_FIRST_OFFSET)
        return _number(text) if text is not None else record.queue_offset

    def live(self, record: MessageRecord) -> int | None:
        """The index of the unsettled half of this half's transaction; None when it has its final state."""
        root = self.root(record)
        current = self._copies.get(root, root)
        return current if self._is_open(current) else None

    def _is_open(self, index: int) -> bool:
        return self._next <= index < self._queue(HALF_TOPIC).next and index not in self._settled

    def settle(self, record: MessageRecord, index: int, puts: list[Put]) -> Span:
        """Append what ends a transaction and, last, the op record of its unsettled half.

        :param record: any half of it.
        :param index: what :meth:`live` said.
        :raises StoreError: the store takes nothing, or the broker is no master any more; the transaction is as it was.
        """
        if self.tasks.closed:
            raise StoreError("the check of transactions has ended")
        span = self._store.append([*puts, self._halves.settled(index)])
        self._copies.pop(self.root(record), None)
        self._mark([index])
        return span

    def _mark(self, indexes: list[int]) -> None:
        """These halves are settled; their op records were appended last."""
        op = self._queue(OP_HALF_TOPIC)
        for at, index in enumerate(indexes, op.next - len(indexes)):
            self._ops.append((at, index))
            if index >= self._next:
                self._settled.add(index)
        self._advance()

    def _note(self, at: int, body: bytes, end: int) -> None:
        """Take in an op record.

        :param end: one beyond the last half that there is: what says more is none of ours.
        """
        # 5.x writes several indexes into one record, each followed by a comma.
        for text in body.split(b","):
            index = whole(text, end - 1)
            if index is not None:
                self._ops.append((at, index))
                if index >= self._next:
                    self._settled.add(index)
            elif text:
                self._notes.say(
                    log.error, "%s-0 at %d names no half message: %r is passed over", OP_HALF_TOPIC, at, text[:40]
                )

    def _advance(self) -> None:
        """Move on over settled halves, and over op records that only speak of such."""
        settled = self._settled
        while self._next in settled:
            settled.discard(self._next)
            self._next += 1
        ops = self._ops
        done = -1
        while ops and ops[0][1] < self._next:
            done = ops.popleft()[0]
        op = done + 1
        ahead = self._ahead
        if len(ahead) >= _MOST_AHEAD:
            op = max(op, ahead.pop()[2])
        ahead.append((self._store.log.end, self._next, op))
        self._tell()

    def _tell(self) -> None:
        """Tell the progress that is on disk: a power cut must not lose a settlement and keep its progress."""
        durable = self._store.durable_end()
        ahead = self._ahead
        while ahead and ahead[0][0] <= durable:
            _, half, op = ahead.popleft()
            if half > 0:
                self._offsets.commit(CHECK_GROUP, HALF_TOPIC, 0, half)
            if op > 0:
                self._offsets.commit(CHECK_GROUP, OP_HALF_TOPIC, 0, op)

    def _queue(self, topic: str) -> Queue:
        return self._store.queues.get_or_create(topic, 0)

    async def _records(self, queue: Queue, index: int, end: int) -> list[_Numbered]:
        """Some records of a queue from ``index`` to before ``end``.

        None for one that is gone or damaged; the error for one that the disk does not give.
        """
        queues = self._store.queues
        try:
            data = await queues.entries_cold(queue, index, min(_SLICE, end - index))
        except OSError:
            try:
                data = await queues.entries_cold(queue, index, 1)
            except OSError as error:
                return [(index, error)]
        found: list[_Numbered] = []
        size = 0
        for number in range(len(data) // ENTRY_SIZE):
            physical, length, _ = _entry(data, number * ENTRY_SIZE)
            try:
                raw = await self._store.messages.of_entry(queue, index + number, physical, length)
            except OSError as error:
                found.append((index + number, error))
                continue
            record = None
            if raw:
                size += len(raw)
                try:
                    record = decode_record(raw)
                except ProtocolError as error:
                    log.warning("%s-%d at %d cannot be read: %s", queue.topic, queue.id, index + number, error)
            found.append((index + number, record))
            if size >= _SLICE_BYTES:
                break
        return found

    # -- the pass

    async def _check(self) -> None:
        """One pass over what is not settled."""
        if self._store.log.gate:
            return
        self._topics.create_for_send_back(HALF_TOPIC, 1, 6, 0)
        if self._owed:
            self._store.append([self._halves.settled(index) for index in self._owed])
            owed, self._owed = self._owed, []
            self._mark(owed)
        half = self._queue(HALF_TOPIC)
        deadline = self._clock.monotonic() + _PASS_SECONDS
        if self._next < half.min:
            self._next = half.min
            self._settled = {index for index in self._settled if index >= self._next}
            self._copies = {root: index for root, index in self._copies.items() if index >= self._next}
            for at in self._aside:
                if at < self._next:
                    self._aside.done(at)
        self._advance()
        # What is stored from here on, copies of this pass among it, is the next one's.
        end = half.visible
        seen, self._seen = self._seen, end
        counted = _Counts()
        index = self._next
        while index < end and self._clock.monotonic() < deadline:
            if index in self._settled:
                index += 1
                continue
            records = await self._records(half, index, end)
            index += max(1, len(records))
            go_on = self._slice(records, seen, counted)
            await self._ask_all()
            if not go_on:
                break
            await asyncio.sleep(0)
        counted.report()

    def _slice(self, records: list[_Numbered], seen: int, counted: _Counts) -> bool:
        """Treat some halves, each on its own; whether to go on."""
        for at, record in records:
            if not self._is_open(at):
                continue
            if record is None:
                log.error("half message %d cannot be read and is given up", at)
                self._settled.add(at)
                continue
            try:
                if isinstance(record, OSError):
                    raise record
                verdict = Verdict.DROP if self._halves.is_dead(record) else self._judge(record, at < seen)
                if verdict is Verdict.STOP:
                    return False
                if verdict is Verdict.LATER:
                    continue
                if verdict is Verdict.DROP:
                    self.settle(record, at, [])
                elif verdict is Verdict.CHECK:
                    self._ask(at, record, counted)
                else:
                    self._discard(at, record)
            except Exception as error:
                if self._store.log.gate:
                    log.error("half messages cannot be treated until the next pass: %s", error)
                    return False
                if self._aside.full:
                    raise
                self._aside.failed(at, f"{HALF_TOPIC}-0 at {at}", error)
            else:
                self._aside.done(at)
        return True

    def _judge(self, record: MessageRecord, seen: bool) -> Verdict:
        settings = self._settings
        return judge(
            record.properties,
            record.born_timestamp,
            record.store_timestamp,
            now=self._clock.now_ms(),
            timeout=settings.transaction_time_out,
            most=settings.transaction_check_max,
            # A little before its file may go.
            keep=settings.file_reserved_time * 3_564_000,
            seen=seen,
        )

    def _discard(self, index: int, record: MessageRecord) -> None:
        """Move a half to where an operator finds it."""
        table = {**record.properties, _CHECKED: str(_number(record.properties.get(_CHECKED)) + 1)}
        table.pop(_FIRST_OFFSET, None)
        self._topics.create_for_send_back(DISCARD_TOPIC, 1, 6, 0)
        self.settle(record, index, [self._halves.discarded(record, table)])
        log.warning(
            "half message %s of group %s is given up and moved to %s", record.msg_id, table.get("PGROUP"), DISCARD_TOPIC
        )

    def _ask(self, index: int, record: MessageRecord, counted: _Counts) -> None:
        """Store a half anew with one more check counted; some member of the producer group is to be asked about it."""
        group = record.properties.get("PGROUP", "")
        conn = self._member(group, publish_topic(record.properties.get("REAL_TOPIC", "")), record.born_host)
        if conn is None:
            counted.alone[group] = counted.alone.get(group, 0) + 1
            return
        root = self.root(record)
        table = {
            **record.properties,
            _CHECKED: str(_number(record.properties.get(_CHECKED)) + 1),
            _FIRST_OFFSET: str(root),
        }
        span = self._store.append([self._halves.again(record, table), self._halves.settled(index)])
        copy, physical = span.offsets[0]
        self._copies[root] = copy
        self._mark([index])
        self._questions.append((conn, self._question(record, table, copy, physical)))
        self._stored_to = span.end
        counted.asked += 1

    async def _ask_all(self) -> None:
        """Ask about the newest copies once they may be seen: an end that names one before that would be refused."""
        questions, self._questions = self._questions, []
        while questions and self._store.durability.visible < self._stored_to:
            if self._store.log.gate:
                return  # the next pass asks, here or at another broker
            await asyncio.sleep(_LOOK)
        for conn, question in questions:
            with contextlib.suppress(TransportError):  # the next pass asks somebody else
                conn.oneway(question)

    def _member(self, group: str, need: Need, born_host: tuple[str, int]) -> Conn | None:
        """Whom to ask: the connection the half came by, else its machine, else the members in turn (B062).

        None when nobody is online that takes what is sent.

        :param need: what ending the transaction needs. Anybody may call himself a member of a group that sends, and a
            check shows the message: with access control those alone are asked whose answer would count.
        """
        members = self._producers.group(group) or ()
        conns = [channel.conn for channel in members if channel.grant is None or channel.grant.allows(need)]
        conns = [conn for conn in conns if not (conn.closed or conn.congested)]
        host, port = born_host
        near = [conn for conn in conns if conn.host == host]
        for conn in near:
            if conn.port == port:
                return conn
        self._turn += 1
        choice = near or conns
        return choice[self._turn % len(choice)] if choice else None

    @staticmethod
    def _question(record: MessageRecord, table: dict[str, str], index: int, physical: int) -> Command:
        """CHECK_TRANSACTION_STATE about the copy at ``index`` (protocol.md 2.9)."""
        unique = table.get("UNIQ_KEY")
        shown = dataclasses.replace(
            record,
            topic=table.get("REAL_TOPIC", record.topic),
            queue_id=_number(table.get("REAL_QID")),
            queue_offset=index,
            physical_offset=physical,
            prepared_transaction_offset=0,
            properties={**table, "WAIT": "false"},
        )
        header = CheckTransactionStateRequest(
            tran_state_table_offset=index,
            commit_log_offset=physical,
            msg_id=unique,
            transaction_id=unique,
            offset_msg_id=offset_msg_id(*record.store_host, physical),
        )
        return Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_record(shown))


@dataclasses.dataclass(slots=True)
class _Counts:
    """What one pass did, for one line of the log each."""

    asked: int = 0
    #: Group -> halves that nobody could be asked about.
    alone: dict[str, int] = dataclasses.field(default_factory=dict)

    def report(self) -> None:
        if self.asked:
            log.info("asked producers about %d half messages", self.asked)
        for group, count in self.alone.items():
            log.warning("nobody of producer group %r is online to be asked about %d half messages", group, count)
