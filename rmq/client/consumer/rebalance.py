"""Which queues are ours: who is in the group, what the strategy says, where to start (protocol.md 7.1, 7.4)."""

from __future__ import annotations

import logging
from datetime import datetime

from rmq.client import lookup
from rmq.client.allocate import AllocateMessageQueueStrategy
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.instance import ClientInstance
from rmq.client.message import MessageQueue
from rmq.client.settings import ConsumeFromWhere
from rmq.protocol.bodies.kv import GetConsumerListByGroupResponseBody
from rmq.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, RMQError
from rmq.protocol.headers.client import GetConsumerListByGroupRequest
from rmq.protocol.names import is_retry_topic

__all__ = ["consumer_ids", "lock_queues", "our_share", "start_offset", "timestamp_ms", "unlock_queues"]

log = logging.getLogger(__name__)

_HALF_AN_HOUR_MS = 30 * 60 * 1000


async def consumer_ids(instance: ClientInstance, group: str, topic: str) -> list[str]:
    """The client ids of a group, sorted, as a broker of the topic knows them (code 38).

    :raises RMQError: no broker says.
    """
    route = instance.routes.get(topic)
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


async def lock_queues(
    instance: ClientInstance, group: str, queues: list[MessageQueue], *, level: int = logging.WARNING
) -> set[MessageQueue]:
    """Ask the masters of queues for their locks (code 41).

    :param level: of the line in the log about a master that does not answer.
    :returns: those that are ours now.
    """
    held: set[MessageQueue] = set()
    for broker_name, of_broker in lookup.queues_by_broker(queues).items():
        body = LockBatchRequestBody(client_id=instance.client_id, consumer_group=group, mq_set=of_broker)
        try:
            address = await instance.find_master(of_broker[0])
            reply = await instance.call(address, RequestCode.LOCK_BATCH_MQ, None, body.encode(), 1.0)
            held.update(LockBatchResponseBody.decode(reply.body).lock_ok_mq_set)
        except RMQError as error:
            log.log(
                level, "group %s: no lock from the master of %s, orderly queues wait: %s", group, broker_name, error
            )
    return held


async def unlock_queues(
    instance: ClientInstance, group: str, queues: list[MessageQueue], *, wait: bool = False
) -> None:
    """Give locks back (code 42), so that the next owner need not wait for their end (field case B036)."""
    for broker_name, of_broker in lookup.queues_by_broker(queues).items():
        address = instance.master_addr(broker_name)
        if address is None:
            continue
        body = UnlockBatchRequestBody(client_id=instance.client_id, consumer_group=group, mq_set=of_broker)
        command = Command.request(RequestCode.UNLOCK_BATCH_MQ, None, body.encode())
        try:
            if wait:
                await instance.remoting.request(address, command, 1.0)
            else:
                await instance.remoting.oneway(address, command.mark_oneway())
        except RMQError as error:
            log.warning("group %s: the locks at %s were not given back: %s", group, broker_name, error)
