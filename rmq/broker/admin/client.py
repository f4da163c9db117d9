"""Clients: heartbeats, leaving, who is connected, and their queue locks (34, 35, 38, 41, 42, 46, 203, 204, 328)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any

from rmq.broker.admin.slices import Turns
from rmq.broker.delivery.answers import filtering_is_off
from rmq.broker.groups.clients import Channel, Consumers, Producers
from rmq.broker.groups.configs import GroupTable
from rmq.broker.groups.expressions import Expressions
from rmq.broker.groups.locks import RebalanceLocks
from rmq.broker.reserved import LONGEST_CLIENT_ID, name_fault
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.table import TopicTable
from rmq.filter.sql import ExpressionError, compile_sql
from rmq.protocol import fastjson, frame
from rmq.protocol.bodies.body import queue_object
from rmq.protocol.bodies.connection import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
)
from rmq.protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rmq.protocol.bodies.kv import GetConsumerListByGroupResponseBody
from rmq.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rmq.protocol.codes import RequestCode, ResponseCode, language_name
from rmq.protocol.command import Command
from rmq.protocol.errors import BodyError, ResponseError
from rmq.protocol.headers.client import (
    GetConsumerConnectionListRequest,
    GetConsumerListByGroupRequest,
    GetProducerConnectionListRequest,
    NotifyConsumerIdsChangedRequest,
    UnregisterClientRequest,
)
from rmq.protocol.names import is_broker_group, retry_topic
from rmq.protocol.permissions import Need, use_group, use_topic
from rmq.protocol.sysflags import PERM_READ_WRITE, TOPIC_UNIT_SUB
from rmq.remoting.conn import Conn
from rmq.remoting.long_body import in_pieces
from rmq.remoting.router import SHORT, handles

__all__ = ["ClientAdmin", "notify_members"]

log = logging.getLogger(__name__)

#: Groups of one heartbeat taken in before the loop gets its turn.
_GROUPS_PER_TURN = 25
#: Queues of one request about locks, likewise.
_QUEUES_PER_TURN = 250
#: Bytes of a body that is taken in like that.
_LARGE_BODY = 8_192
#: Beyond it such a body must be strict JSON, as every client writes it.
_LENIENT = 65_536
#: Bytes that are parsed at once: a client with 3,000 groups, or locks on 14,000 queues, and 30 ms at most.
_LONGEST = 1 << 20
#: Groups of one client, topics of one group, and of those the ones with an expression: fewer than ``compile_sql``
#: remembers.
_MOST_GROUPS = 5_000
_MOST_TOPICS = 10_000
_MOST_FILTERS = 200
#: Topics of a group taken in before the loop gets its turn.
_TOPICS_PER_TURN = 250


def notify_members(settings: BrokerSettings, group: str, members: list[Conn]) -> None:
    """Tell members that their group changed (40, oneway): each then divides the queues anew.

    However one came or went: ``notifyConsumerIdsChangedEnable`` of the broker is asked here, that of the group by what
    clients say themselves.
    """
    if not settings.notify_consumer_ids_changed_enable:
        return
    notice = Command.request(
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequest(consumer_group=group)
    )
    data = frame.encode(notice.mark_oneway())
    for conn in members:
        conn.send(data)


class ClientAdmin:
    """Handlers of what clients say about themselves (protocol.md 2.6, 2.7)."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        consumers: Consumers,
        producers: Producers,
        locks: RebalanceLocks,
        expressions: Expressions | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._locks = locks
        self._expressions = expressions if expressions is not None else Expressions()

    @handles(RequestCode.HEART_BEAT, body=_LONGEST)
    def heartbeat(self, conn: Conn, request: Command) -> Command | Coroutine[Any, Any, Command]:
        """34: every group of the client, with its subscriptions. Makes the groups' retry topics."""
        if len(request.body) > _LARGE_BODY:
            return self._large_heartbeat(conn, request)
        beat = HeartbeatData.decode(request.body)
        request.demand(*_needs(beat.consumer_data_set))
        client_id = self._client_id(beat)
        texts = [text for consumer in beat.consumer_data_set for text in _expressions(consumer)]
        if not all(map(self._expressions.may_compile, texts)):
            return self._later(conn, request, client_id, beat)
        return self._registered(conn, request, client_id, beat)

    async def _later(self, conn: Conn, request: Command, client_id: str, beat: HeartbeatData) -> Command:
        """A heartbeat whose expressions are more than what is left of this turn."""
        for consumer in beat.consumer_data_set:
            await self._compile(consumer)
        return self._registered(conn, request, client_id, beat)

    def _registered(self, conn: Conn, request: Command, client_id: str, beat: HeartbeatData) -> Command:
        for producer in beat.producer_data_set:
            self._producer(conn, request, client_id, producer.group_name)
        for consumer in beat.consumer_data_set:
            self._consumer(conn, request, client_id, consumer)
        return request.reply(ResponseCode.SUCCESS)

    async def _large_heartbeat(self, conn: Conn, request: Command) -> Command:
        """The same for a client with hundreds of groups, some a turn; all of them are read before any counts."""
        content = fastjson.loads(request.body, limit=_LENIENT)
        if not isinstance(content, dict):
            raise BodyError("HeartbeatData: no object")
        lists = {}
        for name in ("consumerDataSet", "producerDataSet"):
            items = content.pop(name, None) or []
            if not isinstance(items, list):
                raise BodyError(f"HeartbeatData.{name}: no array")
            if len(items) > _MOST_GROUPS:
                raise BodyError(f"HeartbeatData.{name}: {len(items)} groups: at most {_MOST_GROUPS} are taken")
            lists[name] = items
        client_id = self._client_id(HeartbeatData.from_object(content), any(lists.values()))
        turns = Turns(_GROUPS_PER_TURN)
        consumers = []
        for item in lists["consumerDataSet"]:
            consumers.append(await _consumer_data(item))
            await turns.step()
        request.demand(*_needs(consumers))
        for item in lists["producerDataSet"]:
            self._producer(conn, request, client_id, ProducerData.from_object(item).group_name)
            await turns.step()
        for consumer in consumers:
            await self._compile(consumer)
            self._consumer(conn, request, client_id, consumer)
            await turns.step()
        return request.reply(ResponseCode.SUCCESS)

    async def _compile(self, data: ConsumerData) -> None:
        """Compile a group's expressions, one a turn: they are remembered until the group is registered."""
        for text in _expressions(data):
            await self._expressions.turn(text)
            with contextlib.suppress(ExpressionError):  # whoever registers it says so
                compile_sql(text)
            await asyncio.sleep(0)

    @staticmethod
    def _client_id(beat: HeartbeatData, has_groups: bool = False) -> str:
        if not beat.client_id and (has_groups or beat.consumer_data_set or beat.producer_data_set):
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the heartbeat has no clientID")
        if fault := name_fault(beat.client_id, LONGEST_CLIENT_ID):
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the clientID {fault}")
        return beat.client_id

    def _producer(self, conn: Conn, request: Command, client_id: str, group: str) -> None:
        if group:
            self._producers.register(conn, client_id, request.language, request.version, group, request.grant)

    def _consumer(self, conn: Conn, request: Command, client_id: str, data: ConsumerData) -> None:
        group = data.group_name
        if not group:
            return
        if is_broker_group(group):
            log.warning("%s wants to consume as group %s, which is the broker's own: it does not", conn.peer, group)
            return
        config = self._groups.find(group)
        notify = config is None or config.notify_consumer_ids_changed_enable
        if config is not None:
            unit = TOPIC_UNIT_SUB if data.unit_mode else 0
            self._topics.create_for_send_back(retry_topic(group), config.retry_queue_nums, PERM_READ_WRITE, unit)
        self._consumers.register(conn, client_id, request.language, request.version, data, notify=notify)

    @handles(RequestCode.UNREGISTER_CLIENT, header=UnregisterClientRequest)
    def unregister(self, conn: Conn, request: Command, header: UnregisterClientRequest) -> Command:
        """35: a client leaves; always answered with success."""
        if header.producer_group:
            self._producers.unregister(conn, header.producer_group)
        if header.consumer_group:
            config = self._groups.get(header.consumer_group)
            notify = config is None or config.notify_consumer_ids_changed_enable
            self._consumers.unregister(conn, header.consumer_group, notify=notify)
        answer = request.reply(ResponseCode.SUCCESS)
        answer.ext = {}
        return answer

    @handles(RequestCode.CHECK_CLIENT_CONFIG, body=SHORT)
    async def check_config(self, conn: Conn, request: Command) -> Command:
        """46: whether a subscription that is not by tag is served here and compiles; consumers ask at their start."""
        if not request.body:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the request has no body")
        body = CheckClientRequestBody.decode(request.body)
        subscription = body.subscription_data
        request.demand(use_group(body.group), *([] if subscription is None else [use_topic(subscription.topic)]))
        if subscription is None or subscription.is_tag_type:
            return request.reply(ResponseCode.SUCCESS)
        kind = subscription.expression_type
        if not self._settings.enable_property_filter:
            raise filtering_is_off(kind)
        if kind != "SQL92":
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"unknown expression type {kind}: TAG and SQL92 are known"
            )
        await self._expressions.compile(subscription.sub_string)
        try:
            compile_sql(subscription.sub_string)
        except ExpressionError as error:
            raise ResponseError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header=GetConsumerListByGroupRequest)
    def consumer_ids(self, conn: Conn, request: Command, header: GetConsumerListByGroupRequest) -> Command:
        """38: the client ids that divide a group's queues."""
        group = self._consumers.group(header.consumer_group)
        ids = [] if group is None else group.client_ids()
        if ids:
            answer = request.reply(
                ResponseCode.SUCCESS, body=GetConsumerListByGroupResponseBody(consumer_id_list=ids).encode()
            )
        else:
            answer = request.reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        answer.ext = {}
        return answer

    # -- who is connected

    @handles(RequestCode.GET_CONSUMER_CONNECTION_LIST, header=GetConsumerConnectionListRequest)
    async def consumer_connections(
        self, conn: Conn, request: Command, header: GetConsumerConnectionListRequest
    ) -> Command:
        """203: the members of a group and what they subscribe to."""
        group = self._consumers.group(header.consumer_group)
        if group is None:
            raise ResponseError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{header.consumer_group}] not online"
            )
        empty = ConsumerConnection(
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
        ).encode()
        subscribed = list(group.subscriptions.items())
        members = await _connections(list(group.channels.values()))
        turns = Turns()
        table: list[bytes] = []
        for topic, subscription in subscribed:
            table.append(b"%b:%b" % (fastjson.dumps(topic), subscription.data.encode()))
            await turns.step()
        # Neither stands in what the other members say, which are words of lists.
        body = empty.replace(b'{"connectionSet":[]', members[:-1])
        body = body.replace(b'"subscriptionTable":{}', b'"subscriptionTable":{%b}' % b",".join(table))
        return request.reply(ResponseCode.SUCCESS, body=body)

    @handles(RequestCode.GET_PRODUCER_CONNECTION_LIST, header=GetProducerConnectionListRequest)
    async def producer_connections(
        self, conn: Conn, request: Command, header: GetProducerConnectionListRequest
    ) -> Command:
        """204: the members of a producer group."""
        channels = self._producers.group(header.producer_group)
        if channels is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the producer group[{header.producer_group}] not exist")
        return request.reply(ResponseCode.SUCCESS, body=await _connections(channels))

    @handles(RequestCode.GET_ALL_PRODUCER_INFO)
    async def all_producers(self, conn: Conn, request: Command) -> Command:
        """328: every producer group with its members."""
        turns = Turns()
        groups: list[bytes] = []
        for group, channels in self._producers.groups().items():
            members: list[bytes] = []
            for channel in channels:
                info = ProducerInfo(
                    client_id=channel.client_id,
                    remote_ip="/" + channel.conn.peer,
                    language=language_name(channel.language),
                    version=channel.version,
                    last_update_timestamp=channel.last_update,
                )
                members.append(info.encode())
                await turns.step()
            groups.append(b"%b:[%b]" % (fastjson.dumps(group), b",".join(members)))
            await turns.step()
        return request.reply(ResponseCode.SUCCESS, body=b'{"data":{%b}}' % b",".join(groups))

    # -- locks

    @handles(RequestCode.LOCK_BATCH_MQ, body=_LONGEST)
    def lock(self, conn: Conn, request: Command) -> Command | Coroutine[Any, Any, Command]:
        """41: take or renew locks on queues; the answer lists those the client holds."""
        if len(request.body) > _LARGE_BODY:
            return self._many_locks(request, take=True)
        wanted = self._lock_body(request)
        held = self._locks.lock(
            wanted.consumer_group,
            wanted.client_id,
            wanted.mq_set,
            lost_with_connection=bool(wanted.lost_with_connection),
        )
        return request.reply(ResponseCode.SUCCESS, body=LockBatchResponseBody(lock_ok_mq_set=held).encode())

    @handles(RequestCode.UNLOCK_BATCH_MQ, body=_LONGEST)
    def unlock(self, conn: Conn, request: Command) -> Command | Coroutine[Any, Any, Command]:
        """42: give locks back."""
        if len(request.body) > _LARGE_BODY:
            return self._many_locks(request, take=False)
        wanted = self._lock_body(request)
        self._locks.unlock(wanted.consumer_group, wanted.client_id, wanted.mq_set)
        return request.reply(ResponseCode.SUCCESS)

    async def _many_locks(self, request: Command, *, take: bool) -> Command:
        """The same for hundreds of queues, some a turn; all of them are read before any is locked or freed."""
        content = fastjson.loads(request.body, limit=_LENIENT)
        if not isinstance(content, dict):
            raise BodyError("LockBatchRequestBody: no object")
        items = content.pop("mqSet", None) or []
        if not isinstance(items, list):
            raise BodyError("LockBatchRequestBody.mqSet: no array")
        wanted = LockBatchRequestBody.from_object(content)
        if not wanted.consumer_group:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the request names no consumerGroup")
        request.demand(use_group(wanted.consumer_group))
        group, client = wanted.consumer_group, wanted.client_id
        lost = bool(wanted.lost_with_connection)
        parts = []
        for at in range(0, len(items), _QUEUES_PER_TURN):
            parts.append(LockBatchRequestBody.from_object({"mqSet": items[at : at + _QUEUES_PER_TURN]}).mq_set)
            await asyncio.sleep(0)
        held: list[bytes] = []
        for part in parts:
            if not take:
                self._locks.unlock(group, client, part)
            elif got := self._locks.lock(group, client, part, lost_with_connection=lost):
                held.append(fastjson.dumps([queue_object(queue) for queue in got])[1:-1])
            await asyncio.sleep(0)
        answer = b'{"lockOKMQSet":[' + b",".join(held) + b"]}" if take else b""
        return request.reply(ResponseCode.SUCCESS, body=answer)

    @staticmethod
    def _lock_body(request: Command) -> LockBatchRequestBody:
        if not request.body:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the request has no body")
        wanted = LockBatchRequestBody.decode(request.body)
        if not wanted.consumer_group:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the request names no consumerGroup")
        request.demand(use_group(wanted.consumer_group))
        return wanted


