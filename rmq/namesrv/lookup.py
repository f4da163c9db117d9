"""What clients and tools ask about topics and clusters: 105, 106, 206, 216, 224, 304, 311 to 313 (protocol.md 2.1)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rmq.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KVConfig
from rmq.namesrv.routes import RouteTable
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.bodies.kv import TopicList
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import FAQ
from rmq.protocol.headers.namesrv import (
    DeleteTopicInNamesrvRequest,
    GetRouteInfoRequest,
    GetTopicsByClusterRequest,
)
from rmq.remoting.conn import Conn
from rmq.remoting.long_body import in_pieces
from rmq.remoting.router import handles

__all__ = ["STANDARD_JSON_SINCE", "LookupService"]

#: V4_9_4: requesters from this release on read (and 5.x ones want) standard JSON with quoted keys (protocol.md 4.4).
STANDARD_JSON_SINCE = 401

log = logging.getLogger(__name__)


class LookupService:
    """Handlers that read the route table, and the one that forgets a topic."""

    def __init__(self, routes: RouteTable, kv: KVConfig, settings: NamesrvSettings) -> None:
        self._routes = routes
        self._kv = kv
        self._settings = settings

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, header=GetRouteInfoRequest)
    def route(self, conn: Conn, request: Command, header: GetRouteInfoRequest) -> Command:
        route = self._routes.route(header.topic)
        if route is None:
            return request.reply(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}{FAQ}",
            )
        if self._settings.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
        standard = request.version >= STANDARD_JSON_SINCE or bool(header.accept_standard_json_only)
        return request.reply(ResponseCode.SUCCESS, body=route.encode(standard))

    @handles(RequestCode.GET_BROKER_CLUSTER_INFO)
    def cluster_info(self, conn: Conn, request: Command) -> Command:
        return request.reply(ResponseCode.SUCCESS, body=self._routes.cluster_info().encode())

    @handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    async def topics(self, conn: Conn, request: Command) -> Command:
        return await _topics(request, self._routes.topics())

    @handles(RequestCode.GET_TOPICS_BY_CLUSTER, header=GetTopicsByClusterRequest)
    async def topics_by_cluster(self, conn: Conn, request: Command, header: GetTopicsByClusterRequest) -> Command:
        return await _topics(request, self._routes.topics_of_cluster(header.cluster))

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    async def system_topics(self, conn: Conn, request: Command) -> Command:
        names, addr = self._routes.system_topics()
        return await _topics(request, names, addr)

    @handles(RequestCode.GET_UNIT_TOPIC_LIST)
    async def unit_topics(self, conn: Conn, request: Command) -> Command:
        return await _topics(request, self._routes.topics_with_flags(unit=True))

    @handles(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    async def unit_sub_topics(self, conn: Conn, request: Command) -> Command:
        return await _topics(request, self._routes.topics_with_flags(unit_sub=True))

    @handles(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    async def unit_sub_ununit_topics(self, conn: Conn, request: Command) -> Command:
        return await _topics(request, self._routes.topics_with_flags(unit=False, unit_sub=True))

    @handles(RequestCode.DELETE_TOPIC_IN_NAMESRV, header=DeleteTopicInNamesrvRequest)
    def delete_topic(self, conn: Conn, request: Command, header: DeleteTopicInNamesrvRequest) -> Command:
        self._routes.delete_topic(header.topic, header.cluster_name)
        log.info("%s deleted the topic %s of %s", conn.peer, header.topic, header.cluster_name or "every cluster")
        return request.reply(ResponseCode.SUCCESS)


async def _topics(request: Command, topics: list[str], addr: str | None = None) -> Command:
    def encode(some: Sequence[str]) -> bytes:
        return TopicList(topic_list=list(some), broker_addr=addr).encode()

    return request.reply(ResponseCode.SUCCESS, body=await in_pieces(topics, encode))
