"""What calls of the SDK return."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rmq.client.message import MessageExt, MessageQueue
from rmq.protocol.bodies.connection import ConsumerConnection
from rmq.protocol.bodies.stats import ConsumeStats, TopicStatsTable
from rmq.protocol.dicts import dict_of

__all__ = [
    "ConsumeResult",
    "GroupConnections",
    "GroupStats",
    "PullResult",
    "PullStatus",
    "QueryResult",
    "SendResult",
    "SendStatus",
    "TopicStats",
    "TransactionSendResult",
    "TransactionState",
]


class SendStatus(Enum):
    """What is known about a stored message (Java: SendStatus): every one of them means *stored*."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(slots=True)
class SendResult:
    """Where and how a message was stored (Java: SendResult).

    ``msg_id`` is the unique id the producer gave it (of a batch: the ids joined by ","), ``offset_msg_id`` the
    broker's, which ``view_message`` takes.
    """

    send_status: SendStatus
    msg_id: str
    offset_msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    #: What ``recall_message`` takes back a message by that waits for its delivery time; None for any other.
    recall_handle: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Its attributes by name; the queue's likewise, the status as its name."""
        return dict_of(self)

    @property
    def ok(self) -> bool:
        """Stored as the broker's configuration promises, not merely stored."""
        return self.send_status is SendStatus.SEND_OK


class TransactionState(Enum):
    """How a local transaction ended: the message is delivered, dropped, or asked about later."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0


@dataclass(slots=True)
class TransactionSendResult(SendResult):
    """A SendResult, and how the local transaction ended."""

    local_transaction_state: TransactionState = TransactionState.UNKNOWN


class PullStatus(Enum):
    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(slots=True)
class PullResult:
    """The answer of one pull (Java: PullResult); the next pull starts at ``next_begin_offset``."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Its attributes by name; each message likewise, the status as its name."""
        return dict_of(self)


@dataclass(slots=True)
class QueryResult:
    """What a query by key found (Java: QueryResult); the time of the index it was looked up in, milliseconds."""

    index_last_update_timestamp: int
    messages: list[MessageExt]
    #: What is to be known about it: brokers that did not answer, an answer that was cut, an index that is being rebuilt
    #: and does not find every message yet.
    remark: str = ""
    #: Brokers whose messages are not in it, by name, and why; the remark names them, too.
    missing: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Its attributes by name; each message likewise."""
        return dict_of(self)


@dataclass(slots=True)
class TopicStats(TopicStatsTable):
    """Offsets of a topic's queues on all brokers."""

    #: Brokers whose queues are not in it, by name, and why.
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class GroupStats(ConsumeStats):
    """Where a group stands on all brokers."""

    #: Brokers whose queues are not in it, by name, and why.
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class GroupConnections(ConsumerConnection):
    """The clients of a group on all brokers, each once."""

    #: Brokers that did not say who is connected, by name, and why.
    missing: dict[str, str] = field(default_factory=dict)


class ConsumeResult(Enum):
    """What a listener may return; returning nothing is SUCCESS, raising is RECONSUME_LATER.

    Orderly listeners: SUSPEND_CURRENT_QUEUE_A_MOMENT tries the same message again after a pause; COMMIT and ROLLBACK
    are for ``context.auto_commit = False``.
    """

    SUCCESS = "SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
