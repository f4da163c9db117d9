"""Transactions: 37, 39, 323 (protocol.md 2.8, 2.9)."""

from __future__ import annotations

from rmq.protocol.errors import HeaderError
from rmq.protocol.header import Header, wire, wire_header

__all__ = [
    "COMMIT",
    "ROLLBACK",
    "UNKNOWN",
    "CheckTransactionStateRequest",
    "EndTransactionRequest",
    "ResumeCheckHalfMessageRequest",
]

# commitOrRollback: the transaction bits of a message's sysFlag
UNKNOWN = 0
COMMIT = 8
ROLLBACK = 12


@wire_header
class EndTransactionRequest(Header):
    """37 END_TRANSACTION. ``tran_state_table_offset`` is the half message's queue offset, ``msg_id`` its UNIQ_KEY."""

    producer_group: str = wire("producerGroup")
    tran_state_table_offset: int = wire("tranStateTableOffset", long=True)
    commit_log_offset: int = wire("commitLogOffset", long=True)
    commit_or_rollback: int = wire("commitOrRollback")
    from_transaction_check: bool = wire("fromTransactionCheck", default=False)
    msg_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    topic: str | None = wire("topic", default=None)
    bname: str | None = wire("bname", default=None)

    def __post_init__(self) -> None:
        if self.commit_or_rollback not in (UNKNOWN, COMMIT, ROLLBACK):
            raise HeaderError(f"commitOrRollback={self.commit_or_rollback}: 0, 8 (commit) and 12 (rollback) are known")


@wire_header
class CheckTransactionStateRequest(Header):
    """39 CHECK_TRANSACTION_STATE, from broker to producer."""

    tran_state_table_offset: int = wire("tranStateTableOffset", long=True)
    commit_log_offset: int = wire("commitLogOffset", long=True)
    msg_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    offset_msg_id: str | None = wire("offsetMsgId", default=None)
    topic: str | None = wire("topic", default=None)
    bname: str | None = wire("bname", default=None)


@wire_header
class ResumeCheckHalfMessageRequest(Header):
    """323 RESUME_CHECK_HALF_MESSAGE; ``topic`` is 5.x's."""

    msg_id: str | None = wire("msgId", default=None)
    topic: str | None = wire("topic", default=None)
