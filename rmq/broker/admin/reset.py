"""Offsets of a group that is online: moved (222), and asked for (223), through the clients themselves."""

from __future__ import annotations

import asyncio
import logging

from rmq.broker.admin.lookup import Lookup
from rmq.broker.admin.offset import OffsetAdmin
from rmq.broker.admin.slices import Turns
from rmq.broker.admin.topic import queue_key
from rmq.broker.groups.clients import Channel, Consumers
from rmq.broker.groups.offsets import UNKNOWN, OffsetTable
from rmq.broker.reserved import check_group, check_private
from rmq.broker.settings import BrokerSettings
from rmq.broker.topics.table import TopicTable
from rmq.protocol import fastjson
from rmq.protocol.bodies.reset import GetConsumerStatusBody
from rmq.protocol.codes import Language, RequestCode, ResponseCode, version_name
from rmq.protocol.command import Command
from rmq.protocol.errors import BodyError, ResponseError, TransportError
from rmq.protocol.headers.client import GetConsumerStatusRequest
from rmq.protocol.headers.offset import ResetOffsetRequest
from rmq.protocol.queue import MessageQueue
from rmq.remoting.conn import Conn
from rmq.remoting.long_body import LongBody, check_length
from rmq.remoting.router import handles

__all__ = ["ResetAdmin"]

log = logging.getLogger(__name__)

#: Older clients do not know 220 and 221 (V3_0_7_SNAPSHOT; protocol.md 1.5).
_SINCE = 28
_ASK_SECONDS = 5.0
#: Clients asked at the same time.
_AT_ONCE = 64


class ResetAdmin:
    """Handlers of 222 and 223."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        offsets: OffsetTable,
        consumers: Consumers,
        lookup: Lookup,
        search: OffsetAdmin,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._lookup = lookup
        self._search = search

    @handles(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header=ResetOffsetRequest)
    async def reset(self, conn: Conn, request: Command, header: ResetOffsetRequest) -> Command:
        """222: have every client of a group go to a time, or to the end.

        The stored offsets are the clients' to change; the answer and the push say where each queue goes. The push is in
        the form for C++ when the requester speaks C++, as in Java (protocol.md 4.11). With ``queueId`` and ``offset``
        (5.x) one queue goes to that offset, and it is stored at once.
        """
        topic, group = header.topic, header.group
        check_group(group)
        check_private(topic)
        config = self._topics.get(topic)
        if config is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        if header.offset is not None and header.queue_id is not None and header.queue_id >= 0:
            return await self._reset_queue(conn, request, header, header.queue_id, header.offset)
        log.info("%s resets %s on %s to %d", conn.peer, group, topic, header.timestamp)
        least = len((queue_key(topic, self._settings.broker_name) % 0).encode())
        check_length(config.write_queue_nums, least, "queues")
        wanted: dict[int, int] = {}
        turns = Turns(64)
        for queue_id in range(config.write_queue_nums):
            stored = self._offsets.query(group, topic, queue_id)
            if stored == UNKNOWN:
                raise ResponseError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            if header.timestamp == -1:
                target = self._lookup.max_offset(topic, queue_id)
            else:
                target = await self._search.offset_by_time(topic, queue_id, header.timestamp)
            wanted[queue_id] = target if header.is_force or target < stored else stored
            await turns.step()
        online = self._consumers.group(group)
        if online is None or not online.channels:
            raise ResponseError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                f"Timestamp: {header.timestamp}",
            )
        java = await self._java_form(topic, wanted)
        body = await self._c_form(topic, wanted) if request.language == Language.CPP else java
        for channel in list(online.channels.values()):
            self._check_version(channel)
            push = Command.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                ResetOffsetRequest(topic=topic, group=group, timestamp=header.timestamp, is_force=False),
                body,
            )
            if not channel.conn.closed:
                channel.conn.oneway(push)
            await turns.step()
        return request.reply(ResponseCode.SUCCESS, body=java)

    async def _reset_queue(
        self, conn: Conn, request: Command, header: ResetOffsetRequest, queue_id: int, offset: int
    ) -> Command:
        """One queue to one offset, whether members are online or not (field case B020)."""
        topic, group = header.topic, header.group
        low, high = self._lookup.min_offset(topic, queue_id), self._lookup.max_offset(topic, queue_id)
        if not low <= offset <= high:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"queue {queue_id} of {topic} has offsets {low} to {high}: {group} cannot be reset to {offset}",
            )
        log.info("%s resets %s on %s-%d to %d", conn.peer, group, topic, queue_id, offset)
        self._offsets.commit(group, topic, queue_id, offset)
        await self._search.spread([(group, topic, queue_id, offset)], request)
        java = await self._java_form(topic, {queue_id: offset})
        online = self._consumers.group(group)
        for channel in [] if online is None else online.channels.values():
            if channel.version >= _SINCE and not channel.conn.closed:
                push = ResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True)
                channel.conn.oneway(Command.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, push, java))
        return request.reply(ResponseCode.SUCCESS, body=java)

    async def _java_form(self, topic: str, wanted: dict[int, int]) -> bytes:
        key = queue_key(topic, self._settings.broker_name)
        body = LongBody('{"offsetTable":{')
        for queue_id, offset in wanted.items():
            await body.item(f"{key % queue_id}:{offset}")
        return await body.end("}}")

    async def _c_form(self, topic: str, wanted: dict[int, int]) -> bytes:
        broker, name = fastjson.quote(self._settings.broker_name), fastjson.quote(topic)
        body = LongBody('{"offsetTable":[')
        for queue_id, offset in wanted.items():
            await body.item(f'{{"brokerName":{broker},"offset":{offset},"queueId":{queue_id},"topic":{name}}}')
        return await body.end("]}")

    @staticmethod
    def _check_version(channel: Channel) -> None:
        if channel.version < _SINCE:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={version_name(channel.version)}",
            )

    @handles(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header=GetConsumerStatusRequest)
    async def status(self, conn: Conn, request: Command, header: GetConsumerStatusRequest) -> Command:
        """223: ask the clients of a group where they are; ``clientAddr`` is a client id that narrows it to one."""
        online = self._consumers.group(header.group)
        if online is None or not online.channels:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"no consumer of the group {header.group} is online: nobody can be asked"
            )
        channels = [
            channel
            for channel in online.channels.values()
            if not header.client_addr or channel.client_id == header.client_addr
        ]
        for channel in channels:
            self._check_version(channel)
        gate = asyncio.Semaphore(_AT_ONCE)
        answers = await asyncio.gather(*(self._ask(gate, channel, header) for channel in channels))
        table: dict[str, dict[MessageQueue, int]] = {}
        for channel, offsets in zip(channels, answers, strict=True):
            if offsets is not None:
                table[channel.client_id] = offsets
        return request.reply(ResponseCode.SUCCESS, body=GetConsumerStatusBody(consumer_table=table).encode())

    async def _ask(
        self, gate: asyncio.Semaphore, channel: Channel, header: GetConsumerStatusRequest
    ) -> dict[MessageQueue, int] | None:
        ask = Command.request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            GetConsumerStatusRequest(topic=header.topic, group=header.group),
        )
        async with gate:
            try:
                answer = await channel.conn.request(ask, _ASK_SECONDS)
            except TransportError as error:
                log.warning("%s does not say where it is: %s", channel.client_id, error)
                return None
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        try:
            return GetConsumerStatusBody.decode(answer.body).message_queue_table
        except BodyError as error:
            log.warning("the status of %s cannot be read: %s", channel.client_id, error)
            return None
