"""Asks brokers and members what they know of a message and of the groups of its topic."""

from __future__ import annotations

import asyncio

from rmq.cli.explain.story import GroupFacts, queue_of
from rmq.cli.mqadmin.messages import find_message, message_now, when_indexed
from rmq.cli.mqadmin.output import Output
from rmq.cli.mqadmin.progress import NOT_ONLINE, members_of
from rmq.cli.mqadmin.session import AdminClient
from rmq.client.message import MessageExt
from rmq.protocol.bodies.running import ConsumerRunningInfo
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ClientError, NotFound, ResponseError
from rmq.protocol.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    dlq_topic,
    is_broker_topic,
    retry_topic,
)
from rmq.protocol.queue import MessageQueue

__all__ = ["copies", "due_of", "facts_of", "found", "groups_of", "levels_of", "real_topic"]

#: Copies of one message that are looked at.
_COPIES = 64
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: Where brokers keep what nobody can consume yet.
_KEEPING = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)
_GONE = (ResponseCode.TOPIC_NOT_EXIST, *NOT_ONLINE)


async def found(admin: AdminClient, msg_id: str, topic: str | None) -> MessageExt:
    """The message with an id of either kind; of a copy in a group's retry or dead-letter topic the first one.

    One that waits for its time or for the end of its transaction is found where the broker keeps it.

    :raises NotFound: there is none.
    """
    return await when_indexed(admin, msg_id, lambda: _found(admin, msg_id, topic))


async def _found(admin: AdminClient, msg_id: str, topic: str | None) -> MessageExt:
    try:
        message = await message_now(admin, msg_id, topic)
    except NotFound as error:
        for name in _KEEPING:
            kept = await copies(admin, name, msg_id)
            if topic is not None:
                kept = [one for one in kept if real_topic(one) == topic]
            if kept:
                return kept[-1]
        raise error from None
    real = real_topic(message)
    if real.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        first = message.properties.get("ORIGIN_MESSAGE_ID")
        try:
            return await find_message(admin, first, message.properties.get("RETRY_TOPIC")) if first else message
        except (NotFound, ClientError):
            return message  # it was deleted meanwhile
    if message.topic in _KEEPING:
        delivered = await copies(admin, real, message.msg_id)
        return delivered[-1] if delivered else message
    return message


def real_topic(message: MessageExt) -> str:
    """Where it is to be consumed, wherever its broker keeps it now."""
    return message.properties.get("REAL_TOPIC", message.topic)


async def copies(admin: AdminClient, topic: str, unique_id: str) -> list[MessageExt]:
    """Messages of a topic with a unique id, oldest first; none where there is no such topic."""
    try:
        result = await admin.query_message(topic, unique_id, _COPIES)
    except NotFound:
        return []
    except ResponseError as error:
        if error.code not in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND):
            raise
        return []
    messages = [one for one in result.messages if one.msg_id == unique_id]
    return sorted(messages, key=lambda one: one.store_timestamp)


async def levels_of(admin: AdminClient) -> list[int]:
    """Milliseconds of each delay level, as the first broker has them that tells."""
    info = await admin.cluster_info()
    masters = [one.broker_addrs[0] for one in info.broker_addr_table.values() if 0 in one.broker_addrs]
    for settings in (await admin.broker_settings(masters)).found.values():
        words = settings.get("messageDelayLevel", "").split()
        if words and all(word[:-1].isdigit() and word[-1] in _UNITS for word in words):
            return [int(word[:-1]) * _UNITS[word[-1]] for word in words]
    return []


def due_of(message: MessageExt, levels: list[int]) -> int | None:
    """When a message that waits is delivered, ms; None where nothing says so."""
    properties = message.properties
    for name in ("TIMER_OUT_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME"):
        if (text := properties.get(name, "")).isdigit():
            return int(text)
    level = properties.get("DELAY", "")
    if level.isdigit() and int(level) > 0 and levels:
        return message.store_timestamp + levels[min(int(level), len(levels)) - 1]
    return None


async def groups_of(admin: AdminClient, out: Output, topic: str) -> list[str]:
    """Groups that have offsets on a topic or members that want it.

    :param out: gets brokers that do not say. :raises RMQError: none says it.
    """
    if is_broker_topic(topic):
        return []
    try:
        answers = await admin.topic_groups(topic)
    except ResponseError as error:
        if error.code not in _GONE:
            raise
        return []
    out.lacks(answers)
    return sorted({group for groups in answers.found.values() for group in groups})


async def facts_of(admin: AdminClient, out: Output, name: str, message: MessageExt, levels: list[int]) -> GroupFacts:
    """What is known of a group and a message.

    :param out: gets who does not answer. :raises RMQError: nobody says anything of the group.
    """
    group = GroupFacts(name)
    waits = {queue_of(message).topic, retry_topic(name)}
    scheduled, retried, dead = await asyncio.gather(
        copies(admin, SCHEDULE_TOPIC, message.msg_id),
        copies(admin, retry_topic(name), message.msg_id),
        copies(admin, dlq_topic(name), message.msg_id),
    )
    group.retried = retried
    group.waiting = [
        (one, due_of(one, levels) or one.store_timestamp) for one in scheduled if real_topic(one) == retry_topic(name)
    ]
    group.dead = dead[-1] if dead else None
    try:
        connection = await admin.consumer_connections(name)
    except ResponseError as error:
        if error.code not in _GONE:
            raise
    else:
        out.lacks(connection)
        group.broadcasting = connection.message_model == "BROADCASTING"
        group.subscription = connection.subscription_table.get(message.topic)
        group.online = await members_of(admin, name, connection)
    offsets: dict[MessageQueue, int] = {}
    for topic in sorted(waits):
        try:
            offsets |= await admin.consumer_offsets(name, topic)
        except NotFound:
            continue  # it has no retry topic yet
        except ResponseError as error:
            if error.code not in _GONE:
                raise
    group.offsets = offsets
    await _settings(admin, out, group, message.broker_name)
    return group


async def _settings(admin: AdminClient, out: Output, group: GroupFacts, broker: str) -> None:
    data = (await admin.cluster_info()).broker_addr_table.get(broker)
    if data is None or not data.broker_addrs:
        out.failed(broker, "it is not registered now")
        return
    address = data.broker_addrs[min(data.broker_addrs)]
    tables = await admin.subscription_groups_of([address])
    out.lacks(tables)
    for table in tables.found.values():
        config = table.subscription_group_table.get(group.name)
        if config is not None:
            group.closed = not config.consume_enable
            group.most = config.retry_max_times
    # Members say it with each message that they give back, and brokers go by that.
    for info in group.online.values():
        if isinstance(info, ConsumerRunningInfo):
            own = info.properties.get("maxReconsumeTimes", "")
            group.most = int(own) if own.isdigit() else -1
