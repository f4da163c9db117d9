"""Look-ups that every client offers: queues, offsets, stored messages (client.md 2)."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable
from datetime import datetime
from typing import NoReturn

from rmq.client.checks import check_queue, check_text, check_word, milliseconds, typed
from rmq.client.cluster.route import publish_queues
from rmq.client.cluster.routes import no_such_topic
from rmq.client.decode import decode_messages
from rmq.client.instance import ClientInstance
from rmq.client.life import not_copied, started_elsewhere
from rmq.client.message import MessageExt, MessageQueue
from rmq.client.nameservers import parse_addresses
from rmq.client.namespace import Namespace
from rmq.client.results import QueryResult
from rmq.client.shown import shown
from rmq.protocol import addresses, ids
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ClientError, ResponseError, RMQError
from rmq.protocol.headers.message import QueryMessageRequest, QueryMessageResponse, ViewMessageRequest
from rmq.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
)

__all__ = [
    "FOREVER",
    "Lookups",
    "earliest_msg_store_time",
    "fetch_publish_message_queues",
    "fetch_subscribe_message_queues",
    "max_offset",
    "min_offset",
    "query_message",
    "search_offset",
    "view_message",
    "view_message_by_either",
]

FOREVER = (1 << 63) - 1
#: A look for a key may take so many times as long as another call.
_QUERY = 2
#: What a broker says that has no message with a key, and nothing besides.
_NONE = "can not find message, maybe time range not correct"


async def fetch_publish_message_queues(instance: ClientInstance, topic: str) -> list[MessageQueue]:
    """The queues a producer sends to. :raises ClientError: the topic has no route."""
    check_text(topic)
    route = await instance.name_servers.route(topic, instance.settings.mq_client_api_timeout)
    if route is None:
        # Just created by a send: the name servers learn of it in a moment.
        if (info := instance.routes.publish.get(topic)) is not None:
            return list(info.queues)
        raise no_such_topic(topic)
    return publish_queues(topic, route)


async def fetch_subscribe_message_queues(instance: ClientInstance, topic: str) -> list[MessageQueue]:
    """The queues consumers read. :raises ClientError: the topic has no route."""
    check_text(topic)
    await instance.refresh_route(topic, instance.settings.mq_client_api_timeout)
    queues = instance.routes.subscribe_queues(topic)
    if queues is None:
        raise no_such_topic(topic)
    return queues


async def _reader(instance: ClientInstance, queue: MessageQueue) -> str:
    """The address of a broker that has a queue: one that has not answers as for a queue without messages.

    :raises ClientError: the topic does not exist, or has no such queue. :raises ConnectFailed: nobody serves it now.
    """
    for again in (False, True):
        route = instance.routes.own.get(queue.topic)
        if route is not None:
            of = [data for data in route.queue_datas if data.broker_name == queue.broker_name]
            most = max((max(data.read_queue_nums, data.write_queue_nums) for data in of), default=0)
            if 0 <= queue.queue_id < most:
                break
            if again:
                has = f"has {most} queues there" if of else "is not there"
                raise ClientError(f"{queue} does not exist: the topic {has}").about(queue=queue)
        if not await instance.refresh_route(queue.topic):
            raise no_such_topic(queue.topic).about(queue=queue)
        if queue.topic not in instance.routes.own:
            break  # just created by a send: the name servers learn of it in a moment
    address, _ = await instance.find_reader(queue)
    return address


async def max_offset(instance: ClientInstance, queue: MessageQueue, timeout: float | None = None) -> int:
    """The offset the next message of a queue will get."""
    check_queue(queue)
    header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
    address = await _reader(instance, queue)
    reply = await instance.call(address, RequestCode.GET_MAX_OFFSET, header, timeout=timeout)
    return reply.header(GetMaxOffsetResponse).offset


async def min_offset(instance: ClientInstance, queue: MessageQueue, timeout: float | None = None) -> int:
    """The offset of the oldest message of a queue."""
    check_queue(queue)
    header = GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
    address = await _reader(instance, queue)
    reply = await instance.call(address, RequestCode.GET_MIN_OFFSET, header, timeout=timeout)
    return reply.header(GetMinOffsetResponse).offset


async def search_offset(
    instance: ClientInstance, queue: MessageQueue, timestamp: int | datetime, timeout: float | None = None
) -> int:
    """The offset of the first message stored at a time (a datetime, or milliseconds since the epoch) or later."""
    check_queue(queue)
    at = milliseconds(timestamp, "timestamp")
    header = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp=at)
    address = await _reader(instance, queue)
    reply = await instance.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, timeout=timeout)
    return reply.header(SearchOffsetResponse).offset


async def earliest_msg_store_time(instance: ClientInstance, queue: MessageQueue, timeout: float | None = None) -> int:
    """When the oldest message of a queue was stored (milliseconds since the epoch; -1 = the queue is empty)."""
    check_queue(queue)
    header = GetEarliestMsgStoretimeRequest(topic=queue.topic, queue_id=queue.queue_id)
    address = await _reader(instance, queue)
    reply = await instance.call(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header, timeout=timeout)
    return reply.header(GetEarliestMsgStoretimeResponse).timestamp


async def view_message(instance: ClientInstance, offset_msg_id: str, timeout: float | None = None) -> MessageExt:
    """The message with an offset id (``SendResult.offset_msg_id``).

    Only brokers of the cluster are asked, whatever address the id holds.

    :raises ClientError: the text is no offset id. :raises ResponseError: there is no such message.
    """
    try:
        if not isinstance(offset_msg_id, str):
            raise TypeError
        host, port, offset = ids.decode_offset_msg_id(offset_msg_id)
    except (RMQError, ValueError, TypeError) as error:
        raise ClientError(
            f"{shown(offset_msg_id)} is no offset message id (32 or 56 hexadecimal digits with the broker's address)"
        ) from error
    limit = instance.settings.mq_client_api_timeout if timeout is None else timeout
    info = await instance.name_servers.cluster_info(limit)
    brokers = {addr: name for name, broker in info.broker_addr_table.items() for addr in broker.broker_addrs.values()}
    # The id names an address, and anybody may write one: only the cluster's own brokers are asked. One that is known by
    # another address, or keeps the store by now, is believed when its message bears the very id.
    first = addresses.join(host, port)
    header = ViewMessageRequest(offset=offset)
    refused: RMQError | None = None
    for address in (first,) if first in brokers else brokers:
        try:
            reply = await instance.call(address, RequestCode.VIEW_MESSAGE_BY_ID, header, timeout=limit)
        except RMQError as failed:
            refused = failed
            continue
        for message in decode_messages(reply.body, brokers[address]):
            if address == first or message.offset_msg_id == offset_msg_id.upper():
                return message
    if first in brokers and refused is not None:
        raise refused
    raise ResponseError(
        ResponseCode.QUERY_NOT_FOUND,
        f"{offset_msg_id} is the id of no message here: {first}, which it names, is no broker of this cluster",
    )


async def view_message_by_either(instance: ClientInstance, msg_id: str, topic: str | None) -> MessageExt:
    """By offset id; with a topic by unique id as well.

    :raises ResponseError: code 22: there is no such message.
    :raises ClientError: the id is no offset id, and no topic is given.
    """
    if topic is None:
        try:
            return await view_message(instance, msg_id)
        except ResponseError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise  # anything else says nothing of what id it is
            raise ResponseError(
                error.code,
                f"{error.remark}; for the unique id that a producer gave, say the topic: "
                f"view_message({shown(msg_id)}, topic=...)",
                error.address,
            ) from None
    try:
        return await view_message(instance, msg_id)
    except RMQError:
        found = await query_message(instance, topic, msg_id, unique=True)
        if not found.messages:
            raise ResponseError(ResponseCode.QUERY_NOT_FOUND, found.remark) from None
        return found.messages[-1]


async def query_message(
    instance: ClientInstance,
    topic: str,
    key: str,
    max_num: int = 32,
    begin: int | datetime = 0,
    end: int | datetime = FOREVER,
    *,
    unique: bool = False,
    timeout: float | None = None,
    without: Collection[str] = (),
    through: Callable[[str, Command, float], Awaitable[Command]] | None = None,
) -> QueryResult:
    """Messages of a topic with a key, from every broker of the topic.

    What is missing is said in the result's remark: brokers that do not answer, and a broker that may have more. Where
    there is no such message the result is empty, and the remark says so.

    :param max_num: most messages a broker is asked for.
    :param begin: from this store time on, a datetime or milliseconds since the epoch. :param end: up to this one.
    :param unique: the key is a ``msg_id``.
    :param without: addresses of brokers that are not asked.
    :param through: how an address is asked within so many seconds; None: as any.
    :raises TransportError: those that answer have none, and one does not answer.
    """
    check_text(topic)
    check_word(key, "the key to look for")
    if not key:
        raise ClientError("the key to look for is empty: give a text")
    limit = _QUERY * instance.settings.mq_client_api_timeout if timeout is None else timeout
    route = await instance.name_servers.route(topic, limit)
    if route is None:
        raise no_such_topic(topic)
    header = QueryMessageRequest(
        topic=topic,
        key=key,
        max_num=max_num,
        begin_timestamp=milliseconds(begin, "begin"),
        end_timestamp=milliseconds(end, "end"),
        unique_key_query=unique or None,  # as good as false, and it is what Java's access control trips over
    )

    async def ask(broker_name: str, address: str) -> tuple[int, list[MessageExt], str]:
        command = Command.request(RequestCode.QUERY_MESSAGE, header)
        reply = await (through or instance.remoting.request)(address, command, limit)
        if reply.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            raise ResponseError(reply.code, reply.remark, address)
        updated = reply.header(QueryMessageResponse).index_last_update_timestamp if reply.ext else 0
        return (
            updated,
            decode_messages(reply.body, broker_name),
            f"{broker_name}: {reply.remark}" if reply.remark and reply.remark != _NONE else "",
        )

    brokers = [
        (broker.broker_name, broker.broker_addrs[min(broker.broker_addrs)])
        for broker in route.broker_datas
        if broker.broker_addrs and broker.broker_addrs[min(broker.broker_addrs)] not in without
    ]
    outcomes = await asyncio.gather(*(ask(*broker) for broker in brokers), return_exceptions=True)
    found: list[MessageExt] = []
    updated = 0
    remarks: list[str] = []
    missing: dict[str, str] = {}
    error: BaseException | None = None
    for (name, _), outcome in zip(brokers, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            error = outcome
            missing[name] = str(outcome)
            remarks.append(f"{name}: what it has is missing: {outcome}")
            continue
        updated = max(updated, outcome[0])
        if outcome[2]:
            remarks.append(outcome[2])
        elif len(outcome[1]) >= max_num and not unique:
            remarks.append(f"{name}: {max_num} messages were asked for, and there may be more")
        # A Java broker compares hashes: the key and the topic are compared here.
        found += [message for message in outcome[1] if message.topic == topic and _has(message, key, unique)]
    if not found:
        if error is not None:
            raise error
        said = f" ({'; '.join(remarks)})" if remarks else ""
        return QueryResult(updated, [], f"no message of {topic} with the key {key}{said}")
    found.sort(key=lambda message: message.store_timestamp)
    return QueryResult(updated, found, "; ".join(remarks), missing)


def _has(message: MessageExt, key: str, unique: bool) -> bool:
    if unique:
        return message.msg_id == key
    return key in (message.keys or "").split(" ") or message.properties.get("UNIQ_KEY") == key


@typed(but=("msg_id", "key"))
class Lookups:
    """Look-ups of a started client; ``instance`` is its own."""

    #: How its application's names become the brokers'.
    _names = Namespace()
    #: Other clients have the same loop: none of them waits for a function of the application's.
    _shares_loop = False

    @property
    def _client(self) -> ClientInstance:
        raise ClientError("the client is not started")

    def _here(self, instance: ClientInstance) -> ClientInstance:
        """:raises ClientError: the client was started on another loop than the one that runs here: waiting for what
        happens there would never end."""
        running = asyncio._get_running_loop()
        if instance.loop is not running and None not in (running, instance.loop) and not self._shares_loop:
            raise started_elsewhere(self)
        return instance

    def __repr__(self) -> str:
        group = getattr(self, "group", None)
        instance: ClientInstance | None = getattr(self, "_instance", None)
        started = instance is not None and instance.pid == instance.world.identity.pid  # a forked child has a copy
        return f"<{type(self).__name__}{f' {group}' if group else ''}, {'started' if started else 'not started'}>"

    def __reduce__(self) -> NoReturn:
        raise not_copied(self)

    def __del__(self) -> None:
        instance: ClientInstance | None = getattr(self, "_instance", None)
        if instance is not None and instance.pid == instance.world.identity.pid:
            warnings.warn(
                f"{self!r} was not shut down: use it with 'async with', or await shutdown()",
                ResourceWarning,
                1,
                self,
            )

    @property
    def client_id(self) -> str:
        """Who this client is for brokers."""
        return self._client.client_id

    def update_name_server_address(self, namesrv: str) -> None:
        """Ask other name servers from now on: ``host:port`` list separated by ``;``."""
        addresses = parse_addresses(namesrv)
        if not addresses:
            raise ClientError("no name server is left: give one host:port at least")
        self._client.name_servers.update(addresses)

    async def fetch_publish_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues a producer sends to. :raises ClientError: the topic does not exist."""
        return self._names.queues(await fetch_publish_message_queues(self._client, self._names.wrap(topic)))

    async def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues consumers read. :raises ClientError: the topic does not exist."""
        return self._names.queues(await fetch_subscribe_message_queues(self._client, self._names.wrap(topic)))

    async def search_offset(self, queue: MessageQueue, timestamp: int | datetime) -> int:
        """The offset of the first message stored at a time (a datetime, or milliseconds since the epoch) or later."""
        return await search_offset(self._client, self._names.wrap_queue(queue), timestamp)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message of a queue will get. :raises ClientError: there is no such queue."""
        return await max_offset(self._client, self._names.wrap_queue(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue. :raises ClientError: there is no such queue."""
        return await min_offset(self._client, self._names.wrap_queue(queue))

    async def earliest_msg_store_time(self, queue: MessageQueue) -> int:
        """When the oldest message of a queue was stored (milliseconds since the epoch; -1 = none)."""
        return await earliest_msg_store_time(self._client, self._names.wrap_queue(queue))

    async def view_message(self, msg_id: str, topic: str | None = None) -> MessageExt:
        """A stored message by its offset id, or with ``topic`` by its unique id, too.

        :raises ResponseError: there is none.
        """
        wire_topic = None if topic is None else self._names.wrap(topic)
        return self._names.message(await view_message_by_either(self._client, msg_id, wire_topic))

    async def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int | datetime = 0, end: int | datetime = FOREVER
    ) -> QueryResult:
        """Messages of a topic with a key, none where there is none; the result's remark says what is to be known.

        :param max_num: most messages a broker is asked for.
        :param begin: from this store time on, a datetime or milliseconds since the epoch. :param end: up to this one.
        """
        found = await query_message(self._client, self._names.wrap(topic), key, max_num, begin, end)
        for message in found.messages:
            self._names.message(message)
        return found


def queues_by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Queues grouped by broker name, in order."""
    grouped: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        grouped.setdefault(queue.broker_name, []).append(queue)
    return grouped
