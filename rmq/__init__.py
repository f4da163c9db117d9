"""Apache RocketMQ in Python.

The blocking API::

    from rmq import Message, Producer

    with Producer("order_group", namesrv="127.0.0.1:9876") as producer:
        print(producer.send(Message("TopicTest", b"hello", tags="TagA", keys="order-1")))

``PushConsumer`` receives, ``TransactionProducer``, ``PullConsumer`` and ``AdminClient`` do what they are called;
:class:`rmq.client.settings.PushConsumerOptions` and its like name their keyword arguments. docs/sdk.md is the guide.
:mod:`rmq.aio` has the same names as coroutines. Names are loaded when they are first used, so that importing the
package costs nothing in processes that need little of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.client.admin import Answers
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
    from rmq.client.blocking import (
        AdminClient,
        LitePullConsumer,
        Producer,
        PullConsumer,
        PushConsumer,
        ScheduledPullConsumer,
        Transaction,
        TransactionProducer,
    )
    from rmq.client.consumer.listeners import ConsumeContext
    from rmq.client.hooks import ConsumeHookContext, EndTransactionHookContext, Hook, SendHookContext
    from rmq.client.message import Message, MessageExt, MessageQueue
    from rmq.client.offset_storage import OffsetStorage
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

__version__ = "0.1.0"

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

_HOMES = {
    "rmq.protocol.bodies.stats": (
        "BrokerStatsData",
        "BrokerStatsItem",
        "ConsumeQueueData",
        "ConsumeStatsList",
        "QueryConsumeQueueResponseBody",
    ),
    "rmq.protocol.bodies.connection": (
        "ProducerInfo",
        "ProducerTableInfo",
    ),
    "rmq.protocol.bodies.acl": (
        "AclConfig",
        "ClusterAclVersionInfo",
        "PlainAccessConfig",
    ),
    "rmq.client.admin": ("Answers",),
    "rmq.client.allocate": (
        "AllocateByMachineRoom",
        "AllocateByMachineRoomNearby",
        "AllocateConsistentHash",
        "AllocateMessageQueueStrategy",
        "AllocateQueuesAveragely",
        "AllocateQueuesAveragelyByCircle",
        "AllocateQueuesByConfig",
    ),
    "rmq.client.blocking": (
        "AdminClient",
        "LitePullConsumer",
        "Producer",
        "PullConsumer",
        "PushConsumer",
        "ScheduledPullConsumer",
        "Transaction",
        "TransactionProducer",
    ),
    "rmq.client.consumer.listeners": ("ConsumeContext",),
    "rmq.client.hooks": ("ConsumeHookContext", "EndTransactionHookContext", "Hook", "SendHookContext"),
    "rmq.client.message": ("Message", "MessageExt", "MessageQueue"),
    "rmq.client.offset_storage": ("OffsetStorage",),
    "rmq.client.results": (
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
    ),
    "rmq.client.selectors": ("by_hash", "by_machine_room", "by_random"),
    "rmq.client.settings": ("AccessChannel", "ConsumeFromWhere", "MessageModel"),
    "rmq.client.admin.replication": ("Elected", "GroupLeader"),
    "rmq.client.admin.reset": ("OffsetReset",),
    "rmq.protocol.bodies.cluster": ("ClusterInfo",),
    "rmq.protocol.bodies.group": (
        "SubscriptionGroupConfig",
        "SubscriptionGroupTable",
    ),
    "rmq.protocol.bodies.kv": ("TopicList",),
    "rmq.protocol.bodies.replica": (
        "HAClientRuntimeInfo",
        "HAConnectionRuntimeInfo",
        "GroupInfo",
        "GroupMember",
        "HARuntimeInfo",
    ),
    "rmq.protocol.bodies.route": (
        "BrokerData",
        "QueueData",
        "TopicRouteData",
    ),
    "rmq.protocol.bodies.running": (
        "ConsumeMessageDirectlyResult",
        "ConsumeStatus",
        "ConsumerRunningInfo",
        "ProcessQueueInfo",
    ),
    "rmq.protocol.bodies.topic": (
        "TopicConfig",
        "TopicConfigTable",
    ),
    "rmq.protocol.errors": (
        "AccessDenied",
        "ClientError",
        "ConnectFailed",
        "ConnectionLost",
        "RMQError",
        "ReplyTimeout",
        "RequestTimeout",
        "ResponseError",
        "TooManyRequests",
        "TransportError",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
