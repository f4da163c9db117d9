"""END_TRANSACTION: the producer's word on a half message (store-and-broker.md 7.4)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.broker.reserved import check_target
from rmq.protocol import frame
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ProtocolError, ResponseError, StoreError
from rmq.protocol.headers.transaction import EndTransactionRequest, ResumeCheckHalfMessageRequest
from rmq.protocol.ids import decode_offset_msg_id
from rmq.protocol.message import MessageRecord, decode_record
from rmq.protocol.names import HALF_TOPIC
from rmq.protocol.numbers import INT_MAX, whole
from rmq.protocol.permissions import publish_topic
from rmq.remoting.metrics import Histogram
from rmq.remoting.router import handles

if TYPE_CHECKING:
    from rmq.broker.lane.admit import Admission
    from rmq.broker.store.state import Put
    from rmq.broker.store.store import Store
    from rmq.broker.transaction.check import TransactionCheck
    from rmq.broker.transaction.halves import Halves
    from rmq.remoting.conn import Conn
    from rmq.runtime.world import Clock

__all__ = ["TransactionEnds"]

log = logging.getLogger(__name__)

_UNKNOWN = 0
#: Seconds: the buckets of RocketMQ 5.
_LATENCY_BOUNDS = (5, 60, 600, 3600, 43_200, 86_400)
_COMMIT = 8
_ROLLBACK = 12


class TransactionEnds:
    """Commits and rolls back.

    :param check: knows which transactions are open.
    """

    def __init__(
        self, clock: Clock, store: Store, halves: Halves, admission: Admission, check: TransactionCheck
    ) -> None:
        self._clock = clock
        self._store = store
        self._halves = halves
        self._admission = admission
        self._check = check
        #: Told the message of each commit.
        self.on_committed: Callable[[list[Put]], None] = lambda puts: None
        #: Commits and rollbacks since start, and how old the committed ones were, seconds: by topic.
        self.commits: Counter[str] = Counter()
        self.rollbacks: Counter[str] = Counter()
        self.latencies: dict[str, Histogram] = {}

    @handles(RequestCode.END_TRANSACTION, header=EndTransactionRequest)
    async def end(self, conn: Conn, request: Command, header: EndTransactionRequest) -> Command | None:
        """Settle one half message; "unknown" is answered by nobody, it waits for the check."""
        verdict = header.commit_or_rollback
        if verdict == _UNKNOWN:
            return None
        if verdict not in (_COMMIT, _ROLLBACK):
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"commitOrRollback={verdict}: 8 commits, 12 rolls back, 0 is undecided"
            )
        half = await self._half(header)
        request.demand(publish_topic(half.properties.get("REAL_TOPIC", "")))
        if verdict == _COMMIT:
            check_target(half.properties.get("REAL_TOPIC", ""))
        # From here on without a pause: of two ends of one transaction the first wins.
        if self._check.closed:
            raise _not_now()
        current = self._check.live(half)
        if current is None:
            log.info(
                "%s of half message %s comes after its end: nothing is done",
                "a commit" if verdict == _COMMIT else "a rollback",
                half.properties.get("UNIQ_KEY"),
            )
            return request.reply(ResponseCode.SUCCESS)
        if self._store.log.gate:
            raise _not_now()
        try:
            # What is committed to a topic that was deleted has nowhere to go: it ends as if it were rolled back.
            committed = verdict == _COMMIT and not self._halves.is_dead(half)
            puts = [self._halves.committed(half)] if committed else []
            span = self._check.settle(half, current, puts)
        except (OSError, StoreError) as error:
            log.error("the end of half message %s is not stored: %s", half.properties.get("UNIQ_KEY"), error)
            if self._store.log.gate:
                raise _not_now() from None
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "Create mapped file failed.") from None
        if not self._halves.is_dead(half):
            self._count(half, committed=committed)
        self.on_committed(puts)
        return self._answer(conn, request, span.end)

    def _count(self, half: MessageRecord, *, committed: bool) -> None:
        topic = half.properties.get("REAL_TOPIC", "")
        if not committed:
            self.rollbacks[topic] += 1
            return
        self.commits[topic] += 1
        if topic not in self.latencies:
            self.latencies[topic] = Histogram(_LATENCY_BOUNDS)
        self.latencies[topic].add(max(0, self._clock.now_ms() - half.born_timestamp) / 1000)

    def forget_topic(self, topic: str) -> None:
        """Drop what was counted for a deleted topic."""
        for counted in (self.commits, self.rollbacks, self.latencies):
            counted.pop(topic, None)

    def _answer(self, conn: Conn, request: Command, end: int) -> Command | None:
        """Success, when what was appended is as durable as configured. A wait that was too long is no failure."""
        answer = request.reply(ResponseCode.SUCCESS)
        if not self._store.acks.waits or request.is_oneway:
            return answer
        held = [(conn, frame.encode(answer))]
        self._store.acks.hold(end, held, lambda _: held)
        return None

    async def _half(self, header: EndTransactionRequest) -> MessageRecord:
        data = await self._store.messages.at(header.commit_log_offset) if header.commit_log_offset >= 0 else None
        if data is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        try:
            half = decode_record(data)
        except ProtocolError:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed") from None
        if half.properties.get("PGROUP") != header.producer_group:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.topic != HALF_TOPIC or whole(half.properties.get("REAL_QID"), INT_MAX) is None:
            # A record that never was a half message must not be sent anywhere.
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        return half

    @handles(RequestCode.RESUME_CHECK_HALF_MESSAGE, header=ResumeCheckHalfMessageRequest)
    async def resume(self, conn: Conn, request: Command, header: ResumeCheckHalfMessageRequest) -> Command | None:
        """Put a discarded half message back, to be checked from the beginning (field case B060)."""
        refusal = ResponseError(
            ResponseCode.SYSTEM_ERROR, "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
        )
        try:
            _, _, offset = decode_offset_msg_id(header.msg_id or "")
            data = await self._store.messages.at(offset) if offset >= 0 else None
            if data is None:
                raise refusal
            record = decode_record(data)
            table = {**record.properties, "TRANSACTION_CHECK_TIMES": "0"}
            # A new transaction: ends that name the old one stay without effect.
            table.pop("TRAN_PREPARED_QUEUE_OFFSET", None)
            if not (table.get("REAL_TOPIC") and table.get("PGROUP")) or whole(table.get("REAL_QID"), INT_MAX) is None:
                raise refusal
            check_target(table["REAL_TOPIC"])
            if self._halves.is_dead(record) or self._check.closed:
                raise refusal
            again = self._halves.again(record, table, keep_flags=True)
            current = self._check.live(record) if record.topic == HALF_TOPIC else None
            if current is None:
                span = self._store.append([again])
            else:
                # It is being checked: its count begins anew, but it stays one message.
                span = self._check.settle(record, current, [again])
        except (ProtocolError, StoreError, OSError):
            raise refusal from None
        return self._answer(conn, request, span.end)


def _not_now() -> ResponseError:
    return ResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
