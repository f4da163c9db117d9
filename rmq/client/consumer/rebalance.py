"""Which queues are ours: who is in the group, what the strategy says, where to start (protocol.md 7.1, 7.4)."""

from __future__ import annotations

from datetime import datetime

from rmq.client import lookup
from rmq.client.allocate import AllocateMessageQueueStrategy
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.client.settings import ConsumeFromWhere
from rmq.protocol.bodies.kv import GetConsumerListByGroupResponseBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.errors import ClientError
from rmq.protocol.headers.client import GetConsumerListByGroupRequest
from rmq.protocol.names import is_retry_topic
from rmq.runtime.aside import logger

__all__ = ["consumer_ids", "our_share", "start_offset", "timestamp_ms"]

log = logger(__name__)

_HALF_AN_HOUR_MS = 30 * 60 * 1000


async def consumer_ids(instance: ClientInstance, group: str, topic: str) -> list[str]:
    """The client ids of a group, sorted, as a broker of the topic knows them (code 38).

    :raises RMQError: no broker says.
    """
    route = instance.routes.own.get(topic)
    brokers = [broker.broker_addrs for broker in route.broker_datas if broker.broker_addrs] if route else []
    if not brokers:
        raise ClientError(f"the topic {topic} has no broker now")
    addrs = instance.world.random.choice(brokers)
    address = addrs[min(addrs)]
    header = GetConsumerListByGroupRequest(consumer_group=group)
    reply = await instance.call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    return sorted(set(GetConsumerListByGroupResponseBody.decode(reply.body).consumer_id_list))


def our_share(
    strategy: AllocateMessageQueueStrategy,
    group: str,
    client_id: str,
    queues: list[MessageQueue],
    client_ids: list[str],
) -> list[MessageQueue]:
    """What the strategy gives this client; nothing while the broker does not know it."""
    if client_id not in client_ids:
        log.info("group %s: %s is not among its %d members yet", group, client_id, len(client_ids))
        return []
    if not queues:
        return []
    return strategy.allocate(group, client_id, queues, client_ids)


def timestamp_ms(given: datetime | str | None, now_ms: int) -> int:
    """``consume_timestamp`` in milliseconds: a datetime, or ``yyyyMMddHHmmss`` in local time; default 30 minutes ago.

    :raises ClientError: a text of another form.
    """
    if given is None:
        return now_ms - _HALF_AN_HOUR_MS
    if isinstance(given, datetime):
        return int(given.timestamp() * 1000)
    try:
        return int(datetime.strptime(given, "%Y%m%d%H%M%S").timestamp() * 1000)
    except (ValueError, TypeError):
        raise ClientError(f"consume_timestamp is {given!r}: give a datetime, or yyyyMMddHHmmss in local time") from None


async def start_offset(
    instance: ClientInstance,
    store: OffsetStore,
    queue: MessageQueue,
    policy: ConsumeFromWhere,
    timestamp: int,
) -> int:
    """Where to start in a queue that became ours (protocol.md 7.4).

    :raises RMQError: it cannot be known now; the next rebalance asks again.
    """
    stored = await store.read(queue)
    if stored >= 0:
        log.info("%s: starts at the committed offset %d", queue, stored)
        return stored
    retry = is_retry_topic(queue.topic)
    if policy is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        offset = 0 if retry else await lookup.min_offset(instance, queue)
    elif policy is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        if retry:
            offset = await lookup.max_offset(instance, queue)
        else:
            offset = await lookup.search_offset(instance, queue, timestamp)
    else:
        offset = 0 if retry else await lookup.max_offset(instance, queue)
    log.info("%s: no committed offset, %s starts at %d", queue, policy.name, offset)
    return offset
