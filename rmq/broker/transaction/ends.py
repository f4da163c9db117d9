"""END_TRANSACTION: the producer's word on a half message (store-and-broker.md 7.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ProtocolError, ResponseError, StoreError
from rmq.protocol.headers.transaction import EndTransactionRequest, ResumeCheckHalfMessageRequest
from rmq.protocol.ids import decode_offset_msg_id
from rmq.protocol.message import MessageRecord, decode_record
from rmq.protocol.names import HALF_TOPIC
from rmq.remoting.router import handles

if TYPE_CHECKING:
    from rmq.broker.lane.admit import Admission
    from rmq.broker.store.store import Store
    from rmq.broker.transaction.halves import Halves
    from rmq.remoting.conn import Conn

__all__ = ["TransactionEnds"]

_UNKNOWN = 0
_COMMIT = 8
_ROLLBACK = 12


class TransactionEnds:
    """Commits and rolls back.

    :param on_settled: told the queue index of each half that needs no check any more.
    """

    def __init__(self, store: Store, halves: Halves, admission: Admission, on_settled: Callable[[int], None]) -> None:
        self._store = store
        self._halves = halves
        self._admission = admission
        self._on_settled = on_settled

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
        puts = [self._halves.settled(half.queue_offset)]
        if verdict == _COMMIT:
            puts.insert(0, self._halves.committed(half))
        if self._store.log.gate:
            raise self._admission.unavailable()
        try:
            self._store.append(puts)
        except (OSError, StoreError):
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "Create mapped file failed.") from None
        self._on_settled(half.queue_offset)
        return request.reply(ResponseCode.SUCCESS)

    async def _half(self, header: EndTransactionRequest) -> MessageRecord:
        data = await self._store.record_at(header.commit_log_offset) if header.commit_log_offset >= 0 else None
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
        if half.topic != HALF_TOPIC or not half.properties.get("REAL_QID", "").isdecimal():
            # A record that never was a half message must not be sent anywhere.
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        return half

    @handles(RequestCode.RESUME_CHECK_HALF_MESSAGE, header=ResumeCheckHalfMessageRequest)
    async def resume(self, conn: Conn, request: Command, header: ResumeCheckHalfMessageRequest) -> Command | None:
        """Put a discarded half message back, to be checked from the beginning."""
        refusal = ResponseError(
            ResponseCode.SYSTEM_ERROR, "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
        )
        try:
            _, _, offset = decode_offset_msg_id(header.msg_id or "")
            data = await self._store.record_at(offset) if offset >= 0 else None
            if data is None:
                raise refusal
            record = decode_record(data)
            table = {**record.properties, "TRANSACTION_CHECK_TIMES": "0"}
            self._store.append([self._halves.again(record, table, keep_flags=True)])
        except (ProtocolError, StoreError, OSError):
            raise refusal from None
        return request.reply(ResponseCode.SUCCESS)
