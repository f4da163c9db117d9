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
        TransactionProducer,
    )
    from rmq.client.consumer.listeners import ConsumeContext
    from rmq.client.hooks import ConsumeHookContext, Hook, SendHookContext
    from rmq.client.message import Message, MessageExt, MessageQueue
    from rmq.client.offset_storage import OffsetStorage
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

__version__ = "0.1.0"

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

_HOMES = {
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
        "TransactionProducer",
    ),
    "rmq.client.consumer.listeners": ("ConsumeContext",),
    "rmq.client.hooks": ("ConsumeHookContext", "Hook", "SendHookContext"),
    "rmq.client.message": ("Message", "MessageExt", "MessageQueue"),
    "rmq.client.offset_storage": ("OffsetStorage",),
    "rmq.client.results": (
        "ConsumeResult",
        "PullResult",
        "PullStatus",
        "QueryResult",
        "SendResult",
        "SendStatus",
        "TransactionSendResult",
        "TransactionState",
    ),
    "rmq.client.selectors": ("by_hash", "by_machine_room", "by_random"),
    "rmq.client.settings": ("ConsumeFromWhere", "MessageModel"),
    "rmq.protocol.errors": (
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
