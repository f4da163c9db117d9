"""Topics: created, deleted, listed, measured (requests 17, 18, 21, 202, 215, 300, 305, 351)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from rmq.broker.admin.lookup import Lookup
from rmq.broker.admin.slices import Turns, read_list
from rmq.broker.groups.clients import Consumers
from rmq.broker.groups.offsets import OffsetTable
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.names import topic_name_fault
from rmq.broker.topics.table import TopicTable
from rmq.protocol import fastjson
from rmq.protocol.bodies.kv import GroupList, TopicList
from rmq.protocol.bodies.topic import CreateTopicListRequestBody, TopicConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import HeaderError, ResponseError
from rmq.protocol.headers.topic import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
    QueryTopicConsumeByWhoRequest,
)
from rmq.protocol.queue import MAX_QUEUES
from rmq.remoting.conn import Conn
from rmq.remoting.long_body import LongBody, check_length
from rmq.remoting.router import LARGE, handles

__all__ = ["TopicAdmin"]

log = logging.getLogger(__name__)

#: Bytes of a list of topics: 10,000 topics of Java's tools have 2 MB.
_LONGEST_LIST = 4 << 20
#: Topics of one list.
_MOST_TOPICS = 20_000
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicAdmin:
    """Handlers of the topic requests.

    :param delete: forgets a topic with all that is known of it, and returns when no restart brings it back.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        offsets: OffsetTable,
        consumers: Consumers,
        lookup: Lookup,
        delete: Callable[[str], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._lookup = lookup
        self._delete = delete

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC)
    async def update_and_create(self, conn: Conn, request: Command) -> Command:
        """17: make or change a topic; the name servers hear of it at once, and who asked when it outlives a kill."""
        # The name is judged before the other fields, so that its fault is the one that is told.
        self._check_name((request.ext or {}).get("topic"))
        header = request.header(CreateTopicRequest)
        if header.topic_filter_type not in _FILTER_TYPES:
            raise HeaderError(f"topicFilterType = [{header.topic_filter_type}] value invalid")
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
        )
        _check_queues(config)
        self._topics.check_room(header.topic not in self._topics)
        log.info("%s updates topic %s", conn.peer, header.topic)
        self._topics.put(config)
        await self._topics.saved()
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=_LONGEST_LIST)
    async def update_and_create_list(self, conn: Conn, request: Command) -> Command:
        """18 (5.x): the same for many topics; all names are checked before any is made."""
        configs = await read_list(
            request.body,
            "topicConfigList",
            _MOST_TOPICS,
            lambda body: CreateTopicListRequestBody.decode(body).topic_config_list,
            TopicConfig.from_object,
        )
        if not configs:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the body has no topicConfigList")
        for config in configs:
            self._check_name(config.topic_name)
            _check_queues(config)
        self._topics.check_room(len({config.topic_name for config in configs} - set(self._topics.names())))
        log.info("%s updates %d topics", conn.peer, len(configs))
        turns = Turns()
        for config in configs:
            self._topics.put(config)
            await turns.step()
        await self._topics.saved()
        return request.reply(ResponseCode.SUCCESS)

    def _check_name(self, topic: str | None) -> None:
        fault = topic_name_fault(topic)
        if fault is None and topic is not None and topic in self._topics.system:
            fault = f"The topic[{topic}] is conflict with system topic."
        if fault is not None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, fault)

    @handles(RequestCode.DELETE_TOPIC_IN_BROKER)
    async def delete(self, conn: Conn, request: Command) -> Command:
        """215: forget a topic, its queues and its groups' offsets; an unknown one is no error."""
        self._check_name((request.ext or {}).get("topic"))
        topic = request.header(DeleteTopicRequest).topic
        log.info("%s deletes topic %s", conn.peer, topic)
        await self._delete(topic)
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.GET_ALL_TOPIC_CONFIG)
    def all_configs(self, conn: Conn, request: Command) -> Command:
        """21: every topic with the data version."""
        answer = request.reply(ResponseCode.SUCCESS, body=self._topics.answer())
        answer.ext = {}
        return answer

    @handles(RequestCode.GET_TOPIC_CONFIG, header=GetTopicConfigRequest)
    def config(self, conn: Conn, request: Command, header: GetTopicConfigRequest) -> Command:
        """351 (5.x): one topic's config."""
        config = self._topics.told_of(header.topic)
        if config is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        return request.reply(ResponseCode.SUCCESS, body=config.encode())

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system_topics(self, conn: Conn, request: Command) -> Command:
        """305: names that operators may not use."""
        return request.reply(ResponseCode.SUCCESS, body=TopicList(topic_list=self._topics.system.names()).encode())

    @handles(RequestCode.GET_TOPIC_STATS_INFO, header=GetTopicStatsInfoRequest, answer=LARGE)
    async def stats(self, conn: Conn, request: Command, header: GetTopicStatsInfoRequest) -> Command:
        """202: ends and last store time of every write queue."""
        topic = header.topic
        config = self._topics.get(topic)
        if config is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        key = queue_key(topic, self._settings.broker_name)
        check_length(config.write_queue_nums, len(_ends(key, 0, 0, 0, 0).encode()), "queues")
        body = LongBody('{"offsetTable":{')
        turns = Turns()
        for queue_id in range(config.write_queue_nums):
            queue = self._lookup.queue(topic, queue_id)
            low = high = last = 0
            if queue is not None:
                low, high = queue.min, queue.visible
                if high > 0:
                    last = await self._lookup.store_time(queue, high - 1)
            await body.item(_ends(key, queue_id, last, high, low))
            await turns.step()
        return request.reply(ResponseCode.SUCCESS, body=await body.end("}}"))

    @handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header=QueryTopicConsumeByWhoRequest)
    def consumed_by(self, conn: Conn, request: Command, header: QueryTopicConsumeByWhoRequest) -> Command:
        """300: groups online on the topic, and those with offsets on it."""
        groups = dict.fromkeys(self._consumers.groups_on(header.topic))
        groups.update(dict.fromkeys(self._offsets.groups_of(header.topic)))
        return request.reply(ResponseCode.SUCCESS, body=GroupList(group_list=list(groups)).encode())


def _ends(key: str, queue_id: int, last: int, high: int, low: int) -> str:
    return f'{key % queue_id}:{{"lastUpdateTimestamp":{last},"maxOffset":{high},"minOffset":{low}}}'


def queue_key(topic: str, broker_name: str) -> str:
    """A ``%`` template, of the queue id, for a MessageQueue as a map key (protocol.md 4.1, E4)."""
    broker, name = (fastjson.quote(text).replace("%", "%%") for text in (broker_name, topic))
    return f'{{"brokerName":{broker},"queueId":%d,"topic":{name}}}'


def _check_queues(config: TopicConfig) -> None:
    for key, count in (("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)):
        if count > MAX_QUEUES:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"{key}={count}: topic {config.topic_name} may have {MAX_QUEUES} at most"
            )
