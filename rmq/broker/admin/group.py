"""Subscription groups and their consumption (requests 200, 201, 207, 208, 225, 303, 317, 343, 345, 352, 353)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from rmq.broker.admin.lookup import Lookup
from rmq.broker.admin.slices import Turns, read_list
from rmq.broker.admin.topic import queue_key
from rmq.broker.groups.clients import Consumers
from rmq.broker.groups.faults import group_config_fault
from rmq.broker.parts import Ground, Tables
from rmq.broker.reserved import check_group, check_private
from rmq.broker.stats import BrokerStats
from rmq.protocol import fastjson
from rmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupList
from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.bodies.pop import GroupForbidden
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FIRST_OF_5, Command
from rmq.protocol.errors import ResponseError
from rmq.protocol.headers.group import (
    DeleteSubscriptionGroupRequest,
    GetConsumeStatsInBrokerRequest,
    GetConsumeStatsRequest,
    GetSubscriptionGroupConfigRequest,
    QueryConsumeTimeSpanRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicsByConsumerRequest,
    UpdateGroupForbiddenRequest,
)
from rmq.protocol.names import retry_topic
from rmq.protocol.queue import MAX_QUEUES
from rmq.remoting.conn import Conn
from rmq.remoting.long_body import LongBody, check_length, in_pieces
from rmq.remoting.router import LARGE, SHORT, handles

__all__ = ["GroupAdmin"]

log = logging.getLogger(__name__)

#: Queues that are looked at before the loop gets its turn.
_QUEUES_AT_ONCE = 250
#: Bytes of a list of groups, and groups of one list.
_LONGEST_LIST = 4 << 20
_MOST_GROUPS = 20_000


class _Delete(Protocol):
    async def __call__(self, group: str, *, offsets: bool) -> None: ...


class _Progress(NamedTuple):
    """What 208 and 317 tell of some queues of a topic: the queues as JSON members, and how much is left."""

    topic: str
    queues: list[str]
    left: int


class GroupAdmin:
    """Handlers of the group requests.

    :param delete: forgets a group, with its offsets or without, and returns when no restart brings it back.
    """

    def __init__(
        self,
        ground: Ground,
        tables: Tables,
        consumers: Consumers,
        stats: BrokerStats,
        lookup: Lookup,
        delete: _Delete,
    ) -> None:
        self._clock = ground.world.clock
        self._settings = ground.settings
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = consumers
        self._lookup = lookup
        self._stats = stats
        self._broker_addr = ground.broker_addr
        self._delete = delete

    # -- configs

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=SHORT)
    async def update_and_create(self, conn: Conn, request: Command) -> Command:
        """200: make or change a group. Its retry topic gets the queues that the group now asks for."""
        config = SubscriptionGroupConfig.decode(request.body)
        self._check(config)
        self._groups.check_room(self._groups.get(config.group_name) is None)
        log.info("%s updates subscription group %s", conn.peer, config.group_name)
        self._put(config)
        await self._saved()
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=_LONGEST_LIST)
    async def update_and_create_list(self, conn: Conn, request: Command) -> Command:
        """225 (5.x): the same for many groups; all names are checked before any is made."""
        configs = await read_list(
            request.body,
            "groupConfigList",
            _MOST_GROUPS,
            lambda body: SubscriptionGroupList.decode(body).group_config_list,
            SubscriptionGroupConfig.from_object,
        )
        if not configs:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the body has no groupConfigList")
        for config in configs:
            self._check(config)
        wanted = {config.group_name for config in configs}
        self._groups.check_room(sum(self._groups.get(name) is None for name in wanted))
        log.info("%s updates %d subscription groups", conn.peer, len(configs))
        turns = Turns()
        for config in configs:
            self._put(config)
            await turns.step()
        await self._saved()
        return request.reply(ResponseCode.SUCCESS)

    async def _saved(self) -> None:
        """What is answered now outlives a kill."""
        await self._groups.saved()
        await self._topics.saved()

    @staticmethod
    def _check(config: SubscriptionGroupConfig) -> None:
        if (fault := group_config_fault(config)) is not None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, fault)
        check_group(config.group_name)
        if config.retry_queue_nums > MAX_QUEUES:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"retryQueueNums={config.retry_queue_nums}: group {config.group_name} may have {MAX_QUEUES} at most",
            )

    def _put(self, config: SubscriptionGroupConfig) -> None:
        self._groups.put(config)
        # More retry queues than the retry topic has would never be consumed (field case B055).
        retry = self._topics.get(retry_topic(config.group_name))
        if retry is not None and retry.write_queue_nums < config.retry_queue_nums:
            queues = config.retry_queue_nums
            self._topics.put(dataclasses.replace(retry, read_queue_nums=queues, write_queue_nums=queues))

    @handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def all_configs(self, conn: Conn, request: Command) -> Command:
        """201: every group with the data version."""
        return request.reply(ResponseCode.SUCCESS, body=self._groups.encode())

    @handles(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header=GetSubscriptionGroupConfigRequest)
    def config(self, conn: Conn, request: Command, header: GetSubscriptionGroupConfigRequest) -> Command:
        """352 (5.x): one group's config."""
        config = self._groups.told_of(header.group)
        if config is None:
            raise ResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.reply(ResponseCode.SUCCESS, body=config.encode())

    @handles(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header=UpdateGroupForbiddenRequest)
    async def forbidden(self, conn: Conn, request: Command, header: UpdateGroupForbiddenRequest) -> Command:
        """353 (5.x): whether a group may read from a topic; with ``readable``, from now on."""
        group, topic = header.group, header.topic
        if header.readable is not None:
            check_group(group)
            check_private(topic)
            log.info("%s sets readable=%s for group %s on topic %s", conn.peer, header.readable, group, topic)
            self._groups.let_read(group, topic, header.readable)
            await self._groups.saved()
        answer = GroupForbidden(group=group, topic=topic, readable=self._groups.may_read(group, topic))
        return request.reply(ResponseCode.SUCCESS, body=answer.encode())

    @handles(RequestCode.DELETE_SUBSCRIPTIONGROUP, header=DeleteSubscriptionGroupRequest)
    async def delete(self, conn: Conn, request: Command, header: DeleteSubscriptionGroupRequest) -> Command:
        """207: forget a group, and its offsets when asked to; an unknown one is no error."""
        group = header.group_name
        check_group(group, known=self._groups.get(group) is not None)
        log.info("%s deletes subscription group %s", conn.peer, group)
        await self._delete(group, offsets=header.remove_offset)
        return request.reply(ResponseCode.SUCCESS)

    # -- consumption

    @handles(RequestCode.GET_CONSUME_STATS, header=GetConsumeStatsRequest, answer=LARGE)
    async def consume_stats(self, conn: Conn, request: Command, header: GetConsumeStatsRequest) -> Command:
        """208: how far a group is on one topic, or on all it has offsets on."""
        group = header.consumer_group
        if header.topic_list:
            topics = [topic for topic in header.topic_list.split(";") if topic]
        else:
            topics = [header.topic] if header.topic else self._offsets.topics_of(group)
        wanted: list[tuple[str, int]] = []
        tps = 0.0
        turns = Turns()
        for topic in topics:
            config = self._topics.get(topic)
            if config is not None and self._counts(group, topic):
                wanted.append((topic, config.read_queue_nums))
                tps += self._stats.consume_tps(topic, group)
            await turns.step()
        self._check_length(wanted)
        body = LongBody(f'{{"consumeTps":{tps!r},"offsetTable":{{')
        async for progress in self._progress(group, wanted, request.version):
            for queue in progress.queues:
                await body.item(queue)
        return request.reply(ResponseCode.SUCCESS, body=await body.end("}}"))

    @handles(RequestCode.GET_BROKER_CONSUME_STATS, header=GetConsumeStatsInBrokerRequest, answer=LARGE)
    async def broker_consume_stats(
        self, conn: Conn, request: Command, header: GetConsumeStatsInBrokerRequest
    ) -> Command:
        """317: the same for every group of the broker; with ``isOrder`` on ordered topics alone."""
        body = LongBody(f'{{"brokerAddr":{fastjson.quote(self._broker_addr)},"consumeStatsList":[')
        left = 0
        turns = Turns()
        for number, group in enumerate([config.group_name for config in self._groups.all()]):
            body.text(f"{',' if number else ''}{{{fastjson.quote(group)}:[")
            last: str | None = None
            wanted: list[tuple[str, int]] = []
            for topic in self._offsets.topics_of(group):
                config = self._topics.get(topic)
                if config is not None and (config.order or not header.is_order) and self._counts(group, topic):
                    wanted.append((topic, config.write_queue_nums))
                await turns.step()
            self._check_length(wanted)
            async for progress in self._progress(group, wanted, request.version):
                left += progress.left
                if progress.topic != last:
                    tps = self._stats.consume_tps(progress.topic, group)
                    body.text(f'{"}}," if last is not None else ""}{{"consumeTps":{tps!r},"offsetTable":{{')
                    last = progress.topic
                for queue in progress.queues:
                    await body.item(queue)
            body.text("]}" if last is None else "}}]}")
            await turns.step()
        return request.reply(ResponseCode.SUCCESS, body=await body.end(f'],"totalDiff":{left}}}'))

    def _check_length(self, wanted: Sequence[tuple[str, int]]) -> None:
        """Refuse an answer about too many queues, given by topic, before any of them is looked at."""
        least = len(_queue_stats(queue_key("", self._settings.broker_name) % 0, 0, 0, 0).encode())
        check_length(sum(count for _, count in wanted), least, "queues")

    def _counts(self, group: str, topic: str) -> bool:
        """A group that is online and does not subscribe to the topic any more does not lag on it."""
        online = self._consumers.group(group)
        return online is None or not online.subscriptions or topic in online.subscriptions

    async def _progress(self, group: str, wanted: Sequence[tuple[str, int]], version: int) -> AsyncIterator[_Progress]:
        """How far a group is on each of the topics, given with the number of queues to tell of: some queues a turn.

        :param version: of who asks.
        """
        newer = version >= FIRST_OF_5
        for run in _portions(wanted):
            queues = [(topic, queue_id) for topic, ids in run for queue_id in ids]
            committed = [max(0, self._offsets.query(group, topic, queue_id)) for topic, queue_id in queues]
            places = [
                (self._lookup.queue(topic, queue_id), at - 1)
                for (topic, queue_id), at in zip(queues, committed, strict=True)
            ]
            stamps = iter(await self._lookup.store_times(places))
            offsets = iter(committed)
            for topic, ids in run:
                key = queue_key(topic, self._settings.broker_name)
                texts: list[str] = []
                left = 0
                for queue_id in ids:
                    high = self._lookup.max_offset(topic, queue_id)
                    at = next(offsets)
                    texts.append(_queue_stats(key % queue_id, high, at, max(0, next(stamps)), newer=newer))
                    left += high - at
                yield _Progress(topic, texts, left)
            await asyncio.sleep(0)

    @handles(RequestCode.QUERY_CONSUME_TIME_SPAN, header=QueryConsumeTimeSpanRequest)
    async def time_span(self, conn: Conn, request: Command, header: QueryConsumeTimeSpanRequest) -> Command:
        """303: store times of the oldest, the newest and the last consumed message of every write queue."""
        topic, group = header.topic, header.group
        config = self._topics.get(topic)
        if config is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        key = queue_key(topic, self._settings.broker_name)
        check_length(config.write_queue_nums, len(_span(key % 0, 0, 0, 0, 0).encode()), "queues")
        body = LongBody('{"consumeTimeSpanSet":[')
        turns = Turns(64)
        lookup = self._lookup
        for queue_id in range(config.write_queue_nums):
            queue = lookup.queue(topic, queue_id)
            high = 0 if queue is None else queue.visible
            oldest = await lookup.earliest_time(queue)
            newest = await lookup.store_time(queue, high - 1)
            at = self._offsets.query(group, topic, queue_id)
            consumed = await lookup.store_time(queue, at - 1) if at > 0 else oldest
            delay = 0
            if at < high:
                delay = self._clock.now_ms() - await lookup.store_time(queue, max(at, 0))
            await body.item(_span(key % queue_id, consumed, delay, newest, oldest))
            await turns.step()
        return request.reply(ResponseCode.SUCCESS, body=await body.end("]}"))

    @handles(RequestCode.QUERY_TOPICS_BY_CONSUMER, header=QueryTopicsByConsumerRequest)
    async def topics_of(self, conn: Conn, request: Command, header: QueryTopicsByConsumerRequest) -> Command:
        """343 (5.x): topics on which a group has offsets."""

        def encode(some: Sequence[str]) -> bytes:
            return TopicList(broker_addr=self._broker_addr, topic_list=list(some)).encode()

        topics = self._offsets.topics_of(header.group)
        return request.reply(ResponseCode.SUCCESS, body=await in_pieces(topics, encode))

    @handles(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header=QuerySubscriptionByConsumerRequest)
    def subscription_of(self, conn: Conn, request: Command, header: QuerySubscriptionByConsumerRequest) -> Command:
        """345 (5.x): what a group that is online wants of a topic."""
        online = self._consumers.group(header.group)
        topic = header.topic
        if topic is None:  # Java's header lets it be absent, and its broker then fails
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, "QuerySubscriptionByConsumerRequest: the field topic is missing"
            )
        subscription = None if online is None else online.subscription(topic)
        members = [f'"group":{fastjson.quote(header.group)}']
        if subscription is not None:
            members.append(f'"subscriptionData":{subscription.data.encode().decode()}')
        members.append(f'"topic":{fastjson.quote(topic)}')
        return request.reply(ResponseCode.SUCCESS, body=f"{{{','.join(members)}}}".encode())


