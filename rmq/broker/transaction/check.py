"""The check of half messages nobody has settled: who is asked, how often, and where they go in the end.

This broker is the only writer of its op records, so what is settled is known in memory: read once from the op queue at
start, then told by :mod:`rmq.broker.transaction.ends`. Progress is kept, as in Java, as the offsets of group
CID_RMQ_SYS_TRANS on the half and the op queue (store-and-broker.md 7.4).
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING

from rmq.broker.store.state import ENTRY_SIZE, Queue
from rmq.broker.transaction.halves import CHECK_GROUP, DISCARD_TOPIC
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ProtocolError, RMQError, StoreError
from rmq.protocol.headers.transaction import CheckTransactionStateRequest
from rmq.protocol.ids import offset_msg_id
from rmq.protocol.message import MessageRecord, decode_record, encode_record
from rmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.runtime.tasks import TaskOwner

if TYPE_CHECKING:
    from rmq.broker.groups.clients import Producers
    from rmq.broker.groups.offsets import OffsetTable
    from rmq.broker.settings import BrokerSettings
    from rmq.broker.store.store import Store
    from rmq.broker.topics.table import TopicTable
    from rmq.broker.transaction.halves import Halves
    from rmq.runtime.world import World

__all__ = ["TransactionCheck", "Verdict", "judge"]

log = logging.getLogger(__name__)

_entry = Struct(">qiq").unpack_from
#: Entries read at a time, and what one pass may take, seconds.
_SLICE = 32
_PASS_SECONDS = 60.0

_CHECKED = "TRANSACTION_CHECK_TIMES"
_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_FIRST_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"


class Verdict(Enum):
    """What is to be done with a half message that nobody has settled."""

    #: Too young, and so is all that follows: end the pass here.
    STOP = auto()
    #: Still immune by its own property: put it back and look at the next one.
    LATER = auto()
    #: Ask its producer.
    CHECK = auto()
    #: Asked often enough, or too old.
    DISCARD = auto()


def judge(
    table: dict[str, str], born: int, stored: int, *, started: int, now: int, timeout: int, most: int, keep: int
) -> Verdict:
    """Decide about one unsettled half message; all times in ms.

    :param table: its properties.
    :param started: when this pass began: what was stored since is the next pass's.
    :param timeout: ``transactionTimeOut``, the age of a first check.
    :param most: ``transactionCheckMax``.
    :param keep: the time after which the file with it may be deleted.
    """
    checked = table.get(_CHECKED, "0")
    if (int(checked) if checked.isdecimal() else 0) >= most or now - born > keep:
        return Verdict.DISCARD
    if stored >= started:
        return Verdict.STOP
    age = now - born
    immunity = table.get(_IMMUNITY)
    if immunity is not None:
        wait = int(immunity) * 1000 if immunity.isdecimal() else timeout
        # A clock that was set back must not hold a message for ever: a negative age is checked.
        return Verdict.LATER if 0 <= age < wait else Verdict.CHECK
    return Verdict.STOP if 0 <= age < timeout else Verdict.CHECK


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
        self._random = world.random
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._producers = producers
        self._store = store
        self._halves = halves
        self._tasks = TaskOwner("transaction check")
        #: First half that is not settled, and what is settled beyond it.
        self._next = 0
        self._settled: set[int] = set()
        #: Op records in order: (index in the op queue, index of the half).
        self._ops: deque[tuple[int, int]] = deque()

    async def start(self) -> None:
        """Read what is settled, then check every ``transactionCheckInterval``."""
        half = self._queue(HALF_TOPIC)
        self._next = max(self._offsets.query(CHECK_GROUP, HALF_TOPIC, 0), half.min, 0)
        op = self._queue(OP_HALF_TOPIC)
        index = max(self._offsets.query(CHECK_GROUP, OP_HALF_TOPIC, 0), op.min, 0)
        while index < op.visible:
            records = await self._records(op, index)
            if not records:
                break
            for at, record in records:
                self._note(at, record.body)
            index = records[-1][0] + 1
        self._advance()
        self._tasks.every(lambda: self._settings.transaction_check_interval / 1000, self._check, "pass")

    async def close(self) -> None:
        await self._tasks.close()

    def settled(self, index: int) -> None:
        """A half was committed or rolled back, and its op record was appended last."""
        op = self._queue(OP_HALF_TOPIC)
        self._ops.append((op.next - 1, index))
        if index >= self._next:
            self._settled.add(index)
        self._advance()

    def _note(self, at: int, body: bytes) -> None:
        # 5.x writes several indexes into one record, each followed by a comma.
        for text in body.split(b","):
            if text.isdigit():
                self._ops.append((at, int(text)))
                if int(text) >= self._next:
                    self._settled.add(int(text))

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
        self._offsets.commit(CHECK_GROUP, HALF_TOPIC, 0, self._next)
        if done >= 0:
            self._offsets.commit(CHECK_GROUP, OP_HALF_TOPIC, 0, done + 1)

    def _queue(self, topic: str) -> Queue:
        return self._store.queues.get_or_create(topic, 0)

    async def _records(self, queue: Queue, index: int) -> list[tuple[int, MessageRecord]]:
        """Some records of a queue from ``index`` on; unreadable ones are left out."""
        queues = self._store.queues
        count = min(_SLICE, queue.visible - index)
        data = queues.entries(queue, index, count)
        if data is None:
            data = await queues.entries_cold(queue, index, count)
        found = []
        for number in range(len(data) // ENTRY_SIZE):
            physical, _, _ = _entry(data, number * ENTRY_SIZE)
            record = await self._store.record_at(physical)
            if record is not None:
                try:
                    found.append((index + number, decode_record(record)))
                except ProtocolError as error:
                    log.warning("%s-%d at %d cannot be read: %s", queue.topic, queue.id, index + number, error)
        return found

    async def _check(self) -> None:
        """One pass over what is not settled."""
        if self._store.log.gate:
            return
        self._topics.create_for_send_back(HALF_TOPIC, 1, 6, 0)
        half = self._queue(HALF_TOPIC)
        started = self._clock.now_ms()
        deadline = self._clock.monotonic() + _PASS_SECONDS
        self._next = max(self._next, half.min)
        self._settled = {index for index in self._settled if index >= self._next}
        self._advance()
        index = self._next
        asked = 0
        while index < half.visible and self._clock.monotonic() < deadline:
            if index in self._settled:
                index += 1
                continue
            records = await self._records(half, index)
            if not records:
                index += 1
                continue
            for at, record in records:
                index = at + 1
                if at < self._next or at in self._settled:
                    continue
                verdict = self._judge(record, started)
                if verdict is Verdict.STOP:
                    self._report(asked)
                    return
                try:
                    asked += self._treat(at, record, verdict)
                except (StoreError, OSError, RMQError) as error:
                    log.error("half message %s cannot be treated: %s", record.msg_id, error)
                    return
        self._report(asked)

    @staticmethod
    def _report(asked: int) -> None:
        if asked:
            log.info("asked producers about %d half messages", asked)

    def _judge(self, record: MessageRecord, started: int) -> Verdict:
        settings = self._settings
        return judge(
            record.properties,
            record.born_timestamp,
            record.store_timestamp,
            started=started,
            now=self._clock.now_ms(),
            timeout=settings.transaction_time_out,
            most=settings.transaction_check_max,
            keep=settings.file_reserved_time * 3_600_000,
        )

    def _treat(self, index: int, record: MessageRecord, verdict: Verdict) -> int:
        """Carry out a verdict; how many producers were asked."""
        table = dict(record.properties)
        if verdict is Verdict.LATER:
            table.setdefault(_FIRST_OFFSET, str(index))
            table["WAIT"] = "false"
            self._store.append([self._halves.again(record, table), self._halves.settled(index)])
            self.settled(index)
            return 0
        checked = table.get(_CHECKED, "0")
        table[_CHECKED] = str((int(checked) if checked.isdecimal() else 0) + 1)
        if verdict is Verdict.DISCARD:
            self._topics.create_for_send_back(DISCARD_TOPIC, 1, 6, 0)
            self._store.append([self._halves.discarded(record, table), self._halves.settled(index)])
            self.settled(index)
            log.warning(
                "half message %s of group %s is given up and moved to %s",
                record.msg_id,
                table.get("PGROUP"),
                DISCARD_TOPIC,
            )
            return 0
        span = self._store.append([self._halves.again(record, table), self._halves.settled(index)])
        self.settled(index)
        return self._ask(record, table, *span.offsets[0])

    def _ask(self, record: MessageRecord, table: dict[str, str], index: int, physical: int) -> int:
        """Send CHECK_TRANSACTION_STATE to some member of the producer group."""
        group = table.get("PGROUP", "")
        channels = [channel for channel in self._producers.group(group) or () if not channel.conn.closed]
        if not channels:
            log.warning("no producer of group %r is online to be asked about half message %s", group, record.msg_id)
            return 0
        unique = table.get("UNIQ_KEY")
        shown = MessageRecord(
            topic=table.get("REAL_TOPIC", record.topic),
            queue_id=int(table.get("REAL_QID", "0")),
            flag=record.flag,
            queue_offset=index,
            physical_offset=physical,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_timestamp=record.store_timestamp,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=0,
            body=record.body,
            properties={**table, "WAIT": "false"},
        )
        header = CheckTransactionStateRequest(
            tran_state_table_offset=index,
            commit_log_offset=physical,
            msg_id=unique,
            transaction_id=unique,
            offset_msg_id=offset_msg_id(*record.store_host, physical),
        )
        request = Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_record(shown))
        self._random.choice(channels).conn.oneway(request)
        return 1
