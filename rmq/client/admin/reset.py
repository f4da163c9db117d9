"""Moving the offsets of a group: to a time, to the end, or one queue to an offset (field cases B015, B018, B020)."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from rmq.client.admin.answers import Answers, side_by_side
from rmq.client.checks import milliseconds
from rmq.client.instance import ClientInstance
from rmq.client.lookup import fetch_subscribe_message_queues, max_offset, min_offset, search_offset
from rmq.protocol.bodies.connection import ConsumerConnection
from rmq.protocol.bodies.reset import ResetOffsetBody
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.dicts import dict_of
from rmq.protocol.errors import ClientError, NotFound
from rmq.protocol.headers.client import GetConsumerConnectionListRequest
from rmq.protocol.headers.offset import (
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    ResetOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rmq.protocol.queue import MessageQueue

__all__ = ["TO_END", "OffsetReset", "clone_offsets", "reset_queue", "reset_to_time", "stored_offsets"]

#: In place of a time: the end of each queue.
TO_END = -1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """What a reset did with one queue.

    :ivar old_offset: None: the group had none.
    :ivar clients: how many members were told; 0: nobody was online, and the stored offset was changed.
    """

    queue: MessageQueue
    old_offset: int | None
    new_offset: int
    clients: int

    def as_dict(self) -> dict[str, Any]:
        """Its attributes by name; the queue's likewise."""
        return dict_of(self)


async def committed(instance: ClientInstance, group: str, queue: MessageQueue) -> int | None:
    """The stored offset of a group; None when it has none."""
    header = QueryConsumerOffsetRequest(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
    )
    reply = await instance.call(
        await instance.find_master(queue),
        RequestCode.QUERY_CONSUMER_OFFSET,
        header,
        accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )
    return None if reply.code else reply.header(QueryConsumerOffsetResponse).offset


async def _members(instance: ClientInstance, group: str, address: str) -> int:
    reply = await instance.call(
        address,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        GetConsumerConnectionListRequest(consumer_group=group),
        accept=(ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE),
    )
    return 0 if reply.code else len(ConsumerConnection.decode(reply.body).connection_set)


async def reset_to_time(
    instance: ClientInstance, group: str, topic: str, timestamp: int | datetime, *, force: bool
) -> list[OffsetReset]:
    """Move every queue of a topic; see :meth:`rmq.client.admin.AdminClient.reset_offset_by_timestamp`."""
    at = milliseconds(timestamp, "timestamp")
    by_address: dict[str, list[MessageQueue]] = {}
    for queue in await fetch_subscribe_message_queues(instance, topic):
        by_address.setdefault(await instance.find_master(queue), []).append(queue)

    async def look(address: str) -> tuple[dict[MessageQueue, int | None], int]:
        return await _stored(instance, group, by_address[address]), await _members(instance, group, address)

    # Every broker is asked before any is changed: one that does not answer leaves the group as it is.
    known = (await side_by_side(by_address, look)).whole()
    header = ResetOffsetRequest(topic=topic, group=group, timestamp=at, is_force=force)

    async def reset(address: str) -> list[OffsetReset]:
        old, clients = known[address]
        if all(offset is None for offset in old.values()):
            return []
        new: dict[MessageQueue, int] = {}
        if clients:
            # A queue without an offset makes the broker refuse all of them.
            for queue, offset in old.items():
                if offset is None:
                    await _commit(instance, address, group, queue, await min_offset(instance, queue))
            reply = await instance.call(
                address,
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                header,
                accept=(ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE),
            )
            if reply.code:  # the last member left meanwhile
                clients = 0
            else:
                new = ResetOffsetBody.decode(reply.body).offset_table
        if not clients:
            for queue, offset in old.items():
                target = await _target(instance, queue, at)
                if offset is not None and not force:
                    target = min(target, offset)
                await _commit(instance, address, group, queue, target)
                new[queue] = target
        return [OffsetReset(queue, old.get(queue), offset, clients) for queue, offset in sorted(new.items())]

    done = [one for some in _all_done(await side_by_side(known, reset)) for one in some]
    if not done:
        raise NotFound(f"the group {group} has no offset on {topic}: there is nothing to reset")
    return done