async def _consumer_data(item: object) -> ConsumerData:
    """One group of a long heartbeat, its topics some a turn."""
    topics = item.pop("subscriptionDataSet", None) or [] if isinstance(item, dict) else []
    if not isinstance(topics, list):
        raise BodyError("ConsumerData.subscriptionDataSet: no array")
    data = ConsumerData.from_object(item)
    if len(topics) > _MOST_TOPICS:
        raise BodyError(f"{data.group_name}: {len(topics)} topics: at most {_MOST_TOPICS} are taken of a group")
    turns = Turns(_TOPICS_PER_TURN)
    for topic in topics:
        data.subscription_data_set.append(SubscriptionData.from_object(topic))
        await turns.step()
    if sum(one.expression_type == "SQL92" for one in data.subscription_data_set) > _MOST_FILTERS:
        raise BodyError(f"{data.group_name}: at most {_MOST_FILTERS} expressions are taken of a group")
    return data


def _needs(consumers: Iterable[ConsumerData]) -> Iterator[Need]:
    """What a heartbeat needs of who sends it."""
    for consumer in consumers:
        if not consumer.group_name:
            continue
        yield use_group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield use_topic(subscription.topic)


def _expressions(data: ConsumerData) -> list[str]:
    return [one.sub_string for one in data.subscription_data_set if one.expression_type == "SQL92"]


async def _connections(channels: Sequence[Channel]) -> bytes:
    """The members of a group as the body of 204, some a turn."""

    def encode(some: Sequence[Channel]) -> bytes:
        return ProducerConnection(connection_set=[_connection(channel) for channel in some]).encode()

    return await in_pieces(channels, encode)


def _connection(channel: Channel) -> Connection:
    return Connection(
        client_addr=channel.conn.peer,
        client_id=channel.client_id,
        language=language_name(channel.language),
        version=channel.version,
    )
