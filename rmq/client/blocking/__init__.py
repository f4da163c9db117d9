"""The blocking API: the same clients on a loop thread, safe to use from many threads and after fork (design.md 6).

``mirror.py`` is written by ``make mirror`` from the asyncio classes; what is more than one call is beside it, by hand.
"""

from __future__ import annotations

from rmq.client.blocking.admin import AdminClient
from rmq.client.blocking.consumers import LitePullConsumer, PullConsumer, PushConsumer, ScheduledPullConsumer
from rmq.client.blocking.producer import Producer, Transaction, TransactionProducer

__all__ = [
    "AdminClient",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ScheduledPullConsumer",
    "Transaction",
    "TransactionProducer",
]