async def _stored(
    instance: ClientInstance, group: str, queues: Iterable[MessageQueue]
) -> dict[MessageQueue, int | None]:
    """The stored offsets of a group, asked side by side."""
    named = list(queues)
    return dict(zip(named, await gather(*(committed(instance, group, queue) for queue in named)), strict=True))


def _all_done(answers: Answers[T]) -> list[T]:
    """:raises ClientError: a broker was changed, and another was not: asked again, it gets there as well."""
    for address, error in answers.failed.items():
        if answers.found:
            done = ", ".join(answers.found)
            raise ClientError(f"done at {done}; not at {address}: {error}; the same once more does the rest") from error
        raise error
    return list(answers.found.values())


async def _target(instance: ClientInstance, queue: MessageQueue, timestamp: int) -> int:
    if timestamp == TO_END:
        return await max_offset(instance, queue)
    return await search_offset(instance, queue, timestamp)


async def _commit(instance: ClientInstance, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    header = UpdateConsumerOffsetRequest(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    await instance.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def _require(instance: ClientInstance, queue: MessageQueue) -> None:
    """:raises NotFound: the topic has no such queue; its broker would keep an offset of any."""
    route = await instance.name_servers.route(queue.topic, instance.settings.mq_client_api_timeout)
    counts = {data.broker_name: data.read_queue_nums for data in route.queue_datas} if route is not None else {}
    if not 0 <= queue.queue_id < counts.get(queue.broker_name, 0):
        has = ", ".join(f"{count} on {name}" for name, count in sorted(counts.items())) or "none"
        raise NotFound(f"the topic {queue.topic} has no queue {queue.queue_id} on {queue.broker_name} (queues: {has})")


async def reset_queue(instance: ClientInstance, group: str, queue: MessageQueue, offset: int) -> OffsetReset:
    """Move one queue; see :meth:`rmq.client.admin.AdminClient.reset_offset`."""
    await _require(instance, queue)
    low, high = await min_offset(instance, queue), await max_offset(instance, queue)
    if not low <= offset <= high:
        raise ClientError(
            f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} has offsets {low} to {high}: "
            f"{group} cannot be reset to {offset}"
        )
    address = await instance.find_master(queue)
    old = await committed(instance, group, queue)
    clients = await _members(instance, group, address)
    header = ResetOffsetRequest(topic=queue.topic, group=group, queue_id=queue.queue_id, offset=offset)
    await instance.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    return OffsetReset(queue, old, offset, clients)


async def stored_offsets(instance: ClientInstance, group: str, topic: str) -> dict[MessageQueue, int]:
    """See :meth:`rmq.client.admin.AdminClient.consumer_offsets`."""
    stored = await _stored(instance, group, sorted(await fetch_subscribe_message_queues(instance, topic)))
    return {queue: offset for queue, offset in stored.items() if offset is not None}


async def clone_offsets(instance: ClientInstance, source: str, destination: str, topic: str) -> dict[MessageQueue, int]:
    """Copy offsets; see :meth:`rmq.client.admin.AdminClient.clone_group_offset`.

    They are read and written here, queue by queue: a broker that copies them itself (314) has those of one broker alone
    and says nothing of a group that has none.
    """
    found = await stored_offsets(instance, source, topic)
    if not found:
        raise NotFound(f"the group {source} has no offset on {topic}: there is nothing to copy")
    by_address: dict[str, list[MessageQueue]] = {}
    for queue in found:
        by_address.setdefault(await instance.find_master(queue), []).append(queue)

    async def copy(address: str) -> None:
        for queue in by_address[address]:
            await _commit(instance, address, destination, queue, found[queue])

    _all_done(await side_by_side(by_address, copy))
    return found
