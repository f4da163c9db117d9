"""The asyncio API: the same clients as in :mod:`rmq`, as coroutines."""

from __future__ import annotations

from rmq.client.admin import AdminClient, Answers
from rmq.client.admin.replication import Elected, GroupLeader
from rmq.client.admin.reset import OffsetReset
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
from rmq.client.hooks import ConsumeHookContext, EndTransactionHookContext, Hook, SendHookContext
from rmq.client.message import Message, MessageExt, MessageQueue
from rmq.client.offset_storage import OffsetStorage
from rmq.client.producer import Producer
from rmq.client.results import (
    ConsumeResult,
    GroupConnections,
    GroupStats,
    PullResult,
    PullStatus,
    QueryResult,
    SendResult,
    SendStatus,
    TopicStats,
    TransactionSendResult,
    TransactionState,
)
from rmq.client.selectors import by_hash, by_machine_room, by_random
from rmq.client.settings import AccessChannel, ConsumeFromWhere, MessageModel
from rmq.client.transaction import Transaction, TransactionProducer
from rmq.protocol.bodies.acl import AclConfig, ClusterAclVersionInfo, PlainAccessConfig
from rmq.protocol.bodies.cluster import ClusterInfo
from rmq.protocol.bodies.connection import ProducerInfo, ProducerTableInfo
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.bodies.replica import (
    GroupInfo,
    GroupMember,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.bodies.running import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from rmq.protocol.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    ConsumeStatsList,
    QueryConsumeQueueResponseBody,
)
from rmq.protocol.bodies.topic import TopicConfig, TopicConfigTable
from rmq.protocol.errors import (
    AccessDenied,
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
    "AccessChannel",
    "AccessDenied",
    "AclConfig",
    "AdminClient",
    "AllocateByMachineRoom",
    "AllocateByMachineRoomNearby",
    "AllocateConsistentHash",
    "AllocateMessageQueueStrategy",
    "AllocateQueuesAveragely",
    "AllocateQueuesAveragelyByCircle",
    "AllocateQueuesByConfig",
    "Answers",
    "BrokerData",
    "BrokerStatsData",
    "BrokerStatsItem",
    "ClientError",
    "ClusterAclVersionInfo",
    "ClusterInfo",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeHookContext",
    "ConsumeMessageDirectlyResult",
    "ConsumeQueueData",
    "ConsumeResult",
    "ConsumeStatsList",
    "ConsumeStatus",
    "ConsumerRunningInfo",
    "Elected",
    "EndTransactionHookContext",
    "GroupConnections",
    "GroupInfo",
    "GroupLeader",
    "GroupMember",
    "GroupStats",
    "HAClientRuntimeInfo",
    "HAConnectionRuntimeInfo",
    "HARuntimeInfo",
    "Hook",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "OffsetReset",
    "OffsetStorage",
    "PlainAccessConfig",
    "ProcessQueueInfo",
    "Producer",
    "ProducerInfo",
    "ProducerTableInfo",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueryConsumeQueueResponseBody",
    "QueryResult",
    "QueueData",
    "RMQError",
    "ReplyTimeout",
    "RequestTimeout",
    "ResponseError",
    "ScheduledPullConsumer",
    "SendHookContext",
    "SendResult",
    "SendStatus",
    "SubscriptionGroupConfig",
    "SubscriptionGroupTable",
    "TooManyRequests",
    "TopicConfig",
    "TopicConfigTable",
    "TopicList",
    "TopicRouteData",
    "TopicStats",
    "Transaction",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionState",
    "TransportError",
    "by_hash",
    "by_machine_room",
    "by_random",
]