def _portions(wanted: Sequence[tuple[str, int]]) -> Iterator[list[tuple[str, range]]]:
    """The queues of topics, given by their number, in portions: each topic is in one at least."""
    portion: list[tuple[str, range]] = []
    size = 0
    for topic, count in wanted:
        first = 0
        while True:
            ids = range(first, min(count, first + _QUEUES_AT_ONCE - size))
            portion.append((topic, ids))
            size += max(1, len(ids))
            first = ids.stop
            if size >= _QUEUES_AT_ONCE:
                yield portion
                portion, size = [], 0
            if first >= count:
                break
    if portion:
        yield portion


def _queue_stats(queue: str, high: int, at: int, stamp: int, *, newer: bool = False) -> str:
    """One queue; tools of 5.x take ``pullOffset`` less ``consumerOffset`` for what a member has and has not consumed.

    Which offset members asked for last is not kept: there is nothing to be told of that, and no negative number.
    """
    pulled = f',"pullOffset":{at}' if newer else ""
    return f'{queue}:{{"brokerOffset":{high},"consumerOffset":{at},"lastTimestamp":{stamp}{pulled}}}'


def _span(queue: str, consumed: int, delay: int, newest: int, oldest: int) -> str:
    return (
        f'{{"consumeTimeStamp":{consumed},"consumeTimeStampStr":"{_local(consumed)}","delayTime":{delay},'
        f'"maxTimeStamp":{newest},"maxTimeStampStr":"{_local(newest)}","messageQueue":{queue},'
        f'"minTimeStamp":{oldest},"minTimeStampStr":"{_local(oldest)}"}}'
    )


def _local(stamp: int) -> str:
    """``yyyy-MM-dd#HH:mm:ss:SSS`` in local time, as Java prints these."""
    return datetime.fromtimestamp(stamp / 1000).strftime("%Y-%m-%d#%H:%M:%S:") + f"{stamp % 1000:03d}"
