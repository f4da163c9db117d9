"""The asyncio API: the same clients as in :mod:`rmq`, as coroutines."""

from __future__ import annotations

from rmq.client.admin import AdminClient
from rmq.client.allocate import (
    AllocateByMachineRoom,
    AllocateByMachineRoomNearby,
    AllocateConsistentHash,
    AllocateMessageQueueStrategy,
    AllocateQueuesAveragely,
    AllocateQueuesAveragelyByCircle,
    AllocateQueuesByConfig,
)
from rmq.client.consumer.listeners import ConsumeContext
from rmq.client.consumer.lite import LitePullConsumer
from rmq.client.consumer.pull import PullConsumer
from rmq.client.consumer.push import PushConsumer
from rmq.client.consumer.scheduled import ScheduledPullConsumer
from rmq.client.hooks import ConsumeHookContext, Hook, SendHookContext
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.offset_storage import OffsetStorage
from rmq.client.producer import Producer
from rmq.client.results import (
    ConsumeResult,
    PullResult,
    PullStatus,
    QueryResult,
    SendResult,
    SendStatus,
    TransactionSendResult,
    TransactionState,
)
from rmq.client.selectors import by_hash, by_machine_room, by_random
from rmq.client.settings import ConsumeFromWhere, MessageModel
from rmq.client.transaction import TransactionProducer
from rmq.protocol.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    ReplyTimeout,
    RequestTimeout,
    ResponseError,
    RMQError,
    TooManyRequests,
    TransportError,
)

__all__ = [
    "AdminClient",
    "AllocateByMachineRoom",
    "AllocateByMachineRoomNearby",
    "AllocateConsistentHash",
    "AllocateMessageQueueStrategy",
    "AllocateQueuesAveragely",
    "AllocateQueuesAveragelyByCircle",
    "AllocateQueuesByConfig",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeHookContext",
    "ConsumeResult",
    "Hook",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "OffsetStorage",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueryResult",
    "RMQError",
    "ReplyTimeout",
    "RequestTimeout",
    "ResponseError",
    "ScheduledPullConsumer",
    "SendHookContext",
    "SendResult",
    "SendStatus",
    "TooManyRequests",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionState",
    "TransportError",
    "by_hash",
    "by_machine_room",
    "by_random",
]
